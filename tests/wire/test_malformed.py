"""Packets that must be refused: which clause, with which reason code, and for which stated reason.

Each row is a whole packet that differs from a legal one in one place. The complaint is checked too,
lest a row be refused for something else than it is about.
"""

from __future__ import annotations

import pytest

from headgate.errors import MalformedPacket, MqttError, ProtocolViolation
from headgate.wire.codec import Decoder, decode
from headgate.wire.fields import encode_varint
from headgate.wire.packets import PacketType, Version
from headgate.wire.reasons import ALLOWED, Reason

V31, V311, V5 = Version
MALFORMED, PROTOCOL, VERSION = 0x81, 0x82, 0x84

MQTT = "0004 4d515454"
MQISDP = "0006 4d5149736470"
ID = "0001 63"  # client id c
A = "0001 61"  # topic or filter a

# clause and what is wrong, version, first byte, body, reason code, complaint
ROWS: list[tuple[str, Version, int, str, int, str]] = [
    # The fixed header
    ("2.1.2 packet type 0", V5, 0x00, "", MALFORMED, "type 0 is reserved"),
    ("2.1.2 packet type 0, 3.1.1", V311, 0x00, "", MALFORMED, "type 0 is reserved"),
    ("2.1.2 AUTH in 3.1.1", V311, 0xF0, "", MALFORMED, "type 15 is reserved"),
    ("2.1.2 AUTH in 3.1", V31, 0xF0, "", MALFORMED, "type 15 is reserved"),
    ("MQTT-2.1.3-1 CONNACK flags", V5, 0x21, "00 00 00", MALFORMED, "flags are 0001"),
    ("MQTT-2.1.3-1 PUBACK flags", V5, 0x42, "0001", MALFORMED, "flags are 0010"),
    ("MQTT-2.1.3-1 PUBREC flags", V311, 0x58, "0001", MALFORMED, "flags are 1000"),
    ("MQTT-3.6.1-1 PUBREL flags", V5, 0x60, "0001", MALFORMED, "flags are 0000, not 0010"),
    ("MQTT-3.6.1-1 PUBREL flags, 3.1.1", V311, 0x6A, "0001", MALFORMED, "flags are 1010"),
    ("MQTT-2.1.3-1 PUBCOMP flags", V5, 0x72, "0001", MALFORMED, "flags are 0010"),
    ("MQTT-3.8.1-1 SUBSCRIBE flags", V5, 0x80, f"0001 00 {A} 00", MALFORMED, "not 0010"),
    ("MQTT-3.8.1-1 SUBSCRIBE flags, 3.1.1", V311, 0x83, f"0001 {A} 00", MALFORMED, "not 0010"),
    ("MQTT-2.1.3-1 SUBACK flags", V5, 0x91, "0001 00 00", MALFORMED, "flags are 0001"),
    ("MQTT-3.10.1-1 UNSUBSCRIBE flags", V5, 0xA0, f"0001 00 {A}", MALFORMED, "not 0010"),
    ("MQTT-2.1.3-1 UNSUBACK flags", V5, 0xB4, "0001 00 00", MALFORMED, "flags are 0100"),
    ("MQTT-2.1.3-1 PINGREQ flags", V5, 0xC1, "", MALFORMED, "flags are 0001"),
    ("MQTT-2.1.3-1 PINGRESP flags", V311, 0xD2, "", MALFORMED, "flags are 0010"),
    ("MQTT-3.14.1-1 DISCONNECT flags", V5, 0xE1, "", MALFORMED, "flags are 0001"),
    ("MQTT-3.15.1-1 AUTH flags", V5, 0xF1, "", MALFORMED, "flags are 0001"),
    # CONNECT
    ("MQTT-2.1.3-1 CONNECT flags", V5, 0x11, f"{MQTT} 05 02 0000 00 {ID}", MALFORMED, "flags"),
    ("MQTT-3.1.2-1 name mqtt", V5, 0x10, f"0004 6d717474 05 02 0000 00 {ID}", VERSION, "'mqtt'"),
    ("MQTT-3.1.2-1 name empty", V5, 0x10, f"0000 04 02 0000 {ID}", VERSION, "not supported"),
    ("MQTT-3.1.2-1 MQIsdp, level 4", V5, 0x10, f"{MQISDP} 04 02 0000 {ID}", VERSION, "level 4"),
    ("MQTT-3.1.2-2 MQTT, level 3", V5, 0x10, f"{MQTT} 03 02 0000 {ID}", VERSION, "level 3"),
    ("MQTT-3.1.2-2 level 6", V5, 0x10, f"{MQTT} 06 02 0000 00 {ID}", VERSION, "level 6"),
    ("MQTT-3.1.2-2 level 0x84", V5, 0x10, f"{MQTT} 84 02 0000 {ID}", VERSION, "level 132"),
    ("MQTT-1.5.4-1 name not UTF-8", V5, 0x10, "0001 ff 05 02 0000 00 0000", MALFORMED, "not UTF-8"),
    (
        "MQTT-3.1.2-3 reserved bit",
        V5,
        0x10,
        f"{MQTT} 05 03 0000 00 {ID}",
        MALFORMED,
        "reserved bit",
    ),
    (
        "MQTT-3.1.2-3 reserved bit, 3.1.1",
        V5,
        0x10,
        f"{MQTT} 04 03 0000 {ID}",
        MALFORMED,
        "reserved",
    ),
    (
        "MQTT-3.1.2-11 will QoS, no will",
        V5,
        0x10,
        f"{MQTT} 05 0a 0000 00 {ID}",
        MALFORMED,
        "without a",
    ),
    (
        "MQTT-3.1.2-13 will retain, no will",
        V5,
        0x10,
        f"{MQTT} 04 22 0000 {ID}",
        MALFORMED,
        "without a",
    ),
    (
        "MQTT-3.1.2-12 will QoS 3",
        V5,
        0x10,
        f"{MQTT} 05 1e 0000 00 {ID} 00 {A} 0000",
        MALFORMED,
        "will QoS is 3",
    ),
    (
        "3.1 will QoS 3",
        V5,
        0x10,
        f"{MQISDP} 03 1e 0000 {ID} {A} 0000",
        MALFORMED,
        "will QoS is 3",
    ),
    (
        "MQTT-3.1.2-22 password alone, 3.1.1",
        V5,
        0x10,
        f"{MQTT} 04 42 0000 {ID} 0001 70",
        MALFORMED,
        "without a user name",
    ),
    (
        "3.1 password alone",
        V5,
        0x10,
        f"{MQISDP} 03 42 0000 {ID} 0001 70",
        MALFORMED,
        "without a user name",
    ),
    ("MQTT-3.1.2-17 no user name", V5, 0x10, f"{MQTT} 04 82 0000 {ID}", MALFORMED, "ends inside"),
    ("MQTT-3.1.2-19 no password", V5, 0x10, f"{MQTT} 05 42 0000 00 {ID}", MALFORMED, "ends inside"),
    ("MQTT-3.1.2-9 no will topic", V5, 0x10, f"{MQTT} 04 06 0000 {ID}", MALFORMED, "ends inside"),
    (
        "MQTT-3.1.2-9 no will payload",
        V5,
        0x10,
        f"{MQTT} 04 06 0000 {ID} {A}",
        MALFORMED,
        "ends inside",
    ),
    ("MQTT-3.1.3-3 no client id", V5, 0x10, f"{MQTT} 04 02 0000", MALFORMED, "ends inside"),
    (
        "MQTT-3.1.3-4 client id not UTF-8",
        V5,
        0x10,
        f"{MQTT} 04 02 0000 0002 c328",
        MALFORMED,
        "not UTF-8",
    ),
    (
        "MQTT-1.5.4-2 U+0000 in the client id",
        V5,
        0x10,
        f"{MQTT} 04 02 0000 0001 00",
        MALFORMED,
        "U\\+0000",
    ),
    (
        "MQTT-3.1.3-11 will topic not UTF-8",
        V5,
        0x10,
        f"{MQTT} 04 06 0000 {ID} 0001 ff 0000",
        MALFORMED,
        "not UTF-8",
    ),
    (
        "MQTT-3.1.3-12 user name not UTF-8",
        V5,
        0x10,
        f"{MQTT} 04 82 0000 {ID} 0003 eda080",
        MALFORMED,
        "not UTF-8",
    ),
    (
        "MQTT-3.1.2-16 user name without its flag",
        V5,
        0x10,
        f"{MQTT} 04 02 0000 {ID} 0001 75",
        MALFORMED,
        "3 bytes follow",
    ),
    (
        "3.1.2.11.3 receive maximum 0",
        V5,
        0x10,
        f"{MQTT} 05 02 0000 03 21 0000 {ID}",
        PROTOCOL,
        "receive_maximum is 0",
    ),
    (
        "3.1.2.11.10 authentication data without method",
        V5,
        0x10,
        f"{MQTT} 05 02 0000 03 16 0000 {ID}",
        PROTOCOL,
        "without a method",
    ),
    (
        "2.2.2.2 will delay outside the will",
        V5,
        0x10,
        f"{MQTT} 05 02 0000 05 18 00000001 {ID}",
        MALFORMED,
        "0x18 may not stand in CONNECT",
    ),
    (
        "2.2.2.2 topic alias in the will",
        V5,
        0x10,
        f"{MQTT} 05 06 0000 00 {ID} 03 23 0001 {A} 0000",
        MALFORMED,
        "0x23 may not stand in a will",
    ),
    ("MQTT-2.2.2-1 no property length", V5, 0x10, f"{MQTT} 05 02 0000", MALFORMED, "variable"),
    # CONNACK
    ("MQTT-3.2.2-1 reserved flags", V5, 0x20, "02 00 00", MALFORMED, "reserved bits"),
    ("MQTT-3.2.2-1 reserved flags, 3.1.1", V311, 0x20, "80 00", MALFORMED, "reserved bits"),
    ("MQTT-3.2.2-6 refused with session", V5, 0x20, "01 87 00", PROTOCOL, "no session"),
    ("MQTT-3.2.2-4 refused with session, 3.1.1", V311, 0x20, "01 05", PROTOCOL, "no session"),
    ("MQTT-3.2.2-8 reason of another packet", V5, 0x20, "00 8e 00", PROTOCOL, "0x8E is not"),
    ("3.2.2.3 return code 6, 3.1.1", V311, 0x20, "00 06", PROTOCOL, "return code 6"),
    ("3.2.2 trailing byte, 3.1.1", V311, 0x20, "00 00 00", MALFORMED, "1 bytes follow"),
    ("3.2 empty", V5, 0x20, "", MALFORMED, "ends where a byte"),
    # PUBLISH
    ("MQTT-3.3.1-4 QoS 3", V5, 0x36, f"{A} 0001 00", MALFORMED, "QoS is 3"),
    ("MQTT-3.3.1-4 QoS 3, 3.1.1", V311, 0x36, f"{A} 0001", MALFORMED, "QoS is 3"),
    ("MQTT-3.3.1-2 DUP at QoS 0", V5, 0x38, f"{A} 00", MALFORMED, "DUP is set"),
    ("MQTT-2.2.1-3 identifier 0", V5, 0x32, f"{A} 0000 00", PROTOCOL, "identifier is 0"),
    ("MQTT-2.3.1-1 identifier 0, 3.1.1", V311, 0x34, f"{A} 0000", PROTOCOL, "identifier is 0"),
    ("MQTT-3.3.2-1 no topic", V311, 0x30, "", MALFORMED, "ends inside"),
    ("MQTT-3.3.2-1 topic cut", V311, 0x30, "0002 61", MALFORMED, "ends inside a field of 2"),
    ("MQTT-3.3.2-1 topic not UTF-8", V311, 0x30, "0001 ff", MALFORMED, "not UTF-8"),
    ("MQTT-1.5.4-2 U+0000 in the topic", V311, 0x30, "0003 610062", MALFORMED, "U\\+0000"),
    ("MQTT-2.2.1 no identifier", V311, 0x32, f"{A} 00", MALFORMED, "ends inside"),
    ("3.3.2.1 neither topic nor alias", V5, 0x30, "0000 00", PROTOCOL, "neither a topic"),
    ("MQTT-3.3.2-8 topic alias 0", V5, 0x30, f"{A} 03 23 0000", 0x94, "topic_alias is 0"),
    ("3.3.2.3.8 identifier 0", V5, 0x30, f"{A} 02 0b 00", PROTOCOL, "identifiers is 0"),
    ("3.3.2.3.2 payload format 2", V5, 0x30, f"{A} 02 01 02", PROTOCOL, "payload_format is 2"),
    (
        "3.3.2.3.4 topic alias twice",
        V5,
        0x30,
        f"{A} 06 23 0001 23 0001",
        PROTOCOL,
        "more than once",
    ),
    ("2.2.2.1 property length too long", V5, 0x30, f"{A} 03 0101", MALFORMED, "beyond the packet"),
    ("2.2.2.2 unknown property", V5, 0x30, f"{A} 02 7e 00", MALFORMED, "0x7E may not stand"),
    # The acknowledgements
    ("MQTT-2.2.1-5 PUBACK identifier 0", V5, 0x40, "0000", PROTOCOL, "identifier is 0"),
    ("MQTT-2.2.1-5 PUBREL identifier 0", V311, 0x62, "0000", PROTOCOL, "identifier is 0"),
    ("3.4.2 PUBACK cut", V311, 0x40, "00", MALFORMED, "ends inside a two byte"),
    ("3.4.2 PUBACK with a reason, 3.1.1", V311, 0x40, "0001 00", MALFORMED, "1 bytes follow"),
    ("3.4.2 PUBACK trailing byte", V5, 0x40, "0001 00 00 00", MALFORMED, "1 bytes follow"),
    ("MQTT-3.4.2-1 PUBACK reason", V5, 0x40, "0001 92", PROTOCOL, "0x92 is not a reason"),
    ("MQTT-3.5.2-1 PUBREC reason", V5, 0x50, "0001 01", PROTOCOL, "0x01 is not a reason"),
    ("MQTT-3.6.2-1 PUBREL reason", V5, 0x62, "0001 80", PROTOCOL, "0x80 is not a reason"),
    ("MQTT-3.7.2-1 PUBCOMP reason", V5, 0x70, "0001 10", PROTOCOL, "0x10 is not a reason"),
    (
        "3.4.2.2.2 PUBACK reason string twice",
        V5,
        0x40,
        "0001 00 06 1f 0000 1f 0000",
        PROTOCOL,
        "more than once",
    ),
    # SUBSCRIBE
    ("MQTT-3.8.3-2 no filter", V5, 0x82, "0001 00", PROTOCOL, "SUBSCRIBE without"),
    ("MQTT-3.8.3-3 no filter, 3.1.1", V311, 0x82, "0001", PROTOCOL, "SUBSCRIBE without"),
    (
        "MQTT-2.2.1-3 SUBSCRIBE identifier 0",
        V5,
        0x82,
        f"0000 00 {A} 00",
        PROTOCOL,
        "identifier is 0",
    ),
    ("MQTT-3.8.3-5 reserved bit 6", V5, 0x82, f"0001 00 {A} 40", MALFORMED, "reserved bits"),
    ("MQTT-3.8.3-5 reserved bit 7", V5, 0x82, f"0001 00 {A} 80", MALFORMED, "reserved bits"),
    ("MQTT-3-8.3-4 reserved bit 2, 3.1.1", V311, 0x82, f"0001 {A} 04", MALFORMED, "reserved bits"),
    ("MQTT-3-8.3-4 QoS 3, 3.1.1", V311, 0x82, f"0001 {A} 03", MALFORMED, "QoS is 3"),
    ("3.1 QoS 3", V31, 0x82, f"0001 {A} 03", MALFORMED, "QoS is 3"),
    ("3.8.3.1 QoS 3", V5, 0x82, f"0001 00 {A} 03", PROTOCOL, "QoS is 3"),
    ("3.8.3.1 retain handling 3", V5, 0x82, f"0001 00 {A} 30", PROTOCOL, "handling is 3"),
    (
        "MQTT-3.8.3-4 No Local on a shared subscription",
        V5,
        0x82,
        "0001 00 000a 2473686172652f672f61 04",
        PROTOCOL,
        "No Local",
    ),
    ("3.8.3 no options", V311, 0x82, f"0001 {A}", MALFORMED, "ends where a byte"),
    ("MQTT-3.8.3-1 filter not UTF-8", V311, 0x82, "0001 0001 ff 00", MALFORMED, "not UTF-8"),
    ("3.8.2.1.2 identifier 0", V5, 0x82, f"0001 02 0b 00 {A} 00", PROTOCOL, "identifiers is 0"),
    (
        "3.8.2.1.2 two identifiers",
        V5,
        0x82,
        f"0001 04 0b 01 0b 02 {A} 00",
        PROTOCOL,
        "more than once",
    ),
    # SUBACK
    ("MQTT-3.8.4-6 SUBACK without reasons", V5, 0x90, "0001 00", PROTOCOL, "SUBACK without"),
    ("MQTT-3.9.3-2 SUBACK reason", V5, 0x90, "0001 00 00 03", PROTOCOL, "0x03 is not a reason"),
    ("MQTT-3.9.3-2 SUBACK code, 3.1.1", V311, 0x90, "0001 87", PROTOCOL, "code 0x87 is reserved"),
    ("MQTT-2.2.1-6 SUBACK identifier 0", V311, 0x90, "0000 00", PROTOCOL, "identifier is 0"),
    # UNSUBSCRIBE and UNSUBACK
    ("MQTT-3.10.3-2 no filter", V5, 0xA2, "0001 00", PROTOCOL, "UNSUBSCRIBE without"),
    ("MQTT-3.10.3-2 no filter, 3.1.1", V311, 0xA2, "0001", PROTOCOL, "UNSUBSCRIBE without"),
    ("MQTT-3.10.3-1 filter not UTF-8", V311, 0xA2, "0001 0001 80", MALFORMED, "not UTF-8"),
    ("MQTT-2.2.1-3 UNSUBSCRIBE identifier 0", V311, 0xA2, f"0000 {A}", PROTOCOL, "identifier is 0"),
    ("3.11.3 UNSUBACK without reasons", V5, 0xB0, "0001 00", PROTOCOL, "UNSUBACK without"),
    ("MQTT-3.11.3-2 UNSUBACK reason", V5, 0xB0, "0001 00 01", PROTOCOL, "0x01 is not a reason"),
    ("3.11 UNSUBACK with reasons, 3.1.1", V311, 0xB0, "0001 00", MALFORMED, "1 bytes follow"),
    # PINGREQ, PINGRESP, DISCONNECT, AUTH
    ("3.12.1 PINGREQ with a body", V5, 0xC0, "00", MALFORMED, "1 bytes follow"),
    ("3.13.1 PINGRESP with a body", V311, 0xD0, "0000", MALFORMED, "2 bytes follow"),
    ("3.14 DISCONNECT with a reason, 3.1.1", V311, 0xE0, "00", MALFORMED, "1 bytes follow"),
    ("MQTT-3.14.2-1 DISCONNECT reason", V5, 0xE0, "01", PROTOCOL, "0x01 is not a reason"),
    ("3.14.2 DISCONNECT trailing byte", V5, 0xE0, "00 00 00", MALFORMED, "1 bytes follow"),
    ("MQTT-3.15.2-1 AUTH reason", V5, 0xF0, "80 00", PROTOCOL, "0x80 is not a reason"),
    ("3.15.2.2 AUTH without properties", V5, 0xF0, "18", MALFORMED, "variable byte integer"),
    ("3.15.2 AUTH trailing byte", V5, 0xF0, "00 00 00", MALFORMED, "1 bytes follow"),
]


def test_each_row_has_its_own_name() -> None:
    assert len({name for name, *_ in ROWS}) == len(ROWS)


@pytest.mark.parametrize(
    ("version", "first", "body", "reason", "complaint"),
    [pytest.param(*rest, id=name) for name, *rest in ROWS],
)
def test_packet_is_refused(
    version: Version, first: int, body: str, reason: int, complaint: str
) -> None:
    raw = bytes.fromhex(body)
    with pytest.raises(MqttError, match=complaint) as caught:
        Decoder(version).feed(bytes([first]) + encode_varint(len(raw)) + raw)
    assert caught.value.reason == reason
    assert isinstance(caught.value, MalformedPacket if reason == 0x81 else ProtocolViolation)


@pytest.mark.parametrize("kind", list(ALLOWED), ids=lambda kind: kind.name)
def test_each_reason_code_stands_only_in_its_packets(kind: PacketType) -> None:
    first = kind << 4 | (0b0010 if kind is PacketType.PUBREL else 0)
    head, tail = {
        PacketType.CONNACK: (b"\x00", b"\x00"),
        PacketType.SUBACK: (b"\x00\x01\x00", b""),
        PacketType.UNSUBACK: (b"\x00\x01\x00", b""),
        PacketType.DISCONNECT: (b"", b""),
        PacketType.AUTH: (b"", b"\x00"),
    }.get(kind, (b"\x00\x01", b""))
    accepted = set()
    for code in range(256):
        try:
            decode(first, head + bytes([code]) + tail, V5)
        except ProtocolViolation as error:
            assert error.reason == Reason.PROTOCOL_ERROR
        else:
            accepted.add(code)
    assert accepted == ALLOWED[kind]
