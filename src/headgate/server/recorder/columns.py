"""Columns of Parquet from NumPy's arrays, whole columns at a time.

Arrow's writer looks at each value of each column, ten nanoseconds each, and a record of a message
has 21. Here a column that says the same in all rows, as most do, is written without a look at the
rows, and what differs is encoded by operations on arrays, in widths of whole bytes: what that
leaves too large is left to the compression (docs/decisions/0051-own-parquet-pages.md).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.server.recorder.thrift import varint, zigzag


class Physical(enum.IntEnum):
    """Parquet's types, with its numbers."""

    BOOLEAN = 0
    INT64 = 2
    DOUBLE = 5
    BYTE_ARRAY = 6


class Encoding(enum.IntEnum):
    PLAIN = 0
    RLE = 3
    DELTA_BINARY_PACKED = 5
    RLE_DICTIONARY = 8


DELTAS = 128
"""Values of a block of differences, in four parts of 32."""

LONGEST = 10
"""Bytes of the longest varint: each smallest difference takes as many, so that all lie evenly."""


@dataclass(frozen=True)
class Column:
    """One column of a row group."""

    physical: Physical
    encoding: Encoding
    data: bytes
    """The page: which values are there, then the values."""
    dictionary: bytes = b""
    entries: int = 0
    nulls: int = 0
    low: bytes | None = None
    high: bytes | None = None


def texts(names: pa.Array, numbers: np.ndarray | None, rows: int, bounds: bool = False) -> Column:
    """Texts by their numbers in `names`; without numbers all are the first."""
    low = high = None
    if bounds:
        found = pc.min_max(names)
        low, high = found["min"].as_py().encode(), found["max"].as_py().encode()
    return Column(
        Physical.BYTE_ARRAY,
        Encoding.RLE_DICTIONARY,
        present(rows) + indices(numbers, len(names), rows),
        plain_texts(names),
        len(names),
        low=low,
        high=high,
    )


def constant(value: float, rows: int) -> Column:
    """The same number, whole or real, in each row."""
    code, physical = (
        ("<f8", Physical.DOUBLE) if isinstance(value, float) else ("<i8", Physical.INT64)
    )
    dictionary = np.array([value], dtype=code).tobytes()
    data = present(rows) + indices(None, 1, rows)
    return Column(physical, Encoding.RLE_DICTIONARY, data, dictionary, 1)


def wholes(values: np.ndarray, bounds: bool = False) -> Column:
    """64-bit integers: one of all, or differences, or as they are if these are too large."""
    rows = len(values)
    low = high = None
    if bounds:
        low, high = (extreme.astype("<i8").tobytes() for extreme in (values.min(), values.max()))
    data = deltas(values)
    encoding = Encoding.DELTA_BINARY_PACKED
    if data is None:
        data, encoding = values.astype("<i8").tobytes(), Encoding.PLAIN
    return Column(Physical.INT64, encoding, present(rows) + data, low=low, high=high)


def reals(values: np.ndarray, valid: np.ndarray | None) -> Column:
    """64-bit floats, null where they are not valid."""
    if valid is None:
        return Column(Physical.DOUBLE, Encoding.PLAIN, present(len(values)) + values.tobytes())
    data = some_present(valid) + values[valid].tobytes()
    return Column(Physical.DOUBLE, Encoding.PLAIN, data, nulls=int(len(valid) - valid.sum()))


def flags(values: np.ndarray) -> Column:
    packed = np.packbits(values, bitorder="little").tobytes()
    return Column(Physical.BOOLEAN, Encoding.PLAIN, present(len(values)) + packed)


# What pages are made of


def present(rows: int) -> bytes:
    """Definition levels: no value is null."""
    run = varint(rows << 1) + b"\x01"
    return len(run).to_bytes(4, "little") + run


def some_present(valid: np.ndarray) -> bytes:
    groups = (len(valid) + 7) // 8
    levels = varint(groups << 1 | 1) + np.packbits(valid, bitorder="little").tobytes()
    return len(levels).to_bytes(4, "little") + levels


def indices(numbers: np.ndarray | None, entries: int, rows: int) -> bytes:
    """Numbers of a dictionary's entries, each in one, two or four whole bytes."""
    size = 1 if entries <= 1 << 8 else 2 if entries <= 1 << 16 else 4
    width = bytes([8 * size])
    if numbers is None:
        return width + varint(rows << 1) + bytes(size)
    groups = (rows + 7) // 8
    packed = numbers.astype(f"<u{size}").tobytes()
    return width + varint(groups << 1 | 1) + packed.ljust(groups * 8 * size, b"\0")


def deltas(values: np.ndarray) -> bytes | None:
    """Differences from one to the next, above the smallest of 128; None if one needs 33 bits."""
    rows = len(values)
    head = varint(DELTAS) + varint(4) + varint(rows) + varint(zigzag(int(values[0])))
    if rows == 1:
        return head
    steps = np.diff(values)
    blocks = -(-len(steps) // DELTAS)
    if (steps == steps[0]).all():
        return head + (varint(zigzag(int(steps[0]))) + bytes(4)) * blocks
    padded = np.full(blocks * DELTAS, steps[-1])
    padded[: len(steps)] = steps
    table = padded.reshape(blocks, DELTAS)
    least = table.min(axis=1)
    table -= least[:, None]
    largest = int(table.max())
    if not 0 <= largest < 1 << 32:
        return None
    size = 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 4
    out = np.empty((blocks, LONGEST + 4 + DELTAS * size), dtype="u1")
    folded = (least << 1 ^ least >> 63).view("u8")
    for byte in range(LONGEST):
        out[:, byte] = (folded >> np.uint64(7 * byte) & np.uint64(0x7F)) | np.uint64(0x80)
    out[:, LONGEST - 1] &= 0x7F
    out[:, LONGEST : LONGEST + 4] = 8 * size
    out[:, LONGEST + 4 :] = table.astype(f"<u{size}").view("u1").reshape(blocks, -1)
    return head + out.tobytes()


def plain_texts(names: pa.Array) -> bytes:
    """Texts one after the other, each with its length before it."""
    count = len(names)
    offsets = np.frombuffer(names.buffers()[1], dtype="<i4")[
        names.offset : names.offset + count + 1
    ]
    letters = names.buffers()[2]
    begin, end = int(offsets[0]), int(offsets[-1])
    out = np.empty(end - begin + 4 * count, dtype="u1")
    text = np.ones(len(out), dtype="?")
    lengths = np.diff(offsets)
    heads = offsets[:-1] - begin + 4 * np.arange(count)
    for byte in range(4):
        out[heads + byte] = lengths >> 8 * byte & 0xFF
        text[heads + byte] = False
    if end > begin:
        out[text] = np.frombuffer(letters, dtype="u1")[begin:end]
    return out.tobytes()
