"""Captured messages on their way to a segment, in files that are safe before anybody is answered.

    captures/20261118T005321-RUN-000001.spool   complete: the encoder makes a segment of it
    captures/20261118T005421-RUN-000002.open    grows

One file becomes one segment of the same name, however often that is tried: whoever is killed, and
whenever, what is published twice is published under one name and with one content. The encoder
removes a file when its segment is safe.

What is guaranteed counts only once the journal says so: its *mark* is committed together with all
else that happened to the message (a QoS 2 identifier seen, for instance), so that after a crash
either both are there or neither, and a publisher that sends again is not recorded twice. What lies
behind the mark was never acknowledged and is cut off (docs/decisions/0039-capture.md).
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from headgate.core.journal import Captured
from headgate.errors import StorageError
from headgate.server.store import records

MAGIC = b"headgate captures 1\n"

MARK = "captures"
"""The journal's value that says how much of which file counts."""

logger = logging.getLogger(__name__)


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """What was captured between two commits."""

    marked: bool
    """It counts only if the journal's mark lies behind it."""
    messages: list[Captured]


class Mark(msgspec.Struct, frozen=True, array_like=True):
    name: str = ""
    length: int = 0


_decoder = msgspec.msgpack.Decoder(Batch)


class Settings(NamedTuple):
    folder: Path
    run: str
    """The run of the broker, which is part of every name."""
    synced: bool
    file_size: int
    file_age: float
    limit: int
    """Bytes of all files; 0 is no limit."""


class Spool:
    """All but `recover` is called in the store's thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.waiting = 0
        """Bytes on disk that are not yet in a segment; another thread may read it."""
        self._number = 0
        self._path: Path | None = None
        self._file = -1
        self._length = 0
        self._born = 0.0
        self.sealed = 0
        """Bytes of complete files, which wait for the encoder."""

    @property
    def is_full(self) -> bool:
        """Is the encoder so far behind that no more may be captured?"""
        return 0 < self.settings.limit < self.waiting

    def recover(self, mark: bytes | None) -> None:
        """Complete what a broker that was killed left behind."""
        folder = self.settings.folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync(folder.parent)
        counts = Mark() if mark is None else msgspec.msgpack.decode(mark, type=Mark)
        for path in sorted(folder.glob("*.open")):
            length = keep(path, counts.length if path.stem == counts.name else 0)
            dropped = path.stat().st_size - length
            if dropped:
                logger.warning("%s: %d bytes of an unfinished commit dropped", path, dropped)
                os.truncate(path, length)
            if length > len(MAGIC):
                sync(path)
                path.rename(path.with_suffix(".spool"))
            else:
                path.unlink()
        sync(folder)
        self.look()

    def append(self, guaranteed: list[Captured], noted: list[Captured]) -> bytes | None:
        """Write messages, and have those that are guaranteed on the disk; returns the mark.

        An OSError means that there is no room, and leaves the file as it was; after a StorageError
        nobody knows what is on the disk.
        """
        if self._path is None:
            self._begin()
        header, body = records.record(Batch(bool(guaranteed), guaranteed + noted))
        try:
            size = records.write(self._file, header, body)
        except OSError:
            with failing(self._path):
                os.ftruncate(self._file, self._length)
            raise
        if guaranteed and self.settings.synced:
            with failing(self._path):
                os.fdatasync(self._file)
        self._length += size
        self.waiting = self.sealed + self._length
        assert self._path is not None
        return msgspec.msgpack.encode(Mark(self._path.stem, self._length)) if guaranteed else None

    def seal_if_due(self, now: float) -> None:
        """Complete the file if it is large or old enough; all of it is committed."""
        if self._path is not None and (
            self._length >= self.settings.file_size
            or now - self._born >= self.settings.file_age
            or self.is_full  # or the encoder could not make room
        ):
            self.seal()

    def seal(self) -> None:
        if self._path is None:
            return
        path, self._path = self._path, None
        with failing(path):
            if self.settings.synced:
                os.fdatasync(self._file)
            os.close(self._file)
            path.rename(path.with_suffix(".spool"))
            sync(self.settings.folder)
        self.sealed += self._length
        self._length = 0

    def abandon(self) -> None:
        """Leave the file as it is, for the next start to look at."""
        if self._path is not None:
            self._path = None
            os.close(self._file)

    def _begin(self) -> None:
        self._number += 1
        self._born = time.time()
        moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self._born))
        path = self.settings.folder / f"{moment}-{self.settings.run}-{self._number:06d}.open"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        try:
            self._length = records.write(self._file, MAGIC)
            sync(self.settings.folder)
        except OSError:
            os.close(self._file)
            path.unlink(missing_ok=True)
            raise
        self._path = path

    def look(self) -> None:
        """How much is left for the encoder to do?"""
        sealed = 0
        for path in self.settings.folder.glob("*.spool"):
            with contextlib.suppress(FileNotFoundError):  # the encoder was quicker
                sealed += path.stat().st_size
        self.sealed = sealed
        self.waiting = sealed + self._length


@contextlib.contextmanager
def failing(path: Path | None) -> Iterator[None]:
    """What must not fail: a disk that lost what it had confirmed is not asked again."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path} could not be written: {error.strerror}") from error


def keep(path: Path, marked: int) -> int:
    """How much of a file counts, if the mark is at `marked`."""
    reader = reader_of(path)
    for batch in reader:
        # The reader's `end` is that of the record before until it is asked for the next.
        if batch.marked and reader.end >= marked:
            return reader.end
    return reader.end


def reader_of(path: Path) -> records.RecordReader[Batch]:
    return records.RecordReader(path, _decoder, MAGIC)


def batches(path: Path) -> Iterator[list[Captured]]:
    """The messages of a complete file, for the encoder; a `StorageError` if it is damaged."""
    reader = reader_of(path)
    for batch in reader:
        yield batch.messages
    if reader.end < reader.size:
        raise StorageError(f"{path} is damaged at byte {reader.end} of {reader.size}")


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, survive a power cut."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
