"""MQTT 5 properties: the table, the places, the ranges."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import MalformedPacket, MqttError, ProtocolViolation
from headgate.wire.fields import encode_varint
from headgate.wire.packets import PacketType
from headgate.wire.properties import (
    TABLE,
    WILL,
    Properties,
    decode_properties,
    encode_properties,
)

from .strategies import bounded, properties

PLACES = [
    *(p for p in PacketType if p not in (PacketType.PINGREQ, PacketType.PINGRESP)),
    WILL,
]
PUBLISH, CONNECT, CONNACK, SUBSCRIBE = (
    PacketType.PUBLISH,
    PacketType.CONNECT,
    PacketType.CONNACK,
    PacketType.SUBSCRIBE,
)

# One legal value of each property, as bytes.
SAMPLES = {
    0x01: "01",
    0x02: "00000001",
    0x03: "0001 61",
    0x08: "0001 61",
    0x09: "0001 ff",
    0x0B: "01",
    0x11: "00000001",
    0x12: "0001 61",
    0x13: "0001",
    0x15: "0001 61",
    0x16: "0001 ff",
    0x17: "01",
    0x18: "00000001",
    0x19: "01",
    0x1A: "0001 61",
    0x1C: "0001 61",
    0x1F: "0001 61",
    0x21: "0001",
    0x22: "0001",
    0x23: "0001",
    0x24: "01",
    0x25: "01",
    0x26: "0001 61 0001 62",
    0x27: "00000001",
    0x28: "01",
    0x29: "01",
    0x2A: "01",
}


def sample(identifier: int) -> bytes:
    return bytes([identifier]) + bytes.fromhex(SAMPLES[identifier])


def listed(*parts: bytes | str) -> bytes:
    """A property list with its length."""
    body = b"".join(bytes.fromhex(part) if isinstance(part, str) else part for part in parts)
    return encode_varint(len(body)) + body


def test_each_field_has_one_row() -> None:
    assert sorted(row.name for row in TABLE) == sorted(f.name for f in fields(Properties))
    assert sorted(row.identifier for row in TABLE) == sorted(SAMPLES)


@bounded
@given(st.data(), st.sampled_from(PLACES), st.binary(max_size=3), st.binary(max_size=3))
def test_properties_survive(data: st.DataObject, where: int, before: bytes, after: bytes) -> None:
    props = data.draw(properties(where))
    raw = encode_properties(props)
    wire = before + raw + after
    assert decode_properties(wire, len(before), where) == (props, len(before) + len(raw))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_property_stands_only_in_its_places(row) -> None:  # type: ignore[no-untyped-def]
    """§2.2.2.2; the places themselves are checked against another implementation's."""
    extra = sample(0x15) if row.identifier == 0x16 else b""
    for where in PLACES:
        if where in row.places:
            props, _ = decode_properties(listed(sample(row.identifier), extra), 0, where)
            assert getattr(props, row.name) not in (None, [])
        else:
            with pytest.raises(MalformedPacket, match="may not stand"):
                decode_properties(listed(sample(row.identifier)), 0, where)
            with pytest.raises(ValueError, match="may not stand"):
                props, _ = decode_properties(
                    listed(sample(row.identifier), extra), 0, min(row.places)
                )
                encode_properties(props, where)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_property_repeats_only_where_it_may(row) -> None:  # type: ignore[no-untyped-def]
    extra = sample(0x15) if row.identifier == 0x16 else b""
    for where in row.places:
        twice = listed(sample(row.identifier), sample(row.identifier), extra)
        if row.name == "user_properties" or (row.identifier, where) == (0x0B, PUBLISH):
            props, _ = decode_properties(twice, 0, where)
            assert len(getattr(props, row.name)) == 2
        else:
            with pytest.raises(ProtocolViolation, match="more than once") as caught:
                decode_properties(twice, 0, where)
            assert caught.value.reason == 0x82


WRONG = [
    ("payload format 2", PUBLISH, "01 02", 0x82),
    ("request problem information 2", CONNECT, "17 02", 0x82),
    ("request response information 255", CONNECT, "19 ff", 0x82),
    ("receive maximum 0", CONNECT, "21 0000", 0x82),
    ("receive maximum 0, server", CONNACK, "21 0000", 0x82),
    ("maximum packet size 0", CONNECT, "27 00000000", 0x82),
    ("maximum QoS 2", CONNACK, "24 02", 0x82),
    ("retain available 2", CONNACK, "25 02", 0x82),
    ("wildcard subscription available 2", CONNACK, "28 02", 0x82),
    ("subscription identifier available 2", CONNACK, "29 02", 0x82),
    ("shared subscription available 2", CONNACK, "2a 02", 0x82),
    ("MQTT-4.7.3-1 response topic empty", PUBLISH, "08 0000", 0x82),
    ("MQTT-4.7.3-1 response topic empty, will", WILL, "08 0000", 0x82),
    ("MQTT-3.3.2-8 topic alias 0", PUBLISH, "23 0000", 0x94),
    ("subscription identifier 0", SUBSCRIBE, "0b 00", 0x82),
    ("subscription identifier 0, server", PUBLISH, "0b 05 0b 00", 0x82),
    ("MQTT-3.3.2-14 wildcard in the response topic", PUBLISH, "08 0003 612f23", 0x82),
    ("MQTT-3.3.2-14 wildcard in the will's response topic", WILL, "08 0001 2b", 0x82),
    ("authentication data without a method", CONNECT, "16 0001 ff", 0x82),
    ("identifier unknown", PUBLISH, "7f 00", 0x81),
    ("identifier of two bytes", PUBLISH, "8001 00", 0x81),
    ("MQTT-1.5.5-1 identifier padded", PUBLISH, "8100 01", 0x81),
    ("MQTT-1.5.5-1 subscription identifier padded", PUBLISH, "0b 8100", 0x81),
    ("subscription identifier of five bytes", PUBLISH, "0b 8080808001", 0x81),
    ("MQTT-1.5.4-1 content type not UTF-8", PUBLISH, "03 0001 ff", 0x81),
    ("MQTT-1.5.4-2 U+0000 in the reason string", CONNACK, "1f 0001 00", 0x81),
    ("MQTT-1.5.7-1 user property not UTF-8", PUBLISH, "26 0001 61 0001 ff", 0x81),
    ("user property without a value", PUBLISH, "26 0001 61", 0x81),
]


@pytest.mark.parametrize(
    ("where", "body", "reason"), [pytest.param(*rest, id=name) for name, *rest in WRONG]
)
def test_wrong_property_is_refused(where: int, body: str, reason: int) -> None:
    with pytest.raises(MqttError) as caught:
        decode_properties(listed(body), 0, where)
    assert caught.value.reason == reason


def test_value_may_not_reach_beyond_the_property_length() -> None:
    """The bytes are there, but they belong to the payload."""
    data = bytes.fromhex("02 01 01  02 00000001")
    assert decode_properties(data, 0, PUBLISH) == (Properties(payload_format=1), 3)
    for length in (1, 4, 5, 6):
        with pytest.raises(MalformedPacket):
            decode_properties(bytes([length]) + data[1:], 0, PUBLISH)
    with pytest.raises(MalformedPacket, match="beyond the property length"):
        decode_properties(bytes.fromhex("03 02 0000 0001"), 0, PUBLISH)


def test_length_may_not_reach_beyond_the_packet() -> None:
    with pytest.raises(MalformedPacket, match="beyond the packet"):
        decode_properties(b"\x03\x01\x01", 0, PUBLISH)


def test_absent_and_zero_are_different() -> None:
    """A session expiry of 0 is said; None is not. So is an empty string."""
    props = Properties(session_expiry=0, auth_method="", auth_data=b"")
    raw = encode_properties(props)
    assert raw.hex(" ") == "0b 11 00 00 00 00 15 00 00 16 00 00"
    assert decode_properties(raw, 0, CONNECT) == (props, len(raw))
    assert encode_properties(Properties()) == b"\x00"


def test_long_list_has_a_long_length() -> None:
    props = Properties(user_properties=[("k" * 40, "v" * 40)] * 3)
    raw = encode_properties(props)
    assert raw[:2] == b"\xff\x01"  # 3 * 85 = 255
    assert decode_properties(raw, 0, PUBLISH) == (props, 257)
