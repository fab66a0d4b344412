"""Segments: Parquet files that grow to a size or an age, are published, and are removed one day."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.contract.records import MESSAGES
from headgate.errors import StorageError
from headgate.server.recorder.places import Place, Stored
from headgate.server.recorder.settings import Settings
from headgate.server.recorder.tables import ARROW_SCHEMAS, TABLES

GROUP = 128 * 1024
"""Rows of a row group: what Spark reads at a time."""

FULL = 64 * 1024 * 1024
"""Bytes in memory at which a row group is written, however few rows they are."""

RISING = {"sequence": "DELTA_BINARY_PACKED", "at": "DELTA_BINARY_PACKED"}
"""Columns whose values differ little from one row to the next."""

MANIFOLD = (*RISING, "arrived", "waited_ms", "acknowledged_ms", "payload", "correlation")
"""Columns of which a dictionary would be as long as they are: to look for one is in vain."""

SOUGHT = ("sequence", "at", "arrived", "client", "topic")
"""Columns by which readers pass over row groups: the others need no statistics."""


def writer_of(file: pa.NativeFile, kind: str) -> pq.ParquetWriter:
    """A writer that takes tables of `TABLES` and tells readers of `ARROW_SCHEMAS`.

    Few statistics, and Snappy where records are many: the encoder works on the cores that messages
    need (docs/decisions/0040-cost-of-records.md).
    """
    fields = [field.name for field in ARROW_SCHEMAS[kind]]
    flags = [field.name for field in ARROW_SCHEMAS[kind] if field.type == pa.bool_()]
    writer = pq.ParquetWriter(
        file,
        TABLES[kind],
        compression="snappy" if kind == MESSAGES.kind else "zstd",
        use_dictionary=[name for name in fields if name not in MANIFOLD and name not in flags],
        column_encoding={**RISING, **({"arrived": RISING["at"]} if "arrived" in fields else {})},
        write_statistics=[name for name in SOUGHT if name in fields],
        store_schema=False,
    )
    told = base64.b64encode(ARROW_SCHEMAS[kind].serialize().to_pybytes()).decode()
    writer.add_key_value_metadata({"ARROW:schema": told})
    return writer


class Segment:
    """One file that is being written."""

    def __init__(self, place: Place, path: str, kind: str, now: float) -> None:
        self.path = path
        self.born = now
        self.rows = 0
        self._place = place
        self._kind = kind
        self._file = place.open(path)
        self._writer = writer_of(self._file, kind)
        self._gathered: list[pa.Table] = []
        self._gathered_rows = 0
        self._gathered_bytes = 0

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._file.tell())

    def add(self, table: pa.Table) -> None:
        self._gathered.append(table)
        self._gathered_rows += table.num_rows
        self._gathered_bytes += table.nbytes
        self.rows += table.num_rows
        if self._gathered_rows >= GROUP or self._gathered_bytes >= FULL:
            self._write_group()

    def _write_group(self) -> None:
        if self._gathered:
            group = pa.concat_tables(self._gathered).unify_dictionaries()
            self._writer.write_table(group, row_group_size=GROUP)
            self._gathered = []
            self._gathered_rows = 0
            self._gathered_bytes = 0

    def publish(self) -> Stored:
        self._write_group()
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
        self._open: dict[str, Segment] = {}
        self._number = 0
        self._published = sorted(place.segments(), key=lambda segment: segment.age_key)

    def add(self, kind: str, table: pa.Table, now: float) -> None:
        segment = self._open.get(kind)
        if segment is None:
            segment = self._open[kind] = Segment(self._place, self._name(kind, now), kind, now)
        segment.add(table)
        if segment.size >= self._settings.segment_size:
            self.roll(kind)

    def publish(self, path: str, fill: Callable[[Segment], None]) -> None:
        """A segment that is made in one go."""
        segment = Segment(self._place, path, path.partition("/")[0], time.time())
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
        for kind in list(self._open):
            self.roll(kind)

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
        """The oldest first, until what is left is young and small enough."""
        keep, keep_size = self._settings.keep, self._settings.keep_size
        total = sum(segment.size for segment in self._published)
        while self._published:
            oldest = self._published[0]
            too_old = keep and now - oldest.written > keep
            too_large = keep_size and total > keep_size
            if not too_old and not too_large:
                return
            self._place.remove(oldest.path)
            total -= oldest.size
            self._published.pop(0)
