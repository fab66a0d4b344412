"""The data types of MQTT 5 §1.5, read from and written to bytes.

Readers take the data and a position and return the value and the position after it. They raise
`MalformedPacket`, the peer's fault. Writers raise `ValueError`, ours.
"""

from __future__ import annotations

from headgate.errors import MalformedPacket

MAXIMUM_VARINT = 268_435_455
MAXIMUM_LENGTH = 65_535


def read_byte(data: bytes, pos: int) -> tuple[int, int]:
    """One unsigned byte."""
    if pos >= len(data):
        raise MalformedPacket("the packet ends where a byte was expected")
    return data[pos], pos + 1


def read_uint16(data: bytes, pos: int) -> tuple[int, int]:
    """A two byte integer, big-endian."""
    end = pos + 2
    if end > len(data):
        raise MalformedPacket("the packet ends inside a two byte integer")
    return data[pos] << 8 | data[pos + 1], end


def read_uint32(data: bytes, pos: int) -> tuple[int, int]:
    """A four byte integer, big-endian."""
    end = pos + 4
    if end > len(data):
        raise MalformedPacket("the packet ends inside a four byte integer")
    return int.from_bytes(data[pos:end], "big"), end


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """A variable byte integer of one to four bytes, in its shortest form [MQTT-1.5.5-1]."""
    value = shift = 0
    while shift < 28:
        if pos >= len(data):
            raise MalformedPacket("the packet ends inside a variable byte integer")
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                raise MalformedPacket("a variable byte integer is longer than its value needs")
            return value, pos
        shift += 7
    raise MalformedPacket("a variable byte integer has more than four bytes")


def read_binary(data: bytes, pos: int) -> tuple[bytes, int]:
    """Bytes after a two byte length."""
    length, pos = read_uint16(data, pos)
    end = pos + length
    if end > len(data):
        raise MalformedPacket(f"the packet ends inside a field of {length} bytes")
    return data[pos:end], end


def read_string(data: bytes, pos: int) -> tuple[str, int]:
    """A UTF-8 string after a two byte length."""
    raw, pos = read_binary(data, pos)
    return validate_utf8(raw), pos


def validate_utf8(raw: bytes) -> str:
    """Well-formed UTF-8 without surrogates [MQTT-1.5.4-1] and without U+0000 [MQTT-1.5.4-2].

    Python's strict decoder refuses surrogates and overlong forms already. U+FEFF stays where it is
    [MQTT-1.5.4-3].
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedPacket(
            f"a string is not UTF-8: {error.reason} at byte {error.start}"
        ) from None
    if "\0" in text:
        raise MalformedPacket("a string contains U+0000")
    return text


def encode_byte(number: int) -> bytes:
    """One unsigned byte."""
    return _encode_integer(number, 1)


def encode_uint16(number: int) -> bytes:
    """A two byte integer, big-endian."""
    return _encode_integer(number, 2)


def encode_uint32(number: int) -> bytes:
    """A four byte integer, big-endian."""
    return _encode_integer(number, 4)


def _encode_integer(number: int, size: int) -> bytes:
    try:
        return number.to_bytes(size, "big")
    except OverflowError:
        raise ValueError(f"{number} does not fit into {size} unsigned bytes") from None


def encode_varint(number: int) -> bytes:
    """A variable byte integer in its shortest form [MQTT-1.5.5-1]."""
    if not 0 <= number <= MAXIMUM_VARINT:
        raise ValueError(f"{number} is not a variable byte integer (0..{MAXIMUM_VARINT})")
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def encode_binary(raw: bytes) -> bytes:
    """Bytes after a two byte length."""
    if len(raw) > MAXIMUM_LENGTH:
        raise ValueError(f"a field of {len(raw)} bytes is longer than {MAXIMUM_LENGTH}")
    return len(raw).to_bytes(2, "big") + raw


def encode_string(text: str) -> bytes:
    """A UTF-8 string after a two byte length."""
    if "\0" in text:
        raise ValueError("a string must not contain U+0000")
    return encode_binary(text.encode("utf-8"))
