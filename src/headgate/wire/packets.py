"""The control packets as plain data. Nothing here knows how they look on the wire.

Properties are ignored when a packet is written for MQTT 3, so that one packet serves subscribers of
either version.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from headgate.wire.kinds import PacketType, Version
from headgate.wire.properties import Properties

__all__ = [
    "Auth",
    "Connack",
    "Connect",
    "Disconnect",
    "Packet",
    "PacketType",
    "Pingreq",
    "Pingresp",
    "Properties",
    "Puback",
    "Pubcomp",
    "Publish",
    "Pubrec",
    "Pubrel",
    "Suback",
    "Subscribe",
    "SubscriptionOptions",
    "Unsuback",
    "Unsubscribe",
    "Version",
    "Will",
]


@dataclass(slots=True)
class Will:
    """The message that the server publishes when the client is lost."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Connect:
    """The client's first packet. `clean_start` is MQTT 3's "clean session"."""

    client_id: str = ""
    version: Version = Version.V5
    clean_start: bool = True
    keep_alive: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Connack:
    """The server's answer to CONNECT.

    `reason` is what stands on the wire: a `Reason` in MQTT 5, a return code 0..5 in MQTT 3. Written
    for MQTT 3, a `Reason` is translated by `connack_v3`.
    """

    session_present: bool = False
    reason: int = 0
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Publish:
    """A message. The topic is empty only where an MQTT 5 topic alias stands for it."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Puback:
    """The answer to PUBLISH at QoS 1."""

    packet_id: int
    reason: int = 0
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Pubrec:
    """The answer to PUBLISH at QoS 2."""

    packet_id: int
    reason: int = 0
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Pubrel:
    """The answer to PUBREC: the identifier's message may be forgotten."""

    packet_id: int
    reason: int = 0
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Pubcomp:
    """The answer to PUBREL: the identifier is free again."""

    packet_id: int
    reason: int = 0
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class SubscriptionOptions:
    """What a subscription asks for; MQTT 3 knows only the QoS."""

    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(slots=True)
class Subscribe:
    """Filters to subscribe to."""

    packet_id: int
    filters: list[tuple[str, SubscriptionOptions]]
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Suback:
    """One reason for each filter of SUBSCRIBE, in its order. MQTT 3 knows 0, 1, 2 and 0x80."""

    packet_id: int
    reasons: list[int]
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Unsubscribe:
    """Filters to forget."""

    packet_id: int
    filters: list[str]
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Unsuback:
    """One reason for each filter of UNSUBSCRIBE, in its order; none in MQTT 3."""

    packet_id: int
    reasons: list[int] = field(default_factory=list)
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Pingreq:
    """The client is alive."""


@dataclass(slots=True)
class Pingresp:
    """So is the server."""


@dataclass(slots=True)
class Disconnect:
    """The last packet. MQTT 3 has no reason, and only the client sends it."""

    reason: int = 0
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Auth:
    """One step of enhanced authentication, MQTT 5 only."""

    reason: int = 0
    properties: Properties = field(default_factory=Properties)


Acknowledgement: TypeAlias = Puback | Pubrec | Pubrel | Pubcomp
Packet: TypeAlias = (
    Connect
    | Connack
    | Publish
    | Acknowledgement
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
