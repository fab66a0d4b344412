"""The data types of MQTT 5 §1.5."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import MalformedPacket
from headgate.wire import fields

from .strategies import binaries, bounded, texts

# Table 1-1 and its boundaries.
VARINTS = [
    (0, "00"),
    (127, "7f"),
    (128, "8001"),
    (16_383, "ff7f"),
    (16_384, "808001"),
    (2_097_151, "ffff7f"),
    (2_097_152, "80808001"),
    (268_435_455, "ffffff7f"),
]


@pytest.mark.parametrize(("number", "encoded"), VARINTS)
def test_varint_is_that_of_table_1_1(number: int, encoded: str) -> None:
    raw = bytes.fromhex(encoded)
    assert fields.encode_varint(number) == raw
    assert fields.read_varint(b"\xff" + raw + b"\xff", 1) == (number, 1 + len(raw))


@bounded
@given(st.integers(0, fields.MAXIMUM_VARINT))
def test_varint_survives(number: int) -> None:
    raw = fields.encode_varint(number)
    assert fields.read_varint(raw, 0) == (number, len(raw))


@pytest.mark.parametrize(
    ("encoded", "complaint"),
    [
        ("", "ends inside a variable"),
        ("80", "ends inside a variable"),
        ("ffffff", "ends inside a variable"),
        ("8000", "longer than its value needs"),  # [MQTT-1.5.5-1]
        ("80808000", "longer than its value needs"),
        ("8080808001", "more than four bytes"),
        ("ffffffff7f", "more than four bytes"),
    ],
)
def test_bad_varint_is_malformed(encoded: str, complaint: str) -> None:
    with pytest.raises(MalformedPacket, match=complaint):
        fields.read_varint(bytes.fromhex(encoded), 0)


def test_string_example_of_the_specification() -> None:
    """Figure 1-2: A and U+2A6D4."""
    raw = bytes.fromhex("000541f0aa9b94")
    assert fields.encode_string("A\U0002a6d4") == raw
    assert fields.read_string(raw, 0) == ("A\U0002a6d4", 7)


def test_byte_order_mark_stays() -> None:
    """[MQTT-1.5.4-3]."""
    assert fields.validate_utf8(b"\xef\xbb\xbfa") == "\ufeffa"


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff",
        b"a\x80",
        b"\xc3",
        b"\xc0\xaf",  # "/" in two bytes: an overlong form could hide a topic level
        b"\xe0\x80\xaf",
        b"\xed\xa0\x80",  # U+D800 [MQTT-1.5.4-1]
        b"\xed\xbf\xbf",  # U+DFFF
        b"\xed\xa0\xbd\xed\xb8\x80",  # a surrogate pair, as CESU-8 has it
        b"\xf4\x90\x80\x80",  # beyond U+10FFFF
        b"\xf8\x88\x80\x80\x80",
        b"a\x00b",  # [MQTT-1.5.4-2]
    ],
)
def test_bad_text_is_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedPacket, match="a string"):
        fields.validate_utf8(raw)


@bounded
@given(texts, binaries, st.binary(max_size=3))
def test_string_and_binary_survive(text: str, raw: bytes, rest: bytes) -> None:
    data = fields.encode_string(text) + fields.encode_binary(raw) + rest
    read_text, pos = fields.read_string(data, 0)
    read_raw, end = fields.read_binary(data, pos)
    assert (read_text, read_raw, data[end:]) == (text, raw, rest)


def test_longest_field_has_65535_bytes() -> None:
    longest = "é" * 32_767 + "a"
    assert fields.read_string(fields.encode_string(longest), 0) == (longest, 65_537)
    with pytest.raises(ValueError, match="65536 bytes is longer"):
        fields.encode_string("é" * 32_768)
    with pytest.raises(ValueError, match="65536 bytes is longer"):
        fields.encode_binary(bytes(65_536))


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_text_that_nobody_may_send_is_our_mistake(text: str) -> None:
    with pytest.raises(ValueError):
        fields.encode_string(text)


@pytest.mark.parametrize(
    ("encode", "number"),
    [
        (fields.encode_byte, 256),
        (fields.encode_byte, -1),
        (fields.encode_uint16, 65_536),
        (fields.encode_uint32, 1 << 32),
        (fields.encode_varint, 268_435_456),
        (fields.encode_varint, -1),
    ],
)
def test_number_out_of_range_is_our_mistake(encode, number) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=str(number)):
        encode(number)


@pytest.mark.parametrize(
    ("read", "size"),
    [
        (fields.read_byte, 1),
        (fields.read_uint16, 2),
        (fields.read_uint32, 4),
        (fields.read_binary, 2),
        (fields.read_string, 2),
    ],
)
def test_field_that_the_packet_cuts_is_malformed(read, size) -> None:  # type: ignore[no-untyped-def]
    for length in range(size):
        with pytest.raises(MalformedPacket, match="ends"):
            read(b"x" + bytes(length), 1)
    read(b"x" + bytes(size), 1)


def test_length_beyond_the_packet_is_malformed() -> None:
    with pytest.raises(MalformedPacket, match="ends inside a field of 3 bytes"):
        fields.read_binary(b"\x00\x03ab", 0)
