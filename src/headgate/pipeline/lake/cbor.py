"""CBOR (RFC 8949), as values that JSON has too.

What JSON has no word for becomes text: byte strings in hexadecimal, NaN and infinities by name.
Payloads come from anybody, so nothing here trusts a length before it has seen the bytes.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from typing import Any

from headgate.pipeline.lake.undecodable import UndecodableError

DEPTH = 64
"""Levels of nesting; what measures nothing this deep means harm."""
WIDEST = 128
"""Bytes of a big number."""
BREAK = object()

SELF_DESCRIBED = 55799
"""The tag that only says: this is CBOR (§3.4.6)."""


def decode(data: bytes) -> Any:
    """The one item that the payload is, as values that JSON knows."""
    reader = Reader(data)
    value = reader.item(0)
    if value is BREAK:
        raise UndecodableError("CBOR: a break that ends nothing")
    if reader.position != len(data):
        raise UndecodableError(
            f"CBOR: {len(data) - reader.position} bytes after the end of the first item"
        )
    return value


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self.data):
            raise UndecodableError(f"CBOR: ends after {len(self.data)} bytes, in the middle")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def item(self, depth: int) -> Any:
        if depth > DEPTH:
            raise UndecodableError(f"CBOR: nested deeper than {DEPTH} levels")
        initial = self.take(1)[0]
        major, info = initial >> 5, initial & 31
        if major == 7:
            return self.simple(info)
        indefinite = info == 31
        if indefinite and major in (0, 1, 6):
            raise UndecodableError(f"CBOR: {initial:#04x} begins no item")
        count = 0 if indefinite else self.argument(info)
        match major:
            case 0:
                return count
            case 1:
                return -1 - count
            case 2:
                return (self.chunks(2) if indefinite else self.take(count)).hex()
            case 3:
                return text(self.chunks(3) if indefinite else self.take(count))
            case 4:
                return list(self.several(None if indefinite else count, depth))
            case 5:
                return self.map(None if indefinite else count, depth)
            case _:
                return self.tagged(count, depth)

    def argument(self, info: int) -> int:
        if info < 24:
            return info
        if info > 27:
            raise UndecodableError(f"CBOR: length code {info} is reserved")
        return int.from_bytes(self.take(1 << (info - 24)))

    def chunks(self, major: int) -> bytes:
        """A string in pieces, each of the same kind and of known length."""
        pieces = []
        while (initial := self.take(1)[0]) != 0xFF:
            if initial >> 5 != major or initial & 31 == 31:
                raise UndecodableError("CBOR: a string in pieces has a piece of another kind")
            pieces.append(self.take(self.argument(initial & 31)))
        return b"".join(pieces)

    def several(self, count: int | None, depth: int) -> Iterator[Any]:
        """So many items, or as many as come before a break."""
        while count is None or count > 0:
            value = self.item(depth + 1)
            if value is BREAK:
                if count is None:
                    return
                raise UndecodableError("CBOR: a break where an item was due")
            yield value
            count = None if count is None else count - 1

    def map(self, count: int | None, depth: int) -> dict[str, Any]:
        items = self.several(None if count is None else 2 * count, depth)
        found: dict[str, Any] = {}
        for key in items:
            name = key if isinstance(key, str) else json.dumps(key)
            if name in found:
                raise UndecodableError(f"CBOR: the key {name!r} is there twice")
            for value in items:
                found[name] = value
                break
            else:
                raise UndecodableError(f"CBOR: the key {name!r} has no value")
        return found

    def tagged(self, tag: int, depth: int) -> Any:
        if tag in (2, 3):  # a big number: the bytes themselves, not their text
            start = self.position
            digits = self.item(depth + 1)
            if self.data[start] >> 5 != 2:
                raise UndecodableError("CBOR: a big number is no byte string")
            if len(digits) > 2 * WIDEST:
                raise UndecodableError(f"CBOR: a number of more than {WIDEST} bytes")
            whole = int(digits or "0", 16)
            return whole if tag == 2 else -1 - whole
        value = self.item(depth + 1)
        if value is BREAK:
            raise UndecodableError("CBOR: a break where an item was due")
        if tag in (4, 5):  # mantissa and exponent, to ten or two
            return fraction(value, 10 if tag == 4 else 2)
        return value

    def simple(self, info: int) -> Any:
        match info:
            case 20 | 21:
                return info == 21
            case 22 | 23:  # null and undefined
                return None
            case 25:
                return real(struct.unpack(">e", self.take(2))[0])
            case 26:
                return real(struct.unpack(">f", self.take(4))[0])
            case 27:
                return real(struct.unpack(">d", self.take(8))[0])
            case 31:
                return BREAK
        raise UndecodableError(f"CBOR: simple value {info} means nothing")


def text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UndecodableError("CBOR: a text is not UTF-8") from None


def real(number: float) -> float | str:
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def fraction(pair: Any, base: int) -> float | str:
    match pair:
        case [int(exponent), int(mantissa)]:
            try:
                return real(mantissa * float(base) ** exponent)
            except OverflowError:
                return "Infinity" if mantissa > 0 else "-Infinity"
    raise UndecodableError("CBOR: a fraction is not a pair of whole numbers")
