"""The packet types and protocol versions: what every other wire module speaks about."""

from __future__ import annotations

from enum import IntEnum


class PacketType(IntEnum):
    """The high four bits of a packet's first byte (MQTT 5, table 2-1)."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Version(IntEnum):
    """The protocol level byte of CONNECT."""

    V31 = 3
    V311 = 4
    V5 = 5
