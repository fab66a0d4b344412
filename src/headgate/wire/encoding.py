"""From packets to bytes. A packet that may not be written is our mistake: `ValueError`."""

from __future__ import annotations

from typing import assert_never

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
)
from headgate.wire.properties import WILL, Properties, encode_properties
from headgate.wire.reasons import connack_v3

_NO_PROPERTIES = b"\x00"


def encode(packet: Packet, version: Version) -> bytes:
    """The complete packet as `version` writes it. CONNECT goes by its own version."""
    match packet:
        case Publish():
            return _frame(PacketType.PUBLISH, _publish(packet, version), _publish_flags(packet))
        case Puback():
            return _frame(PacketType.PUBACK, _acknowledgement(packet, PacketType.PUBACK, version))
        case Pubrec():
            return _frame(PacketType.PUBREC, _acknowledgement(packet, PacketType.PUBREC, version))
        case Pubrel():
            # Bits 3..0 are 0010 [MQTT-3.6.1-1], as in SUBSCRIBE and UNSUBSCRIBE.
            body = _acknowledgement(packet, PacketType.PUBREL, version)
            return _frame(PacketType.PUBREL, body, 0b0010)
        case Pubcomp():
            return _frame(PacketType.PUBCOMP, _acknowledgement(packet, PacketType.PUBCOMP, version))
        case Pingreq():
            return b"\xc0\x00"
        case Pingresp():
            return b"\xd0\x00"
        case Connect():
            return _frame(PacketType.CONNECT, _connect(packet))
        case Connack():
            return _frame(PacketType.CONNACK, _connack(packet, version))
        case Subscribe():
            return _frame(PacketType.SUBSCRIBE, _subscribe(packet, version), 0b0010)
        case Suback():
            return _frame(PacketType.SUBACK, _suback(packet, version))
        case Unsubscribe():
            return _frame(PacketType.UNSUBSCRIBE, _unsubscribe(packet, version), 0b0010)
        case Unsuback():
            return _frame(PacketType.UNSUBACK, _unsuback(packet, version))
        case Disconnect():
            return _frame(PacketType.DISCONNECT, _disconnect(packet, version))
        case Auth():
            return _frame(PacketType.AUTH, _auth(packet, version))
    assert_never(packet)


def _frame(kind: PacketType, body: bytes, flags: int = 0) -> bytes:
    return bytes((kind << 4 | flags,)) + fields.encode_varint(len(body)) + body


def _properties(props: Properties, where: int, version: Version) -> bytes:
    return encode_properties(props, where) if version is Version.V5 else b""


def _packet_id(packet_id: int) -> bytes:
    if packet_id == 0:  # [MQTT-2.2.1-3]
        raise ValueError("a packet identifier must not be 0")
    return fields.encode_uint16(packet_id)


def _check_qos(qos: int) -> int:
    if not 0 <= qos <= 2:  # [MQTT-3.3.1-4]
        raise ValueError(f"a QoS is 0, 1 or 2, not {qos}")
    return qos


def _connect(packet: Connect) -> bytes:
    version = packet.version
    flags = packet.clean_start << 1
    payload = [fields.encode_string(packet.client_id)]
    if packet.will is not None:
        flags |= 0x04 | _check_qos(packet.will.qos) << 3 | packet.will.retain << 5
        payload.append(_properties(packet.will.properties, WILL, version))
        payload.append(fields.encode_string(packet.will.topic))
        payload.append(fields.encode_binary(packet.will.payload))
    if packet.username is not None:
        flags |= 0x80
        payload.append(fields.encode_string(packet.username))
    if packet.password is not None:
        if packet.username is None and version is not Version.V5:  # 3.1.1: [MQTT-3.1.2-22]
            raise ValueError("MQTT 3 has no password without a user name")
        flags |= 0x40
        payload.append(fields.encode_binary(packet.password))
    return b"".join(
        (
            fields.encode_string("MQIsdp" if version is Version.V31 else "MQTT"),
            bytes((version, flags)),
            fields.encode_uint16(packet.keep_alive),
            _properties(packet.properties, PacketType.CONNECT, version),
            *payload,
        )
    )


def _connack(packet: Connack, version: Version) -> bytes:
    if version is Version.V5:
        head = bytes((packet.session_present, packet.reason))
        return head + encode_properties(packet.properties, PacketType.CONNACK)
    # MQTT 3.1 has no Session Present; its byte is reserved.
    present = packet.session_present and version is Version.V311
    return bytes((present, connack_v3(packet.reason)))


def _publish_flags(packet: Publish) -> int:
    if packet.dup and packet.qos == 0:  # [MQTT-3.3.1-2]
        raise ValueError("DUP is for QoS 1 and 2 only")
    return packet.dup << 3 | _check_qos(packet.qos) << 1 | packet.retain


def _publish(packet: Publish, version: Version) -> bytes:
    return b"".join(
        (
            fields.encode_string(packet.topic),
            _packet_id(packet.packet_id) if packet.qos else b"",
            _properties(packet.properties, PacketType.PUBLISH, version),
            packet.payload,
        )
    )


def _acknowledgement(packet: Acknowledgement, kind: PacketType, version: Version) -> bytes:
    body = _packet_id(packet.packet_id)
    if version is not Version.V5:
        return body
    return body + _short(packet.reason, packet.properties, kind)


def _short(reason: int, props: Properties, kind: PacketType) -> bytes:
    """Reason and properties, without what the peer assumes when it is missing (§3.4.2.1)."""
    encoded = encode_properties(props, kind)
    if encoded != _NO_PROPERTIES:
        return bytes((reason,)) + encoded
    return bytes((reason,)) if reason else b""


def _subscribe(packet: Subscribe, version: Version) -> bytes:
    if not packet.filters:  # [MQTT-3.8.3-2]
        raise ValueError("SUBSCRIBE needs a filter")
    body = [
        _packet_id(packet.packet_id),
        _properties(packet.properties, PacketType.SUBSCRIBE, version),
    ]
    for topic_filter, options in packet.filters:
        body.append(fields.encode_string(topic_filter))
        body.append(bytes((_options(options, version),)))
    return b"".join(body)


def _options(options: SubscriptionOptions, version: Version) -> int:
    qos = _check_qos(options.qos)
    if version is not Version.V5:
        return qos
    if not 0 <= options.retain_handling <= 2:
        raise ValueError(f"retain handling is 0, 1 or 2, not {options.retain_handling}")
    return (
        qos
        | options.no_local << 2
        | options.retain_as_published << 3
        | options.retain_handling << 4
    )


def _suback(packet: Suback, version: Version) -> bytes:
    reasons = packet.reasons
    if version is not Version.V5:
        reasons = [min(reason, 0x80) for reason in reasons]  # its only failure [MQTT-3.9.3-2]
    return b"".join(
        (
            _packet_id(packet.packet_id),
            _properties(packet.properties, PacketType.SUBACK, version),
            bytes(reasons),
        )
    )


def _unsubscribe(packet: Unsubscribe, version: Version) -> bytes:
    if not packet.filters:  # [MQTT-3.10.3-2]
        raise ValueError("UNSUBSCRIBE needs a filter")
    return b"".join(
        (
            _packet_id(packet.packet_id),
            _properties(packet.properties, PacketType.UNSUBSCRIBE, version),
            *map(fields.encode_string, packet.filters),
        )
    )


def _unsuback(packet: Unsuback, version: Version) -> bytes:
    head = _packet_id(packet.packet_id)
    if version is not Version.V5:
        return head
    return head + encode_properties(packet.properties, PacketType.UNSUBACK) + bytes(packet.reasons)


def _disconnect(packet: Disconnect, version: Version) -> bytes:
    if version is not Version.V5:
        return b""
    return _short(packet.reason, packet.properties, PacketType.DISCONNECT)


def _auth(packet: Auth, version: Version) -> bytes:
    if version is not Version.V5:
        raise ValueError("AUTH exists in MQTT 5 only")
    props = encode_properties(packet.properties, PacketType.AUTH)
    # Unlike DISCONNECT, AUTH has no form with a reason alone (§3.15.2.1).
    return bytes((packet.reason,)) + props if packet.reason or props != _NO_PROPERTIES else b""
