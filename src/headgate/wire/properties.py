"""MQTT 5 properties (§2.2.2): one table says what each is, where it may stand, and its range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from headgate.errors import MalformedPacket, ProtocolViolation
from headgate.wire import fields
from headgate.wire.kinds import PacketType
from headgate.wire.reasons import Reason

# Will properties have their own list inside CONNECT; the number is one that no packet type has.
WILL: Final = 16


@dataclass(slots=True)
class Properties:
    """Every property a packet may carry. None, or an empty list, is absent."""

    payload_format: int | None = None
    message_expiry: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: list[int] = field(default_factory=list)
    session_expiry: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive: int | None = None
    auth_method: str | None = None
    auth_data: bytes | None = None
    request_problem_information: bool | None = None
    will_delay: int | None = None
    request_response_information: bool | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: bool | None = None
    user_properties: list[tuple[str, str]] = field(default_factory=list)
    maximum_packet_size: int | None = None
    wildcard_subscription_available: bool | None = None
    subscription_identifier_available: bool | None = None
    shared_subscription_available: bool | None = None


@dataclass(frozen=True, slots=True)
class _Type:
    read: Callable[[bytes, int], tuple[Any, int]]
    encode: Callable[[Any], bytes]
    maximum: int | None = None


def _read_flag(data: bytes, pos: int) -> tuple[bool, int]:
    byte, pos = fields.read_byte(data, pos)
    if byte > 1:
        raise ProtocolViolation(f"a property that is 0 or 1 has the value {byte}")
    return byte == 1, pos


def _read_pair(data: bytes, pos: int) -> tuple[tuple[str, str], int]:
    name, pos = fields.read_string(data, pos)
    value, pos = fields.read_string(data, pos)
    return (name, value), pos


def _encode_pair(pair: tuple[str, str]) -> bytes:
    return fields.encode_string(pair[0]) + fields.encode_string(pair[1])


_FLAG = _Type(_read_flag, lambda flag: b"\x01" if flag else b"\x00")
_BIT = _Type(fields.read_byte, fields.encode_byte, 1)
_TWO_BYTES = _Type(fields.read_uint16, fields.encode_uint16, 0xFFFF)
_FOUR_BYTES = _Type(fields.read_uint32, fields.encode_uint32, 0xFFFF_FFFF)
_VARINT = _Type(fields.read_varint, fields.encode_varint, fields.MAXIMUM_VARINT)
_STRING = _Type(fields.read_string, fields.encode_string)
_BINARY = _Type(fields.read_binary, fields.encode_binary)
_PAIR = _Type(_read_pair, _encode_pair)


@dataclass(frozen=True, slots=True)
class _Property:
    """One row of table 2-4."""

    identifier: int
    name: str
    type: _Type
    places: frozenset[int]
    minimum: int = 0
    reason: Reason = Reason.PROTOCOL_ERROR
    listed: bool = False

    def check(self, value: Any) -> None:
        """Raise unless an integer is in its range; other types have none."""
        if self.type.maximum is not None and not self.minimum <= value <= self.type.maximum:
            raise ProtocolViolation(
                f"{self.name} is {value}, not {self.minimum}..{self.type.maximum}", self.reason
            )


_P = PacketType
MOST_USER_PROPERTIES: Final = 1_000
"""In one packet: a packet of empty ones would hold everybody up for seconds."""
TOO_MANY: Final = f"a packet has more than {MOST_USER_PROPERTIES} user properties"

_MESSAGE = frozenset({_P.PUBLISH, WILL})
_CONNECTION = frozenset({_P.CONNECT, _P.CONNACK})
_CONNECT = frozenset({_P.CONNECT})
_CONNACK = frozenset({_P.CONNACK})
_AUTHENTICATION = frozenset({_P.CONNECT, _P.CONNACK, _P.AUTH})
_ANSWERS = frozenset(
    {_P.CONNACK, _P.PUBACK, _P.PUBREC, _P.PUBREL, _P.PUBCOMP}
    | {_P.SUBACK, _P.UNSUBACK, _P.DISCONNECT, _P.AUTH}
)
_EVERYWHERE = _ANSWERS | {_P.CONNECT, _P.PUBLISH, WILL, _P.SUBSCRIBE, _P.UNSUBSCRIBE}

TABLE: Final = (
    _Property(0x01, "payload_format", _BIT, _MESSAGE),
    _Property(0x02, "message_expiry", _FOUR_BYTES, _MESSAGE),
    _Property(0x03, "content_type", _STRING, _MESSAGE),
    _Property(0x08, "response_topic", _STRING, _MESSAGE),
    _Property(0x09, "correlation_data", _BINARY, _MESSAGE),
    _Property(
        0x0B,
        "subscription_identifiers",
        _VARINT,
        frozenset({_P.PUBLISH, _P.SUBSCRIBE}),
        minimum=1,
        listed=True,
    ),
    _Property(
        0x11, "session_expiry", _FOUR_BYTES, frozenset({_P.CONNECT, _P.CONNACK, _P.DISCONNECT})
    ),
    _Property(0x12, "assigned_client_id", _STRING, _CONNACK),
    _Property(0x13, "server_keep_alive", _TWO_BYTES, _CONNACK),
    _Property(0x15, "auth_method", _STRING, _AUTHENTICATION),
    _Property(0x16, "auth_data", _BINARY, _AUTHENTICATION),
    _Property(0x17, "request_problem_information", _FLAG, _CONNECT),
    _Property(0x18, "will_delay", _FOUR_BYTES, frozenset({WILL})),
    _Property(0x19, "request_response_information", _FLAG, _CONNECT),
    _Property(0x1A, "response_information", _STRING, _CONNACK),
    _Property(0x1C, "server_reference", _STRING, frozenset({_P.CONNACK, _P.DISCONNECT})),
    _Property(0x1F, "reason_string", _STRING, _ANSWERS),
    _Property(0x21, "receive_maximum", _TWO_BYTES, _CONNECTION, minimum=1),
    _Property(0x22, "topic_alias_maximum", _TWO_BYTES, _CONNECTION),
    # A Topic Alias of 0 is not permitted [MQTT-3.3.2-8].
    _Property(
        0x23,
        "topic_alias",
        _TWO_BYTES,
        frozenset({_P.PUBLISH}),
        minimum=1,
        reason=Reason.TOPIC_ALIAS_INVALID,
    ),
    _Property(0x24, "maximum_qos", _BIT, _CONNACK),
    _Property(0x25, "retain_available", _FLAG, _CONNACK),
    _Property(0x26, "user_properties", _PAIR, _EVERYWHERE, listed=True),
    _Property(0x27, "maximum_packet_size", _FOUR_BYTES, _CONNECTION, minimum=1),
    _Property(0x28, "wildcard_subscription_available", _FLAG, _CONNACK),
    _Property(0x29, "subscription_identifier_available", _FLAG, _CONNACK),
    _Property(0x2A, "shared_subscription_available", _FLAG, _CONNACK),
)
_BY_IDENTIFIER: Final = {row.identifier: row for row in TABLE}
_values = attrgetter(*(row.name for row in TABLE))
_ABSENT: Final = _values(Properties())


def encode_properties(props: Properties, where: int | None = None) -> bytes:
    """The properties after their length. `where` (packet type or WILL) adds a check of the place.

    The check is for our own mistakes: a will delay left in the PUBLISH of a will would cost every
    subscriber its connection.
    """
    values = _values(props)
    if values == _ABSENT:  # most packets
        return b"\x00"
    encoded = bytearray()
    for row, value in zip(TABLE, values, strict=True):
        if value is None or value == []:
            continue
        if where is not None and where not in row.places:
            raise ValueError(f"{row.name} may not stand in {_place(where)}")
        for one in value if row.listed else (value,):
            try:
                row.check(one)
            except ProtocolViolation as error:
                raise ValueError(str(error)) from None
            encoded.append(row.identifier)
            encoded += row.type.encode(one)
    return fields.encode_varint(len(encoded)) + bytes(encoded)


def decode_properties(data: bytes, pos: int, where: int) -> tuple[Properties, int]:
    """The properties at `pos` and the position after them; `where` is a packet type or WILL."""
    length, pos = fields.read_varint(data, pos)
    end = pos + length
    if end > len(data):
        raise MalformedPacket(f"the property length {length} reaches beyond the packet")
    props = Properties()
    seen = set()
    left = MOST_USER_PROPERTIES
    while pos < end:
        identifier, pos = fields.read_varint(data, pos)
        row = _BY_IDENTIFIER.get(identifier)
        if row is None or where not in row.places:
            # §2.2.2.2: an identifier that is not valid for its packet type is malformed.
            raise MalformedPacket(f"property 0x{identifier:02X} may not stand in {_place(where)}")
        value, pos = row.type.read(data, pos)
        if pos > end:
            raise MalformedPacket(f"{row.name} reaches beyond the property length")
        row.check(value)
        if identifier in seen and not _may_repeat(row, where):
            raise ProtocolViolation(f"{row.name} is there more than once")
        seen.add(identifier)
        if row.listed:
            left -= 1
            if left < 0:
                raise ProtocolViolation(TOO_MANY, 0x97)
            getattr(props, row.name).append(value)
        else:
            setattr(props, row.name, value)
    if seen:
        _check_together(props)
    return props, pos


def _may_repeat(row: _Property, where: int) -> bool:
    # Several Subscription Identifiers only in a PUBLISH that matched several subscriptions
    # (§3.3.2.3.8); SUBSCRIBE has one (§3.8.2.1.2).
    return row.listed and not (row.identifier == 0x0B and where == PacketType.SUBSCRIBE)


def _check_together(props: Properties) -> None:
    if props.auth_data is not None and props.auth_method is None:
        raise ProtocolViolation("authentication data without a method (§3.1.2.11.10)")
    topic = props.response_topic
    if topic == "":
        raise ProtocolViolation("the response topic is empty [MQTT-4.7.3-1]")
    if topic is not None and ("+" in topic or "#" in topic):
        raise ProtocolViolation("the response topic contains a wildcard [MQTT-3.3.2-14]")


def _place(where: int) -> str:
    return "a will" if where == WILL else PacketType(where).name
