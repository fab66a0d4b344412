"""Headgate: an MQTT broker that plans its own quality of service."""

from importlib.util import find_spec

__version__ = "0.1.0"


def is_compiled() -> bool:
    """Is the hot path compiled, or does it run as plain Python, several times slower?"""
    spec = find_spec("headgate.core.channel")
    return spec is not None and spec.origin is not None and not spec.origin.endswith(".py")
