"""Thrift's compact protocol, as much of it as Parquet's metadata needs to be written.

A value is its type's number and its bytes; a struct is made of values by their fields' numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

TRUE = 1
FALSE = 2
I32 = 5
I64 = 6
BINARY = 8
LIST = 9
STRUCT = 12

Value = tuple[int, bytes]
Fields = Mapping[int, Value | None]
"""By number, in rising order; None is left out."""


def i32(value: int) -> Value:
    return I32, varint(zigzag(value))


def i64(value: int) -> Value:
    return I64, varint(zigzag(value))


def flag(value: bool) -> Value:
    return (TRUE if value else FALSE), b""


def binary(value: bytes) -> Value:
    return BINARY, varint(len(value)) + value


def struct(fields: Fields) -> Value:
    out = bytearray()
    last = 0
    for number, value in fields.items():
        if value is None:
            continue
        kind, content = value
        step = number - last
        last = number
        if step <= 15:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            out += varint(zigzag(number))
        out += content
    out.append(0)
    return STRUCT, bytes(out)


def several(kind: int, values: Iterable[Value]) -> Value:
    """A list of values of one type."""
    contents = [content for _, content in values]
    size = len(contents)
    head = bytes([size << 4 | kind]) if size < 15 else bytes([0xF0 | kind]) + varint(size)
    return LIST, head + b"".join(contents)


def varint(value: int) -> bytes:
    """Seven bits in a byte, the lowest first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> int:
    """Small numbers of either sign become small numbers."""
    return value << 1 if value >= 0 else (-value << 1) - 1
