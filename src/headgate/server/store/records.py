"""The file format of the log: a line that says what it is, then one record per batch.

    length (8 bytes, little endian) | CRC-32 of the body (4 bytes) | body (MessagePack of `Changes`)

A record is good as a whole or not at all, which makes a batch atomic. A process or machine that
stops in the middle of a write leaves a record that is cut short at the end of the file, or zeros
where the file system had grown the file already: the end of what survived. Anything else is damage.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

import msgspec

from headgate.errors import StorageError
from headgate.server.store.changes import Changes

FORMAT_VERSION = 1
MAGIC = b"headgate journal %d\n" % FORMAT_VERSION
_MAGIC = re.compile(rb"headgate (journal|captures) (\d+)\n")
_HEADER = struct.Struct("<QI")
_ZEROS_AT_ONCE = 1 << 20

Batch = TypeVar("Batch")

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Changes)


def record(changes: object) -> tuple[bytes, bytes]:
    """Header and body. Two buffers, so that payloads are not copied once more."""
    body = _encoder.encode(changes)
    return _HEADER.pack(len(body), zlib.crc32(body)), body


def write(file: int, *buffers: bytes) -> int:
    """Write all of it, however many calls the kernel makes of that."""
    size = sum(map(len, buffers))
    written = os.writev(file, buffers)
    if written < size:
        rest = memoryview(b"".join(buffers))
        while written < size:
            written += os.write(file, rest[written:])
    return size


class RecordReader(Generic[Batch]):
    """The batches of one file, until its end or the first record that is not good."""

    def __init__(self, path: Path, decoder: msgspec.msgpack.Decoder[Batch], magic: bytes) -> None:
        self.path = path
        self._decoder = decoder
        self._magic = magic
        self.size = path.stat().st_size
        self.end = 0
        """Where the last good record ended; complete after the iteration."""
        self.torn = False
        """The file ends in a record that was never finished."""
        self.damaged = False
        """A record is bad although more was written after it."""

    def __iter__(self) -> Iterator[Batch]:
        with self.path.open("rb") as file:
            if not self._starts_well(file):
                return
            while header := file.read(_HEADER.size):
                if len(header) < _HEADER.size:
                    self.torn = True
                    return
                length, crc = _HEADER.unpack(header)
                follows = self.end + _HEADER.size + length
                if length == 0:
                    self.damaged = crc != 0 or not _only_zeros(file)
                    self.torn = not self.damaged
                    return
                body = file.read(length) if follows <= self.size else b""
                if len(body) < length or zlib.crc32(body) != crc:
                    self.damaged = follows < self.size
                    self.torn = not self.damaged
                    return
                yield self._decode(body)
                self.end = follows

    def _starts_well(self, file: BinaryIO) -> bool:
        start = file.readline(64)
        known = _MAGIC.fullmatch(start)
        if known is None or not self._magic.startswith(b"headgate " + known[1]):
            if self.size < len(self._magic) and self._magic.startswith(start):
                self.torn = True  # It was being created.
                return False
            raise StorageError(f"{self.path} is not a journal of Headgate")
        version = int(known[2])
        if version > FORMAT_VERSION:
            raise StorageError(
                f"{self.path} was written by a newer Headgate (format {version}; this one knows"
                f" {FORMAT_VERSION}): use that version or newer"
            )
        self.end = len(start)
        return True

    def _decode(self, body: bytes) -> Batch:
        try:
            return self._decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise StorageError(
                f"{self.path} holds a record at byte {self.end} that this version does not"
                f" understand: {error}"
            ) from error


class Reader(RecordReader[Changes]):
    """The batches of a journal or snapshot."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _decoder, MAGIC)


def _only_zeros(file: BinaryIO) -> bool:
    return not any(any(some) for some in iter(lambda: file.read(_ZEROS_AT_ONCE), b""))
