"""Statistics, gaps and silence, held against what can be worked out by hand."""

from __future__ import annotations

import statistics
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertSchemaEqual

from headgate.pipeline.lake.gold import Gold, made, windowed
from headgate.pipeline.lake.schemas import GAPS, SENSORS, SILVER, STATISTICS

from .captured import NOON

FIELDS = [part.split()[0] for part in SILVER.split(", ")]


def reading(
    at: float, value: float | None = 1.0, topic: str = "t", **values: Any
) -> tuple[Any, ...]:
    moment = NOON + timedelta(seconds=at)
    row = {"topic": topic, "sensor": topic, "name": "value", "at": moment, "time": moment}
    row |= {"value": value, **values}
    return tuple(row.get(name) for name in FIELDS)


def gold(spark: SparkSession, rows: list[tuple[Any, ...]], before: DataFrame | None = None) -> Gold:
    nobody = spark.createDataFrame([], SENSORS)
    windows = windowed(spark.createDataFrame(rows, SILVER), "1 minute")
    return made(windows, nobody if before is None else before, 3.0)


def test_an_interval_is_what_its_values_are(spark: SparkSession) -> None:
    values = [3.0, 1.0, 4.0, 1.5, 9.0, 2.0]
    rows = [reading(10 * number, value) for number, value in enumerate(values)]
    rows += [reading(60, None, flag=True), reading(65, None, text="warm"), reading(66, None)]
    result = gold(spark, rows)
    assertSchemaEqual(result.statistics.schema, schema(spark, STATISTICS), ignoreNullable=True)
    first, second = result.statistics.sort("start").collect()
    assert (first["count"], first["min"], first["max"]) == (6, 1.0, 9.0)
    assert first["mean"] == pytest.approx(statistics.mean(values))
    assert first["stddev"] == pytest.approx(statistics.stdev(values))
    assert (first["first"], first["last"]) == (3.0, 2.0)
    assert (first["p50"], first["p95"]) == (2.0, 9.0)
    assert (first["gaps"], first["longest_s"]) == (0, 10.0)
    assert (first["end"] - first["start"]).total_seconds() == 60
    assert (second["count"], second["mean"], second["last"]) == (2, 1.0, None)


def test_gaps_are_found_within_and_across_intervals_and_steps(spark: SparkSession) -> None:
    """Every 10 s; nothing between 50 and 90, between 100 and 140 (estimated and registered)."""
    moments = [0, 10, 20, 30, 40, 50, 90, 100, 140, 150]
    rows = [reading(at) for at in moments]
    rows += [reading(at, topic="slow", period_s=30.0) for at in moments]
    at_once = gold(spark, rows)
    assertSchemaEqual(at_once.gaps.schema, schema(spark, GAPS), ignoreNullable=True)
    expected = [("t", 50, 40.0, 3), ("t", 100, 40.0, 3)]
    assert gaps(at_once) == expected
    counts = {
        (row["topic"], (row["start"].minute)): row["gaps"] for row in at_once.statistics.collect()
    }
    assert counts[("t", 0)] == 0
    assert counts[("t", 1)] == 1
    assert counts[("t", 2)] == 1

    # The same in steps, each from what the one before knew.
    found, known = [], None
    for minute in range(3):
        some = [row for row in rows if minute * 60 <= seconds(row) < minute * 60 + 60]
        step = gold(spark, some, known)
        found += gaps(step)
        known = spark.createDataFrame(step.sensors.collect(), SENSORS)
    assert sorted(found) == expected
    assert known is not None
    assert sorted(map(repr, known.collect())) == sorted(map(repr, at_once.sensors.collect()))


def gaps(result: Gold) -> list[tuple[str, int, float, int]]:
    return sorted(
        (
            row["topic"],
            row["start"].minute * 60 + row["start"].second,
            row["seconds"],
            row["missed"],
        )
        for row in result.gaps.collect()
    )


def seconds(row: tuple[Any, ...]) -> float:
    return float((row[FIELDS.index("time")] - NOON).total_seconds())


def test_who_is_silent_for_too_long_is_late(spark: SparkSession) -> None:
    rows = [reading(at, topic="here") for at in range(0, 100, 10)]
    rows += [reading(at, topic="gone") for at in range(0, 50, 10)]
    rows += [reading(at, topic="slow", period_s=60.0) for at in range(0, 50, 10)]
    rows += [reading(0, topic="once")]
    result = gold(spark, rows)
    assertSchemaEqual(result.sensors.schema, schema(spark, SENSORS), ignoreNullable=True)
    found = {row["topic"]: row for row in result.sensors.collect()}
    assert {topic: row["late"] for topic, row in found.items()} == {
        "here": False,
        "gone": True,
        "slow": False,
        "once": None,  # nothing is known of how often it comes
    }
    assert found["gone"]["silent_s"] == 50.0
    assert found["here"]["period_s"] == pytest.approx(10.0, rel=0.011)
    assert (found["slow"]["period_s"], found["slow"]["estimated"]) == (60.0, False)
    assert found["here"]["count"] == 10


def test_the_skew_of_a_clock_is_that_of_most_values(spark: SparkSession) -> None:
    rows = [
        reading(10 * number, stamped=NOON + timedelta(seconds=10 * number - skew))
        for number, skew in enumerate([2.0, 2.0, 2.0, 30.0])
    ]
    (row,) = gold(spark, rows).statistics.collect()
    assert row["skew_ms"] == 2000.0


def schema(spark: SparkSession, ddl: str) -> Any:
    return spark.createDataFrame([], ddl).schema
