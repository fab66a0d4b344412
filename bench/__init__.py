"""Benchmarks. `python -m bench broker` compares MQTT brokers; README.md explains the method."""
