"""What can go wrong, and whose fault it is.

HeadgateError
├── ConfigurationError      the operator's file or command line; shown as one sentence
├── MqttError               the peer's packet; carries the reason code that answers it
│   ├── MalformedPacket     0x81: the bytes are not MQTT
│   └── ProtocolViolation   any other code: the bytes are MQTT, their meaning is not allowed
├── StreamError             the peer's TLS, HTTP or WebSocket (server.transport.stream)
└── StorageError            our disk; the broker stops rather than acknowledge what it cannot keep
"""

from __future__ import annotations


class HeadgateError(Exception):
    """Base of every error that Headgate raises on purpose."""


class ConfigurationError(HeadgateError):
    """A mistake of the operator's, told in one sentence."""


class MqttError(HeadgateError):
    """The peer broke the protocol. `reason` is the MQTT 5 reason code to answer with."""

    def __init__(self, reason: int, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class MalformedPacket(MqttError):  # noqa: N818 (MQTT's own words)
    """Bytes that cannot be decoded [MQTT-4.13.1-1]."""

    def __init__(self, message: str) -> None:
        super().__init__(0x81, message)


class ProtocolViolation(MqttError):  # noqa: N818
    """A packet that decodes but is not allowed here."""

    def __init__(self, message: str, reason: int = 0x82) -> None:
        super().__init__(reason, message)


class StorageError(HeadgateError):
    """The store could not keep what it was given."""
