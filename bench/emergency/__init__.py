"""p-MQTT's experiment: an emergency among a thousand ordinary publishers."""
