"""Reason codes of MQTT 5 (table 2-6), where each may stand, and what MQTT 3 says instead."""

from __future__ import annotations

from enum import IntEnum

from headgate.wire.kinds import PacketType


class Reason(IntEnum):
    """Below 0x80 is success. 0x00 is also called "normal disconnection" and "granted QoS 0"."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


_RECEIVED = frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
_RELEASED = frozenset({0x00, 0x92})

# [MQTT-3.2.2-8], [MQTT-3.4.2-1] and their like: each packet MUST use one of its own codes.
# DISCONNECT takes 0x8C too: table 2-6 lists it there, table 3-13 forgets it.
ALLOWED: dict[PacketType, frozenset[int]] = {
    PacketType.CONNACK: frozenset(
        {0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, *range(0x99, 0x9E), 0x9F}
    ),
    PacketType.PUBACK: _RECEIVED,
    PacketType.PUBREC: _RECEIVED,
    PacketType.PUBREL: _RELEASED,
    PacketType.PUBCOMP: _RELEASED,
    PacketType.SUBACK: frozenset(
        {0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2}
    ),
    PacketType.UNSUBACK: frozenset({0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91}),
    PacketType.DISCONNECT: frozenset(
        {0x00, 0x04, *range(0x80, 0x84), 0x87, 0x89, *range(0x8B, 0x91), *range(0x93, 0xA3)}
    ),
    PacketType.AUTH: frozenset({0x00, 0x18, 0x19}),
}

# MQTT 3.1.1, table 3.1.
_CONNACK_V3: dict[int, int] = {
    Reason.UNSUPPORTED_PROTOCOL_VERSION: 1,
    Reason.CLIENT_IDENTIFIER_NOT_VALID: 2,
    Reason.BAD_USER_NAME_OR_PASSWORD: 4,
    Reason.NOT_AUTHORIZED: 5,
    Reason.BANNED: 5,
    Reason.BAD_AUTHENTICATION_METHOD: 5,
}


def connack_v3(reason: int) -> int:
    """The MQTT 3 return code (0..5) of a CONNACK; a return code stands for itself.

    What MQTT 3 has no word for is 3, "server unavailable": the client may try again later.
    """
    return reason if reason <= 5 else _CONNACK_V3.get(reason, 3)
