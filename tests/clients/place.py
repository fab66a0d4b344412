"""One broker with a listener of every type, and how clients reach it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

TRANSPORTS = ["tcp", "tls", "ws", "wss", "unix"]


@dataclass(frozen=True)
class Place:
    """Where a listener is."""

    transport: str
    host: str
    """Path of the socket for `unix`."""
    port: int
    ca: Path

    @property
    def secure(self) -> bool:
        return self.transport in ("tls", "wss")

    @property
    def websocket(self) -> bool:
        return self.transport in ("ws", "wss")

    def tls_context(self) -> ssl.SSLContext | None:
        """A context that verifies the broker, as a careful client has."""
        return ssl.create_default_context(cafile=str(self.ca)) if self.secure else None
