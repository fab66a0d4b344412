"""What the pipeline learned, as data: tables that its jobs write and the controller loads.

    knowledge/calibration/version=000001/*.parquet     one row for each link
                                        /_lineage.json
    knowledge/validation/version=000001/…              how good that calibration is
    knowledge/forecast/version=000001/…                load ahead of time
    knowledge/backtest/version=000001/…                how good that forecast would have been

A version counts only when its `_lineage.json` is there: it is written last, and at once. The
highest such version of a kind is in force. Versions are never overwritten; old ones are removed,
the newest stay (docs/knowledge.md). Schemas only ever grow, as those of `records` do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import msgspec

from headgate.contract.records import Field, Schema, Type

LINEAGE = "_lineage.json"
"""The file that makes a version count."""

CALIBRATION = Schema(
    "calibration",
    1,
    (
        Field("link", Type.TEXT, "the link, by its name"),
        Field(
            "rate",
            Type.REAL,
            "bit/s at which it sends when it always has something to send, headers and all; null "
            "if it is not known, because it was never busy for long enough",
        ),
        Field(
            "overhead",
            Type.REAL,
            "bytes that each packet costs on the link beside its own, on average",
        ),
        Field(
            "burstiness",
            Type.REAL,
            "factor on the waiting time that Poisson arrivals would give: 1 if arrivals are "
            "Poisson, less for periodic devices, more for bursts",
        ),
        Field(
            "response_factor",
            Type.REAL,
            "measured over modelled mean response, after burstiness; what is left, 1 at best",
        ),
        Field("samples", Type.WHOLE, "windows, or points of a sweep, that it was fitted to"),
        Field(
            "error",
            Type.REAL,
            "of the calibrated mean response on data that it was not fitted to: sum of absolute "
            "errors over sum of what was measured; null if there was too little",
        ),
        Field(
            "drift",
            Type.FLAG,
            "the newest data deviate from the version that was in force before this one, by more "
            "than chance; if there was none, from the older data",
        ),
        Field("since", Type.TIME, "when the data begin; null for a sweep, which has no time"),
        Field("until", Type.TIME, "when they end"),
    ),
)
"""How a link differs from the model of it.

With `modelled` the response (mean or percentile) that the model gives for Poisson arrivals on a
link of `rate` with `overhead`, and `service` = 8 x (packet bytes + overhead) / rate, a packet's own
time on the link, the calibrated response is

    response_factor x (service + burstiness x (modelled - service))

A null `rate` leaves the rate as it is configured or estimated; the other values hold all the same.
"""

VALIDATION = Schema(
    "validation",
    1,
    (
        Field("link", Type.TEXT, "the link"),
        Field("category", Type.TEXT, "the category; empty if the flows have none"),
        Field("start", Type.TIME, "the window that was not fitted to; null for a sweep"),
        Field("end", Type.TIME, "its end"),
        Field("point", Type.WHOLE, "the point of a sweep; null for a window"),
        Field("load", Type.REAL, "of the link: offered over rate, as calibrated"),
        Field("messages", Type.REAL, "messages sent; of a sweep, per second"),
        Field("mean_ms", Type.REAL, "measured mean response"),
        Field("p99_ms", Type.REAL, "measured 99th percentile"),
        Field("model_mean_ms", Type.REAL, "mean by the model without calibration; null: overload"),
        Field("model_p99_ms", Type.REAL, "99th percentile by the model without calibration"),
        Field("calibrated_mean_ms", Type.REAL, "mean by the calibrated model"),
        Field("calibrated_p99_ms", Type.REAL, "99th percentile by the calibrated model"),
    ),
)
"""Held-out data beside what the model says of them, before and after; of the same version number as
the calibration. It was then fitted to the earlier data only."""

FORECAST = Schema(
    "forecast",
    1,
    (
        Field("link", Type.TEXT, "the link, empty for flows of no link; null if of all links"),
        Field("application", Type.TEXT, "the application, empty for none; null if of all"),
        Field("category", Type.TEXT, "the category; null if of all"),
        Field("topic", Type.TEXT, "the topic; null if of all"),
        Field("start", Type.TIME, "the interval that is forecast"),
        Field("end", Type.TIME, "its end"),
        Field("rate", Type.REAL, "messages/s that are offered: sent, dropped or cut"),
        Field("bits", Type.REAL, "bit/s of their packets, without overhead of the link"),
        Field("low", Type.REAL, "lower end of the 90 % interval of `bits`"),
        Field("high", Type.REAL, "its upper end"),
        Field("model", Type.TEXT, "the model that was chosen; what each is: docs/knowledge.md"),
        Field(
            "error",
            Type.REAL,
            "of that model's back-test: sum of absolute errors of `bits` over sum of what came; "
            "null if there was too little for one",
        ),
    ),
)
"""Load ahead of time. A row is about one of these, told apart by what is null:

    link                            all flows of a link
    link, category                  those of one category
    link, category, application     those of one application
    topic                           all copies of one topic's messages, on whatever link

Load is what would be offered to the flows, whether or not a policy then drops some of it.
"""

BACKTEST = Schema(
    "backtest",
    1,
    (
        *FORECAST.fields[:4],
        Field("origin", Type.TIME, "what was known until then was forecast from"),
        Field("start", Type.TIME, "the interval that was forecast"),
        Field("model", Type.TEXT, "the model"),
        Field("chosen", Type.FLAG, "it is the one that was chosen"),
        Field("measured", Type.REAL, "bit/s that came"),
        Field("bits", Type.REAL, "bit/s that were forecast"),
    ),
)
"""What each model would have forecast at earlier times; same version number as the forecast."""

TABLES = {schema.kind: schema for schema in (CALIBRATION, VALIDATION, FORECAST, BACKTEST)}


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """What a version was made of."""

    kind: str
    """`messages` (records), `metrics` (of observe), `dataset` (of sweep)."""
    place: str
    files: int = 0
    """Segments or Parquet files."""
    rows: int = 0
    since: datetime | None = None
    until: datetime | None = None


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """Where a version comes from: what it was made of, by what, and how good it is."""

    kind: str
    version: int
    created: datetime
    inputs: tuple[Input, ...]
    code: str
    """Version of Headgate."""
    parameters: dict[str, str | float | int | bool | None]
    rows: int
    errors: dict[str, dict[str, float | None]]
    """Errors on held-out data, by what they are errors of (docs/knowledge.md)."""
    notes: tuple[str, ...] = ()
    """What a reader should know: what was left out, and why."""

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2)

    @classmethod
    def from_json(cls, data: bytes) -> Lineage:
        return msgspec.json.decode(data, type=cls)


def version_folder(kind: str, version: int) -> str:
    """Below the folder of all knowledge: `calibration/version=000001`."""
    return f"{kind}/version={version:06d}"


def version_of(name: str) -> int | None:
    """The version that a folder's name stands for; None if it is something else."""
    found = re.fullmatch(r"version=(\d{6,})", name)
    return int(found[1]) if found else None


def complete(files: Iterable[str]) -> list[int]:
    """Versions that count, ascending, of `version=…/…` paths below the folder of a kind."""
    versions = set()
    for file in files:
        folder, _, name = file.rpartition("/")
        version = version_of(folder.rpartition("/")[2])
        if name == LINEAGE and version is not None:
            versions.add(version)
    return sorted(versions)


def in_force(knowledge: Path, kind: str) -> int | None:
    """The version of a kind that is in force in a local folder; None if there is none."""
    found = complete(file.as_posix() for file in (knowledge / kind).glob(f"version=*/{LINEAGE}"))
    return found[-1] if found else None
