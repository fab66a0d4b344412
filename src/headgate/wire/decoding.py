"""From bytes to packets, with every check that needs no more than the packet itself.

Topic names and filters are taken as strings: the session asks `topics`, since a bad filter may have
its own answer in SUBACK. The direction (who may send what) and everything that depends on earlier
packets is the session's too.

MQTT 3.1 calls the flag bits of most packets "not used" instead of reserved, and so they are ignored
there.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.errors import MalformedPacket, ProtocolViolation
from headgate.wire import fields
from headgate.wire.kinds import PacketType, Version
from headgate.wire.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
    Will,
)
from headgate.wire.properties import WILL, Properties, decode_properties
from headgate.wire.reasons import ALLOWED, Reason

_PROTOCOLS = {("MQIsdp", 3): Version.V31, ("MQTT", 4): Version.V311, ("MQTT", 5): Version.V5}

MOST_FILTERS = 5_000
"""In one SUBSCRIBE or UNSUBSCRIBE: more take longer to read than others should wait."""

# How nearly every CONNECT begins: protocol name and level in one look.
_OPENINGS = {b"\x00\x04MQTT\x04": Version.V311, b"\x00\x04MQTT\x05": Version.V5}


def decode(first: int, body: bytes, version: Version) -> Packet:
    """The packet with the header byte `first` and what follows its remaining length.

    CONNECT carries its own version; every other packet is read as `version` says.
    """
    kind = first >> 4
    reader = _READERS.get(kind)
    if reader is None or (kind == PacketType.AUTH and version is not Version.V5):
        raise MalformedPacket(f"packet type {kind} is reserved")
    return reader(first & 0x0F, body, version)


def _check_flags(flags: int, expected: int, version: Version) -> None:
    if flags != expected and version is not Version.V31:  # [MQTT-2.1.3-1]
        raise MalformedPacket(f"the header flags are {flags:04b}, not {expected:04b}")


def _check_end(body: bytes, pos: int) -> None:
    if pos != len(body):
        raise MalformedPacket(f"{len(body) - pos} bytes follow the end of the packet")


def _check_reason(reason: int, kind: PacketType) -> int:
    if reason not in ALLOWED[kind]:
        raise ProtocolViolation(f"0x{reason:02X} is not a reason code of {kind.name}")
    return reason


def _read_packet_id(body: bytes) -> tuple[int, int]:
    packet_id, pos = fields.read_uint16(body, 0)
    return _check_packet_id(packet_id), pos


def _check_packet_id(packet_id: int) -> int:
    if packet_id == 0:  # [MQTT-2.2.1-3]; 3.1.1: [MQTT-2.3.1-1]
        raise ProtocolViolation("the packet identifier is 0")
    return packet_id


def _read_properties(body: bytes, pos: int, where: int, version: Version) -> tuple[Properties, int]:
    return decode_properties(body, pos, where) if version is Version.V5 else (Properties(), pos)


def _connect(flags: int, body: bytes, _: Version) -> Connect:
    version = _OPENINGS.get(body[:7])
    pos = 7
    if version is None:
        version, pos = _read_protocol(body)
    _check_flags(flags, 0, version)
    bits, pos = fields.read_byte(body, pos)
    _check_connect_flags(bits, version)
    keep_alive, pos = fields.read_uint16(body, pos)
    properties, pos = _read_properties(body, pos, PacketType.CONNECT, version)
    client_id, pos = fields.read_string(body, pos)
    will = None
    if bits & 0x04:
        will, pos = _read_will(bits, body, pos, version)
    username = password = None
    if bits & 0x80 and not _left_out(body, pos, version):
        username, pos = fields.read_string(body, pos)
    if bits & 0x40 and not _left_out(body, pos, version):
        password, pos = fields.read_binary(body, pos)
    _check_end(body, pos)
    return Connect(
        client_id, version, bool(bits & 0x02), keep_alive, username, password, will, properties
    )


def _read_protocol(body: bytes) -> tuple[Version, int]:
    name, pos = fields.read_string(body, 0)
    level, pos = fields.read_byte(body, pos)
    version = _PROTOCOLS.get((name, level))
    if version is None:  # [MQTT-3.1.2-1] and [MQTT-3.1.2-2]
        raise ProtocolViolation(
            f"the protocol {name!r} at level {level} is not supported",
            Reason.UNSUPPORTED_PROTOCOL_VERSION,
        )
    return version, pos


def _left_out(body: bytes, pos: int, version: Version) -> bool:
    # MQTT 3.1 §3.1: the remaining length takes precedence over the user name and password flags.
    return version is Version.V31 and pos == len(body)


def _check_connect_flags(bits: int, version: Version) -> None:
    if bits & 0x18 == 0x18 and (bits & 0x04 or version is not Version.V31):  # [MQTT-3.1.2-12]
        raise MalformedPacket("the will QoS is 3")
    if version is not Version.V5 and bits & 0xC0 == 0x40:  # 3.1.1: [MQTT-3.1.2-22]
        raise MalformedPacket("a password without a user name")
    if version is Version.V31:
        return
    if bits & 0x01:  # [MQTT-3.1.2-3]
        raise MalformedPacket("the reserved bit of the connect flags is set")
    if not bits & 0x04 and bits & 0x38:  # [MQTT-3.1.2-11] and [MQTT-3.1.2-13]
        raise MalformedPacket("a will QoS or will retain without a will")


def _read_will(bits: int, body: bytes, pos: int, version: Version) -> tuple[Will, int]:
    properties, pos = _read_properties(body, pos, WILL, version)
    topic, pos = fields.read_string(body, pos)
    payload, pos = fields.read_binary(body, pos)
    return Will(topic, payload, bits >> 3 & 0x03, bool(bits & 0x20), properties), pos


def _connack(flags: int, body: bytes, version: Version) -> Connack:
    _check_flags(flags, 0, version)
    bits, pos = fields.read_byte(body, 0)
    reason, pos = fields.read_byte(body, pos)
    if version is Version.V31:
        bits = 0
    if bits > 1:  # [MQTT-3.2.2-1]
        raise MalformedPacket("reserved bits of the connect acknowledge flags are set")
    if bits and reason:  # [MQTT-3.2.2-6]; 3.1.1: [MQTT-3.2.2-4]
        raise ProtocolViolation("a refused connection has no session")
    if version is Version.V5:
        _check_reason(reason, PacketType.CONNACK)
    elif reason > 5:
        raise ProtocolViolation(f"the return code {reason} is reserved")
    properties, pos = _read_properties(body, pos, PacketType.CONNACK, version)
    _check_end(body, pos)
    return Connack(bits == 1, reason, properties)


def _publish(flags: int, body: bytes, version: Version) -> Publish:
    qos = flags >> 1 & 0x03
    dup = flags >= 0x08
    if qos == 3:  # [MQTT-3.3.1-4]
        raise MalformedPacket("the QoS is 3")
    if dup and qos == 0:  # [MQTT-3.3.1-2]
        raise MalformedPacket("DUP is set at QoS 0")
    topic, pos = fields.read_string(body, 0)
    packet_id = 0
    if qos:
        packet_id, pos = fields.read_uint16(body, pos)
        _check_packet_id(packet_id)
    properties, pos = _read_properties(body, pos, PacketType.PUBLISH, version)
    if not topic and version is Version.V5 and properties.topic_alias is None:  # §3.3.2.1
        raise ProtocolViolation("neither a topic name nor a topic alias")
    return Publish(topic, body[pos:], qos, bool(flags & 0x01), dup, packet_id, properties)


def _acknowledgement(
    kind: PacketType, make: Callable[[int, int, Properties], Acknowledgement], expected: int = 0
) -> Callable[[int, bytes, Version], Acknowledgement]:
    def read(flags: int, body: bytes, version: Version) -> Acknowledgement:
        _check_flags(flags, expected, version)
        packet_id, pos = _read_packet_id(body)
        reason, properties = 0, Properties()
        if version is Version.V5:
            reason, properties, pos = _read_short(body, pos, kind)
        _check_end(body, pos)
        return make(packet_id, reason, properties)

    return read


def _read_short(body: bytes, pos: int, kind: PacketType) -> tuple[int, Properties, int]:
    """Reason and properties, each of which may be missing at the end (§3.4.2.1, §3.14.2.1)."""
    if pos == len(body):
        return 0, Properties(), pos
    reason = _check_reason(body[pos], kind)
    pos += 1
    if pos == len(body):
        return reason, Properties(), pos
    properties, pos = decode_properties(body, pos, kind)
    return reason, properties, pos


def _subscribe(flags: int, body: bytes, version: Version) -> Subscribe:
    _check_flags(flags, 0b0010, version)  # [MQTT-3.8.1-1]
    packet_id, pos = _read_packet_id(body)
    properties, pos = _read_properties(body, pos, PacketType.SUBSCRIBE, version)
    filters = []
    while pos < len(body):
        topic_filter, pos = fields.read_string(body, pos)
        bits, pos = fields.read_byte(body, pos)
        options = _read_options(bits, version)
        if options.no_local and topic_filter.startswith("$share/"):  # [MQTT-3.8.3-4]
            raise ProtocolViolation("No Local on a shared subscription")
        filters.append((topic_filter, options))
        if len(filters) > MOST_FILTERS:
            raise ProtocolViolation(f"a packet has more than {MOST_FILTERS} filters", 0x97)
    if not filters:  # [MQTT-3.8.3-2]; 3.1.1: [MQTT-3.8.3-3]
        raise ProtocolViolation("SUBSCRIBE without a filter")
    return Subscribe(packet_id, filters, properties)


def _read_options(bits: int, version: Version) -> SubscriptionOptions:
    if version is Version.V31:
        bits &= 0x03
    if bits & (0xC0 if version is Version.V5 else 0xFC):  # [MQTT-3.8.3-5]; 3.1.1: [MQTT-3-8.3-4]
        raise MalformedPacket("reserved bits of the subscription options are set")
    qos = bits & 0x03
    retain_handling = bits >> 4
    if qos == 3:
        if version is Version.V5:  # §3.8.3.1 calls it a protocol error, 3.1.1 malformed
            raise ProtocolViolation("the requested QoS is 3")
        raise MalformedPacket("the requested QoS is 3")
    if retain_handling == 3:
        raise ProtocolViolation("the retain handling is 3")
    return SubscriptionOptions(qos, bool(bits & 0x04), bool(bits & 0x08), retain_handling)


def _suback(flags: int, body: bytes, version: Version) -> Suback:
    _check_flags(flags, 0, version)
    packet_id, pos = _read_packet_id(body)
    properties, pos = _read_properties(body, pos, PacketType.SUBACK, version)
    reasons = list(body[pos:])
    if not reasons:  # [MQTT-3.8.4-6]
        raise ProtocolViolation("SUBACK without a reason code")
    for reason in reasons:
        if version is Version.V5:
            _check_reason(reason, PacketType.SUBACK)
        elif reason not in (0, 1, 2, 0x80):  # 3.1.1: [MQTT-3.9.3-2]
            raise ProtocolViolation(f"the return code 0x{reason:02X} is reserved")
    return Suback(packet_id, reasons, properties)


def _unsubscribe(flags: int, body: bytes, version: Version) -> Unsubscribe:
    _check_flags(flags, 0b0010, version)  # [MQTT-3.10.1-1]
    packet_id, pos = _read_packet_id(body)
    properties, pos = _read_properties(body, pos, PacketType.UNSUBSCRIBE, version)
    filters = []
    while pos < len(body):
        topic_filter, pos = fields.read_string(body, pos)
        filters.append(topic_filter)
        if len(filters) > MOST_FILTERS:
            raise ProtocolViolation(f"a packet has more than {MOST_FILTERS} filters", 0x97)
    if not filters:  # [MQTT-3.10.3-2]
        raise ProtocolViolation("UNSUBSCRIBE without a filter")
    return Unsubscribe(packet_id, filters, properties)


def _unsuback(flags: int, body: bytes, version: Version) -> Unsuback:
    _check_flags(flags, 0, version)
    packet_id, pos = _read_packet_id(body)
    if version is not Version.V5:
        _check_end(body, pos)
        return Unsuback(packet_id)
    properties, pos = decode_properties(body, pos, PacketType.UNSUBACK)
    reasons = [_check_reason(reason, PacketType.UNSUBACK) for reason in body[pos:]]
    if not reasons:  # §3.11.3
        raise ProtocolViolation("UNSUBACK without a reason code")
    return Unsuback(packet_id, reasons, properties)


def _pingreq(flags: int, body: bytes, version: Version) -> Pingreq:
    _check_flags(flags, 0, version)
    _check_end(body, 0)
    return Pingreq()


def _pingresp(flags: int, body: bytes, version: Version) -> Pingresp:
    _check_flags(flags, 0, version)
    _check_end(body, 0)
    return Pingresp()


def _disconnect(flags: int, body: bytes, version: Version) -> Disconnect:
    _check_flags(flags, 0, version)  # [MQTT-3.14.1-1]
    reason, properties, pos = 0, Properties(), 0
    if version is Version.V5:
        reason, properties, pos = _read_short(body, 0, PacketType.DISCONNECT)
    _check_end(body, pos)
    return Disconnect(reason, properties)


def _auth(flags: int, body: bytes, version: Version) -> Auth:
    _check_flags(flags, 0, version)  # [MQTT-3.15.1-1]
    if not body:
        return Auth()
    reason = _check_reason(body[0], PacketType.AUTH)
    properties, pos = decode_properties(body, 1, PacketType.AUTH)
    _check_end(body, pos)
    return Auth(reason, properties)


_READERS: dict[int, Callable[[int, bytes, Version], Packet]] = {
    PacketType.CONNECT: _connect,
    PacketType.CONNACK: _connack,
    PacketType.PUBLISH: _publish,
    PacketType.PUBACK: _acknowledgement(PacketType.PUBACK, Puback),
    PacketType.PUBREC: _acknowledgement(PacketType.PUBREC, Pubrec),
    PacketType.PUBREL: _acknowledgement(PacketType.PUBREL, Pubrel, 0b0010),  # [MQTT-3.6.1-1]
    PacketType.PUBCOMP: _acknowledgement(PacketType.PUBCOMP, Pubcomp),
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.SUBACK: _suback,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.UNSUBACK: _unsuback,
    PacketType.PINGREQ: _pingreq,
    PacketType.PINGRESP: _pingresp,
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
