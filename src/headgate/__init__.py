"""Headgate: an MQTT broker that plans its own quality of service."""

__version__ = "0.1.0"
