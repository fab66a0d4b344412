"""What travels from the broker to the encoder: headers in MessagePack, and rows in shared memory.

Rows of messages are not sent: the encoder reads them in the arena, where the broker wrote them
(`core/tape.py`), and gives each block back by its number.
"""

from __future__ import annotations

import os
import struct
from io import FileIO

import msgspec

from headgate.core.tape import ROW_SIZE, Block

LENGTH = struct.Struct("<I")

ROW = [
    ("at", "<f8"),
    ("arrived", "<f8"),
    ("since", "<f8"),
    ("flow", "<u4"),
    ("topic", "<u4"),
    ("count", "<u4"),
    ("size", "<u4"),
    ("facets", "<u4"),
    ("next", "<u4"),
]
"""A row of the arena, with types as NumPy writes them."""

assert sum(int(code[2]) for _, code in ROW) == ROW_SIZE


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """One kind of records, in the order in which they happened."""

    kind: str
    first: int
    """The sequence number of the first record."""
    rows: int
    block: int = 0
    """Of message records: where in the arena they are."""
    events: list[tuple[object, ...]] = []
    """Records one by one, of kinds that are rare."""
    flows: list[tuple[str, str, str, str, str, int]] = []
    """Of message records: client, filter, application, category, link, priority by number."""
    topics: list[bytes] = []
    weight: float = 1.0


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Frame)


def block_frame(block: Block, first: int, weight: float) -> bytes:
    """What is to be told of a block of message records."""
    return header(
        Frame(
            kind="messages",
            first=first,
            rows=block.rows,
            block=block.index,
            flows=block.flows,
            topics=list(block.topics),
            weight=weight,
        )
    )


def header(frame: Frame) -> bytes:
    encoded = _ENCODER.encode(frame)
    return LENGTH.pack(len(encoded)) + encoded


def write(descriptor: int, data: bytes) -> None:
    """Write all of it, however long the reader takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def read(stream: FileIO) -> Frame | None:
    """The next frame; None at the end, even if that comes in mid-frame."""
    try:
        size = LENGTH.unpack(read_exactly(stream, LENGTH.size))[0]
        return _DECODER.decode(read_exactly(stream, size))
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
