"""Section `listeners`: where clients connect."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from headgate.config.addresses import Address
from headgate.contract.schema import Count, Kind, Problem, Record, rule

File = Annotated[Path, Kind.FILE]


class ListenerType(StrEnum):
    """What is spoken below MQTT."""

    TCP = "tcp"
    TLS = "tls"
    WS = "ws"
    WSS = "wss"
    UNIX = "unix"

    @property
    def is_secure(self) -> bool:
        return self in (ListenerType.TLS, ListenerType.WSS)

    @property
    def is_websocket(self) -> bool:
        return self in (ListenerType.WS, ListenerType.WSS)


class TlsVersion(StrEnum):
    """The oldest version that a client may speak."""

    V1_2 = "1.2"
    V1_3 = "1.3"


class Tls(Record, frozen=True):
    """The server's certificate, and what is asked of the client's."""

    certificate: File
    """PEM file with the certificate and its chain."""
    key: File
    client_ca: File | None = None
    """PEM file with the authorities that sign client certificates."""
    require_client_certificate: bool = False
    minimum_version: TlsVersion = TlsVersion.V1_2

    @rule("client_ca", "require_client_certificate")
    def _client_ca_is_known(self) -> Iterator[Problem]:
        if self.require_client_certificate and self.client_ca is None:
            yield Problem(
                ("require_client_certificate",),
                "no client certificate can be verified: add client_ca: FILE",
            )


class Listener(Record, frozen=True):
    """One place where clients connect."""

    type: ListenerType
    address: Address
    name: Annotated[str, Meta(min_length=1)] | None = None
    tls: Tls | None = None
    max_connections: Count = 0
    """0 is as many as `limits.connections` lets in."""
    path: Annotated[str, Meta(pattern="^/[!-~]*$")] = "/mqtt"
    """Path of the WebSocket endpoint."""

    @property
    def label(self) -> str:
        """Its name, or what tells it from the others."""
        return self.name or f"{self.type}://{self.address}"

    @rule("type", "address")
    def _address_fits(self) -> Iterator[Problem]:
        if self.type is ListenerType.UNIX and not self.address.path:
            yield Problem(
                ("address",), "a unix listener needs a path with a '/', such as ./headgate.sock"
            )
        if self.type is not ListenerType.UNIX and self.address.path:
            yield Problem(
                ("address",), f'a {self.type} listener needs "host:port", such as "127.0.0.1:1883"'
            )

    @rule("type", "tls")
    def _tls_where_needed(self) -> Iterator[Problem]:
        if self.type.is_secure and self.tls is None:
            yield Problem(
                (),
                f"a {self.type} listener needs tls: {{certificate: server.pem, key: server.key}}",
            )
        if self.tls is not None and not self.type.is_secure:
            secure = "wss" if self.type.is_websocket else "tls"
            yield Problem(
                ("tls",), f"a {self.type} listener is not encrypted: use type: {secure}, or no tls"
            )
