"""Sparkplug B payloads (specification 3.0, §6.4): Protocol Buffers, read by their field numbers.

Only what measures is read. Integers are two's complement in unsigned fields, so the data type
decides what a number is; it is told at birth and need not be repeated with the data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headgate.pipeline.lake.undecodable import UndecodableError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types of Protocol Buffers."""

Raw = int | float | bool | str | bytes
Value = float | str | bool

BITS = {1: 8, 2: 16, 3: 32, 4: 64}
"""Data types with a sign, and their width: Int8 to Int64."""
DATE_TIME, FIRST_ARRAY, BOOLEANS, STRINGS, DATE_TIMES = 13, 22, 32, 33, 34
ARRAYS = "bhiqBHIQfd"
"""Element types of the data types from 22, Int8Array, to 31, DoubleArray."""

QUALITIES = {0: "bad", 192: "good", 500: "stale"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS = 253_402_300_799_999
"""The end of the year 9999, beyond which nothing can tell the time."""


@dataclass(slots=True)
class Metric:
    name: str | None = None
    alias: int | None = None
    stamp_ms: int | None = None
    datatype: int | None = None
    null: bool = False
    raw: Raw | None = None
    quality: str | None = None
    unit: str | None = None


@dataclass(slots=True)
class Payload:
    stamp_ms: int | None
    metrics: list[Metric]


def decode(data: bytes) -> Payload:
    stamp: int | None = None
    metrics = []
    for number, kind, value in fields(data):
        if number == 1 and kind == VARINT:
            stamp = whole(value)
        elif number == 2 and kind == BYTES:
            metrics.append(metric_of(octets(value)))
    return Payload(stamp, metrics)


def metric_of(data: bytes) -> Metric:
    metric = Metric()
    for number, kind, value in fields(data):
        match number, kind:
            case 1, 2:
                metric.name = text(value)
            case 2, 0:
                metric.alias = whole(value)
            case 3, 0:
                metric.stamp_ms = whole(value)
            case 4, 0:
                metric.datatype = whole(value)
            case 7, 0:
                metric.null = bool(value)
            case 9, 2:
                described(metric, octets(value))
            case ((10 | 11), 0):
                metric.raw = whole(value)
            case 12, 5:
                metric.raw = float(struct.unpack("<f", octets(value))[0])
            case 13, 1:
                metric.raw = float(struct.unpack("<d", octets(value))[0])
            case 14, 0:
                metric.raw = bool(value)
            case 15, 2:
                metric.raw = text(value)
            case 16, 2:
                metric.raw = octets(value)
    return metric


def described(metric: Metric, data: bytes) -> None:
    """Quality and unit, from the property set: keys and values, each in its own order."""
    keys, values = [], []
    for number, kind, value in fields(data):
        if (number, kind) == (1, BYTES):
            keys.append(text(value))
        elif (number, kind) == (2, BYTES):
            values.append(octets(value))
    for key, value in zip(keys, values, strict=False):
        if key in ("Quality", "engUnit"):
            found = [raw for number, _, raw in fields(value) if 3 <= number <= 8]
            match key, found:
                case "Quality", [int(code)]:
                    metric.quality = QUALITIES.get(code, str(code))
                case "engUnit", [bytes(unit)]:
                    metric.unit = text(unit)


def measured(metric: Metric, datatype: int | None) -> list[tuple[str, Value | None]]:
    """What is added to the metric's name, and the value there; an array has several."""
    raw = metric.raw
    if metric.null or raw is None:
        return [("", None)]
    if isinstance(raw, bytes):
        if datatype is not None and FIRST_ARRAY <= datatype <= DATE_TIMES:
            elements = array(raw, datatype)
            return [(f".{index}", element) for index, element in enumerate(elements)]
        return [("", raw.hex())]
    if isinstance(raw, bool | str | float):
        return [("", raw)]
    if datatype in BITS:
        raw = signed(raw, BITS[datatype])
    if datatype == DATE_TIME:
        return [("", moment(raw))]
    if datatype == 11:
        return [("", bool(raw))]
    return [("", float(raw))]


def signed(raw: int, bits: int) -> int:
    low = raw & ((1 << bits) - 1)
    return low - (1 << bits) if low >> (bits - 1) else low


def moment(milliseconds: int) -> str:
    milliseconds = signed(milliseconds, 64)
    if not 0 <= milliseconds <= LAST_MS:
        raise UndecodableError(f"Sparkplug: {milliseconds} ms is no date")
    return (EPOCH + timedelta(milliseconds=milliseconds)).isoformat()


def array(data: bytes, datatype: int) -> list[Value]:
    """Elements of a packed array, little-endian."""
    if datatype == STRINGS:
        return [text(piece) for piece in data.split(b"\0")[:-1]]
    if datatype == BOOLEANS:
        if len(data) < 4:
            raise UndecodableError("Sparkplug: an array of booleans has no length")
        count = int.from_bytes(data[:4], "little")
        if count > 8 * (len(data) - 4):
            raise UndecodableError("Sparkplug: an array of booleans is shorter than it says")
        return [bool(data[4 + index // 8] >> (7 - index % 8) & 1) for index in range(count)]
    code = "q" if datatype == DATE_TIMES else ARRAYS[datatype - FIRST_ARRAY]
    if len(data) % struct.calcsize(f"<{code}"):
        raise UndecodableError("Sparkplug: an array ends within an element")
    elements = [element for (element,) in struct.iter_unpack(f"<{code}", data)]
    if datatype == DATE_TIMES:
        return [moment(element) for element in elements]
    return [float(element) for element in elements]


# Protocol Buffers


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Field number, wire type and content of each field of a message, in order."""
    position, end = 0, len(data)
    while position < end:
        key, position = varint(data, position)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise UndecodableError("Protocol Buffers: a field has the number 0")
        if kind == VARINT:
            value, position = varint(data, position)
            yield number, kind, value
            continue
        if kind == BYTES:
            length, position = varint(data, position)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise UndecodableError(f"Protocol Buffers: wire type {kind} is not known")
        if position + length > end:
            raise UndecodableError("Protocol Buffers: ends in the middle of a field")
        yield number, kind, data[position : position + length]
        position += length


def varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    for octet in data[position : position + 10]:
        position += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
    raise UndecodableError("Protocol Buffers: a number does not end")


def whole(value: int | bytes) -> int:
    assert isinstance(value, int)
    return value


def octets(value: int | bytes) -> bytes:
    assert isinstance(value, bytes)
    return value


def text(value: int | bytes) -> str:
    try:
        return octets(value).decode()
    except UnicodeDecodeError:
        raise UndecodableError("Sparkplug: a text is not UTF-8") from None
