"""Segments: Parquet files that grow to a size or an age, are published, and are removed one day."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.contract.records import CAPTURES, MESSAGES
from headgate.errors import StorageError
from headgate.server.recorder.places import Place, Stored
from headgate.server.recorder.rows import GROUP, MessageWriter, Part, Room
from headgate.server.recorder.settings import Settings
from headgate.server.recorder.tables import ARROW_SCHEMAS

FULL = 64 * 1024 * 1024
"""Bytes in memory at which a row group is written, however few rows they are."""

RISING = "DELTA_BINARY_PACKED"
"""For columns whose values differ little from one row to the next."""

MANIFOLD = ("sequence", "at", "payload", "correlation")
"""Columns of which a dictionary would be as long as they are: to look for one is in vain."""

SOUGHT = ("sequence", "at", "client", "topic")
"""Columns by which readers pass over row groups: the others need no statistics."""

Records = TypeVar("Records")
Taken_contra = TypeVar("Taken_contra", contravariant=True)


def writer_of(file: pa.NativeFile, kind: str) -> pq.ParquetWriter:
    fields = [field.name for field in ARROW_SCHEMAS[kind]]
    flags = [field.name for field in ARROW_SCHEMAS[kind] if field.type == pa.bool_()]
    return pq.ParquetWriter(
        file,
        ARROW_SCHEMAS[kind],
        compression="zstd",
        use_dictionary=[name for name in fields if name not in MANIFOLD and name not in flags],
        column_encoding={"sequence": RISING, "at": RISING},
        write_statistics=[name for name in SOUGHT if name in fields],
    )


class TableWriter:
    """Records that come as tables, gathered into row groups."""

    def __init__(self, file: pa.NativeFile, kind: str) -> None:
        self._writer = writer_of(file, kind)
        self._gathered: list[pa.Table] = []
        self._rows = 0
        self._bytes = 0

    def add(self, table: pa.Table) -> None:
        self._gathered.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows >= GROUP or self._bytes >= FULL:
            self._write_group()

    def close(self) -> None:
        self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        if self._gathered:
            self._writer.write_table(pa.concat_tables(self._gathered), row_group_size=GROUP)
            self._gathered = []
            self._rows = 0
            self._bytes = 0


class Writer(Protocol[Taken_contra]):
    """What makes a file of records; it does not close it."""

    def add(self, records: Taken_contra, /) -> None: ...
    def close(self) -> None: ...


class Segment(Generic[Records]):
    """One file that is being written."""

    def __init__(
        self, place: Place, path: str, make: Callable[[pa.NativeFile], Writer[Records]], now: float
    ) -> None:
        self.path = path
        self.born = now
        self._place = place
        self._file = place.open(path)
        self._writer = make(self._file)

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._file.tell())

    def add(self, records: Records) -> None:
        self._writer.add(records)

    def publish(self) -> Stored:
        self._writer.close()
        self._file.close()
        return Stored(self.path, self._place.publish(self.path), time.time())

    def withdraw(self) -> None:
        self._place.withdraw(self.path)


class Segments:
    """The open segment of each kind, and those that were published."""

    def __init__(self, place: Place, settings: Settings) -> None:
        self._place = place
        self._settings = settings
        self._open: dict[str, Segment[Any]] = {}
        self._room = Room()
        self._number = 0
        self._published = sorted(place.segments(), key=lambda segment: segment.age_key)

    def add(self, kind: str, records: pa.Table | Part, now: float) -> None:
        """Message records come as a `Part`, all others as tables."""
        segment = self._open.get(kind)
        if segment is None:
            make: Callable[[pa.NativeFile], Writer[Any]] = partial(TableWriter, kind=kind)
            if kind == MESSAGES.kind:
                make = self._messages
            segment = self._open[kind] = Segment(self._place, self._name(kind, now), make, now)
        segment.add(records)
        if segment.size >= self._settings.segment_size:
            self.roll(kind)

    def _messages(self, file: pa.NativeFile) -> MessageWriter:
        return MessageWriter(file, self._settings.broker, self._room)

    def publish(self, path: str, fill: Callable[[Segment[pa.Table]], None]) -> None:
        """A segment that is made in one go, of tables."""
        make = partial(TableWriter, kind=path.partition("/")[0])
        segment = Segment(self._place, path, make, time.time())
        try:
            fill(segment)
            self._published.append(segment.publish())
        except (OSError, StorageError):
            segment.withdraw()
            raise

    def has(self, path: str) -> bool:
        """Is a segment of this name published?"""
        return self._place.has(path)

    def tick(self, now: float) -> float:
        """Publish and remove what is due; returns seconds until the next look."""
        for kind, segment in list(self._open.items()):
            if now - segment.born >= self._settings.segment_age:
                self.roll(kind)
        self._remove_old(now)
        due = [one.born + self._settings.segment_age - now for one in self._open.values()]
        return max(0.0, min([*due, 60.0]))

    def roll(self, kind: str) -> None:
        """Publish a segment; if that fails its records are lost, and later ones are not."""
        segment = self._open.pop(kind)
        try:
            self._published.append(segment.publish())
        except OSError:
            segment.withdraw()
            raise

    def close(self) -> None:
        """Publish all; what cannot be published does not keep the others back."""
        failed: OSError | None = None
        for kind in list(self._open):
            try:
                self.roll(kind)
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed

    def _name(self, kind: str, now: float) -> str:
        """Sorted by name is sorted by time; no two runs of a broker share a name."""
        self._number += 1
        moment = time.gmtime(now)
        return (
            f"{kind}/date={time.strftime('%Y-%m-%d', moment)}/"
            f"{time.strftime('%Y%m%dT%H%M%S', moment)}-{self._settings.broker}-"
            f"{self._number:06d}.parquet"
        )

    def _remove_old(self, now: float) -> None:
        """The oldest first, until what is left is young and small enough.

        What publishers were promised goes by age alone, and has no part in the size
        (docs/decisions/0048).
        """
        keep, keep_size = self._settings.keep, self._settings.keep_size
        total = sum(segment.size for segment in self._published if not self._promised(segment))
        for oldest in list(self._published):
            promised = self._promised(oldest)
            too_old = keep and now - oldest.written > keep
            too_large = keep_size and total > keep_size
            if not too_old and not too_large:
                return
            if too_old or not promised:
                self._place.remove(oldest.path)
                self._published.remove(oldest)
                total -= 0 if promised else oldest.size

    def _promised(self, segment: Stored) -> bool:
        return self._settings.guaranteed and segment.path.startswith(f"{CAPTURES.kind}/")
