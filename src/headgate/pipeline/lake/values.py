"""From a document, JSON's or CBOR's, to measurements: one for each value, however deep it lies.

`{"value": 21.5, "unit": "C", "ts": …}` is one reading with its unit and time; in other objects each
member is a measurement of its own, named by its path. docs/lake.md has the mapping.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from headgate.pipeline.lake.undecodable import UndecodableError

MEASUREMENTS = (
    "array<struct<name: string, stamp: timestamp, value: double, text: string, flag: boolean, "
    "unit: string, quality: string>>"
)
"""What every format is decoded to."""

ARROW_MEASUREMENTS = pa.list_(
    pa.struct(
        [
            ("name", pa.string()),
            ("stamp", pa.timestamp("us", tz="UTC")),
            ("value", pa.float64()),
            ("text", pa.string()),
            ("flag", pa.bool_()),
            ("unit", pa.string()),
            ("quality", pa.string()),
        ]
    )
)

DEPTH = 64
STAMPS = ("ts", "time", "timestamp", "datetime")
UNITS = ("unit", "units", "uom")
QUALITIES = ("quality", "status")
DESCRIBING = frozenset((*UNITS, *QUALITIES))
READING = "value"

FIRST_S, LAST_S = 946_684_800, 4_102_444_800
"""From 2000 to 2100: what a time stamp can be; in s, ms, µs or ns these do not overlap."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ISO = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}")

Measurement = dict[str, Any]


def measurements(document: Any) -> list[Measurement]:
    found: list[Measurement] = []
    collect(document, "", None, None, None, 0, found)
    return found


def collect(
    item: Any,
    path: str,
    stamp: datetime | None,
    unit: str | None,
    quality: str | None,
    depth: int,
    found: list[Measurement],
) -> None:
    """Add the values of an item, given what is said around it. One list and plain arguments: it
    runs for each value of each message."""
    if isinstance(item, dict):
        if depth > DEPTH:
            raise UndecodableError(f"nested deeper than {DEPTH} levels")
        reading = READING in item
        stamps = [key for key in STAMPS if key in item and stamp_of(item[key]) is not None]
        if stamps:
            stamp = stamp_of(item[stamps[0]])
        for key, value in item.items():
            if key in stamps:
                continue
            if not reading:
                collect(value, below(path, key), stamp, None, None, depth + 1, found)
            elif key == READING:
                told = first_text(item, UNITS), first_text(item, QUALITIES)
                collect(value, path, stamp, *told, depth + 1, found)
            elif key not in DESCRIBING:
                collect(value, below(path, key), stamp, None, None, depth + 1, found)
    elif isinstance(item, list):
        if depth > DEPTH:
            raise UndecodableError(f"nested deeper than {DEPTH} levels")
        for index, element in enumerate(item):
            collect(element, below(path, index), stamp, unit, quality, depth + 1, found)
    else:
        found.append(measurement(path or READING, item, stamp, unit, quality))


def below(path: str, key: str | int) -> str:
    return f"{path}.{key}" if path else str(key)


def measurement(
    name: str, item: Any, stamp: datetime | None, unit: str | None, quality: str | None
) -> Measurement:
    number = isinstance(item, int | float) and not isinstance(item, bool)
    return {
        "name": name,
        "stamp": stamp,
        "value": real(item) if number else None,
        "text": item if isinstance(item, str) else None,
        "flag": item if isinstance(item, bool) else None,
        "unit": unit,
        "quality": quality,
    }


def real(number: float) -> float:
    try:
        return float(number)
    except OverflowError:  # a whole number beyond all reals
        return math.inf if number > 0 else -math.inf


def first_text(item: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((str(item[key]) for key in keys if item.get(key) is not None), None)


def stamp_of(item: Any) -> datetime | None:
    """A moment, if it can be one: ISO 8601, or a number since 1970 in a unit that fits."""
    if isinstance(item, str):
        return iso(item)
    if isinstance(item, bool) or not isinstance(item, int | float):
        return None
    for scale in (1, 1_000, 1_000_000, 1_000_000_000):
        if FIRST_S * scale <= item < LAST_S * scale:
            return EPOCH + timedelta(microseconds=round(item * (1_000_000 / scale)))
    return None


def iso(text: str) -> datetime | None:
    if not ISO.match(text):
        return None
    try:
        found = datetime.fromisoformat(text)
        moment = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment if FIRST_S <= moment.timestamp() < LAST_S else None
