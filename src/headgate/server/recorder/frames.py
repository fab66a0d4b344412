"""What travels from the broker to the encoder: a header in MessagePack, then raw columns."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from io import FileIO

import msgspec

from headgate.core.tape import Block

LENGTH = struct.Struct("<I")

COLUMNS = (
    ("at", "f8"),
    ("arrived", "f8"),
    ("since", "f8"),
    ("flow", "u4"),
    ("topic", "u4"),
    ("count", "u4"),
    ("size", "u8"),
    ("facets", "u4"),
)
"""The columns of a block of message records, with their types as NumPy writes them."""

ROW = sum(int(code[1]) for _, code in COLUMNS)
"""Bytes of a row."""


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """One kind of records, in the order in which they happened."""

    kind: str
    first: int
    """The sequence number of the first record."""
    rows: int
    events: list[tuple[object, ...]] = []
    """Records one by one, of kinds that are rare."""
    flows: list[tuple[str, str, str, str, str, int]] = []
    """Of message records: client, filter, application, category, link, priority by number."""
    topics: list[bytes] = []
    weight: float = 1.0


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Frame)


def block_frame(block: Block, first: int, weight: float) -> list[memoryview | bytes]:
    """A block of message records as the pieces to write."""
    frame = Frame(
        kind="messages",
        first=first,
        rows=block.rows,
        flows=block.flows,
        topics=list(block.topics),
        weight=weight,
    )
    return [header(frame), *(column.cast("B") for column in block.filled())]


def header(frame: Frame) -> bytes:
    encoded = _ENCODER.encode(frame)
    return LENGTH.pack(len(encoded)) + encoded


def write(descriptor: int, pieces: Sequence[memoryview | bytes]) -> None:
    """Write all of it, however long the reader takes.

    With one call if the kernel allows it: after each, the loop has to let go of the interpreter's
    lock once more.
    """
    rest = [memoryview(piece) for piece in pieces]
    while rest:
        written = os.writev(descriptor, rest)
        while rest and written >= len(rest[0]):
            written -= len(rest.pop(0))
        if rest:
            rest[0] = rest[0][written:]


def read(stream: FileIO) -> tuple[Frame, bytearray] | None:
    """The next frame and its columns; None at the end, even if that comes in mid-frame."""
    try:
        size = LENGTH.unpack(read_exactly(stream, LENGTH.size))[0]
        frame = _DECODER.decode(read_exactly(stream, size))
        return frame, read_exactly(stream, 0 if frame.events else ROW * frame.rows)
    except EOFError:
        return None


def read_exactly(stream: FileIO, size: int) -> bytearray:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        taken = stream.readinto(rest)
        if not taken:
            raise EOFError
        rest = rest[taken:]
    return data
