"""The lake's tables: their fields, and what each means (docs/lake.md has them too)."""

from __future__ import annotations

from headgate.contract.records import CAPTURES

MESSAGE = ", ".join(f"`{field.name}` {field.type.value}" for field in CAPTURES.fields)

BRONZE = MESSAGE

QUARANTINE = f"{MESSAGE}, format string, reason string"

SILVER = (
    "broker string, sequence bigint, part int, at timestamp, topic string, client string, "
    "format string, name string, time timestamp, stamped timestamp, "
    "value double, text string, flag boolean, unit string, quality string, "
    "sensor string, place string, owner string, period_s double"
)

STATISTICS = (
    "start timestamp, end timestamp, topic string, name string, sensor string, unit string, "
    "place string, owner string, count bigint, mean double, min double, max double, "
    "stddev double, first double, last double, p50 double, p95 double, "
    "gaps bigint, longest_s double, skew_ms double"
)

GAPS = (
    "start timestamp, end timestamp, topic string, name string, sensor string, place string, "
    "owner string, seconds double, period_s double, missed bigint"
)

SENSORS = (
    "topic string, name string, sensor string, unit string, place string, owner string, "
    "count bigint, first_time timestamp, last_time timestamp, last_at timestamp, "
    "period_s double, estimated boolean, skew_ms double, silent_s double, late boolean, "
    "distances array<struct<bucket: int, n: double>>"
)

TABLES = {
    "bronze": BRONZE,
    "silver": SILVER,
    "quarantine": QUARANTINE,
    "gold/statistics": STATISTICS,
    "gold/gaps": GAPS,
    "gold/sensors": SENSORS,
}
"""By their place below the output."""

WHOLE = ("gold/sensors",)
"""Tables of one file that each step replaces; all others grow by a file for each step and day."""
