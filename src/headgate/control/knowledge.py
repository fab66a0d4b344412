"""What the pipeline learned, picked up while the loop runs (docs/knowledge.md).

The loop works without any of it. A version counts when its lineage is there; one that cannot be
used is refused as a whole, with the reason, and the one before stays in force.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from headgate.contract.knowledge import (
    CALIBRATION,
    FORECAST,
    LINEAGE,
    Lineage,
    in_force,
    version_folder,
)
from headgate.contract.records import Schema, Type

LOOK_EVERY = 5.0
"""Seconds between two looks for a new version."""
LARGEST_ERROR = 0.5
"""Of the mean response on data that it was not fitted to: beyond it, a calibration is not used."""
FACTORS = (0.02, 50.0)
"""A factor outside is no calibration, but a mistake."""
MOST_ROWS = 1_000_000

Key = tuple[str, str]
"""Application and link; all of a link together have no application."""


@dataclass(frozen=True)
class Calibrated:
    """One link."""

    rate: float | None
    overhead: float
    burstiness: float
    response_factor: float
    error: float | None
    drift: bool

    @property
    def usable(self) -> bool:
        return self.error is not None and self.error <= LARGEST_ERROR


@dataclass(frozen=True)
class Expected:
    """Load in one interval."""

    start: float
    end: float
    rate: float
    bits: float
    low: float


@dataclass(frozen=True)
class Learned:
    """A version of a table, checked."""

    kind: str
    version: int
    calibration: Mapping[str, Calibrated] = field(default_factory=dict)
    forecast: Mapping[Key, tuple[Expected, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        text = f"{self.kind} {self.version}"
        if self.kind == CALIBRATION.kind:
            left_out = sorted(name for name, link in self.calibration.items() if not link.usable)
            text += f" of {len(self.calibration)} links"
            if left_out:
                text += f", not used for {', '.join(left_out[:5])}: its error is too large"
        return text


@dataclass(frozen=True)
class Refused:
    kind: str
    version: int
    why: str

    def __str__(self) -> str:
        return f"{self.kind} {self.version} is not used: {self.why}"


class UnusableError(ValueError):
    """What is wrong with a version."""


class Reader:
    """Looks for versions that it has not seen yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: dict[str, int] = {}

    def look(self) -> list[Learned | Refused]:
        """What is new since the last look."""
        found: list[Learned | Refused] = []
        for schema, read in ((CALIBRATION, _calibration), (FORECAST, _forecast)):
            version = in_force(self.folder, schema.kind)
            if version is None or version == self._seen.get(schema.kind):
                continue
            self._seen[schema.kind] = version
            try:
                found.append(read(version, self._rows(schema, version)))
            except (UnusableError, OSError, ValueError) as error:
                why = str(error).splitlines()[0] if str(error) else type(error).__name__
                found.append(Refused(schema.kind, version, why))
        return found

    def _rows(self, schema: Schema, version: int) -> list[dict[str, Any]]:
        import pyarrow.parquet as pq  # noqa: PLC0415 - the loop works without it

        folder = self.folder / version_folder(schema.kind, version)
        try:
            lineage = Lineage.from_json((folder / LINEAGE).read_bytes())
        except msgspec.DecodeError as error:
            raise UnusableError(f"its lineage cannot be read: {error}") from None
        if (lineage.kind, lineage.version) != (schema.kind, version):
            raise UnusableError(f"its lineage is that of {lineage.kind} {lineage.version}")
        rows: list[dict[str, Any]] = []
        names = [entry.name for entry in schema.fields]
        for file in sorted(folder.glob("*.parquet")):
            table = pq.ParquetFile(file)
            missing = [name for name in names if name not in table.schema_arrow.names]
            if missing:
                raise UnusableError(f"{file.name} has no column {missing[0]!r}")
            rows.extend(table.read(columns=names).to_pylist())
            if len(rows) > MOST_ROWS:
                raise UnusableError(f"it has more than {MOST_ROWS} rows")
        if len(rows) != lineage.rows:
            raise UnusableError(f"it has {len(rows)} rows, and {lineage.rows} by its lineage")
        _check_types(schema, rows)
        return rows


def _check_types(schema: Schema, rows: Iterable[Mapping[str, Any]]) -> None:
    kinds: dict[Type, tuple[type, ...]] = {
        Type.TEXT: (str,),
        Type.WHOLE: (int,),
        Type.REAL: (float, int),
        Type.FLAG: (bool,),
        Type.TIME: (datetime,),
    }
    for row in rows:
        for entry in schema.fields:
            value = row[entry.name]
            if value is not None and not isinstance(value, kinds[entry.type]):
                raise UnusableError(f"{entry.name} {value!r} is no {entry.type}")


def _calibration(version: int, rows: list[dict[str, Any]]) -> Learned:
    found: dict[str, Calibrated] = {}
    for row in rows:
        link = row["link"]
        if not link or link in found:
            raise UnusableError(f"link {link!r} is there twice, or has no name")
        for name in ("burstiness", "response_factor"):
            value = row[name]
            if value is None or not FACTORS[0] <= value <= FACTORS[1]:
                raise UnusableError(f"link {link}: {name} {value} is not between 0.02 and 50")
        overhead, rate = row["overhead"], row["rate"]
        if overhead is None or not 0 <= overhead <= 10_000:
            raise UnusableError(f"link {link}: overhead {overhead} is no number of bytes")
        if rate is not None and not 0 < rate < math.inf:
            raise UnusableError(f"link {link}: rate {rate} is no number of bits per second")
        found[link] = Calibrated(
            rate,
            overhead,
            row["burstiness"],
            row["response_factor"],
            row["error"],
            bool(row["drift"]),
        )
    return Learned(CALIBRATION.kind, version, calibration=found)


def _forecast(version: int, rows: list[dict[str, Any]]) -> Learned:
    found: dict[Key, list[Expected]] = {}
    for row in rows:
        link, application, category = row["link"], row["application"], row["category"]
        if not link or row["topic"] is not None or (application is None and category is not None):
            continue  # of topics and categories: the loop plans by application and link
        if row["start"] is None or row["end"] is None or row["start"] >= row["end"]:
            raise UnusableError(f"an interval from {row['start']} to {row['end']}")
        bits, rate, low = row["bits"], row["rate"], row["low"]
        if not all(v is not None and 0 <= v < math.inf for v in (bits, rate)):
            raise UnusableError(f"link {link}: a load of {bits} bit/s, {rate} messages/s")
        key = ("" if application is None else application or "-", link)
        entry = Expected(
            _seconds(row["start"]), _seconds(row["end"]), rate, bits, 0.0 if low is None else low
        )
        found.setdefault(key, []).append(entry)
    return Learned(
        FORECAST.kind,
        version,
        forecast={
            key: tuple(sorted(entries, key=lambda e: e.start)) for key, entries in found.items()
        },
    )


def _seconds(moment: datetime) -> float:
    return moment.timestamp()


class Knowledge:
    """What is in force of what was learned."""

    def __init__(self) -> None:
        self.calibration: Mapping[str, Calibrated] = {}
        self.forecast: Mapping[Key, tuple[Expected, ...]] = {}
        self.versions: dict[str, int] = {}

    def take(self, learned: Learned) -> None:
        self.versions[learned.kind] = learned.version
        if learned.kind == CALIBRATION.kind:
            self.calibration = {
                name: link for name, link in learned.calibration.items() if link.usable
            }
        else:
            self.forecast = learned.forecast

    def expected(self, now: float, seconds: float) -> dict[Key, Expected]:
        """The largest load of each application on each link from now until then."""
        found: dict[Key, Expected] = {}
        for key, entries in self.forecast.items():
            due = [e for e in entries if e.start <= now + seconds and e.end > now]
            if due:
                found[key] = max(due, key=lambda entry: entry.bits)
        return found


def watch(
    folder: Path, tell: Callable[[Learned | Refused], None], stopped: threading.Event
) -> threading.Thread:
    """Look every few seconds, in a thread of its own: reading files never holds up the loop."""
    reader = Reader(folder)

    def run() -> None:
        while True:
            for news in reader.look():
                tell(news)
            if stopped.wait(LOOK_EVERY):
                return

    thread = threading.Thread(target=run, name="knowledge", daemon=True)
    thread.start()
    return thread
