"""How clients come and go, from events: periods by hand, estimates against theory."""

from __future__ import annotations

import math
from datetime import timedelta
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

from headgate.contract.records import CONNECTIONS
from headgate.model.inverse import largest_join
from headgate.pipeline.connecting import habits, joining, largest_joins, periods, traffic
from headgate.pipeline.records import spark_schema

from .recording import NOON, record
from .recording import frame as messages_frame

Event = tuple[float, str, str, str]
"""Seconds past noon, event, client, reason."""


def frame(spark: SparkSession, *runs: list[Event]) -> DataFrame:
    """The events of several runs of the broker."""
    rows = [
        (
            *(f"run-{number}", sequence, NOON + timedelta(seconds=at), event, client),
            *("", "", "", reason, 5, None, 60),
        )
        for number, events in enumerate(runs)
        for sequence, (at, event, client, reason) in enumerate(events)
    ]
    return spark.createDataFrame(rows, spark_schema(CONNECTIONS))


def found(rows: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(
        (
            (row["start"] - NOON.replace(tzinfo=None)).total_seconds(),
            row["state"],
            row["seconds"],
            row["complete"],
        )
        for row in rows.collect()
    )


def test_periods_begin_and_end_as_clients_do(spark: SparkSession) -> None:
    rows = periods(
        frame(
            spark,
            [
                (0, "broker-started", "", ""),
                (1, "connected", "a", ""),
                (5, "parted", "a", "lost"),
                (12, "connected", "a", ""),
                (20, "connected", "b", ""),
                (30, "broker-stopped", "", ""),
            ],
        )
    ).where("client = 'a'")
    assert found(rows) == [(1, "on", 4, True), (5, "off", 7, True), (12, "on", 18, False)]


def test_a_client_that_takes_over_was_never_away(spark: SparkSession) -> None:
    rows = periods(
        frame(
            spark,
            [
                (1, "connected", "a", ""),
                (5, "parted", "a", "taken-over"),
                (5, "connected", "a", ""),
                (9, "parted", "a", "disconnect"),
                (10, "session-ended", "a", ""),
            ],
        )
    )
    assert found(rows) == [(1, "on", 8, True), (9, "off", 1, False)]


def test_the_end_of_the_broker_says_nothing_of_its_clients(spark: SparkSession) -> None:
    rows = periods(
        frame(
            spark,
            [
                (1, "connected", "a", ""),
                (5, "parted", "a", "shutdown"),
                (5, "broker-stopped", "", ""),
            ],
            [
                (50, "broker-started", "", ""),
                (51, "connected", "a", ""),
                (53, "connected", "b", ""),
            ],
        )
    ).where("client = 'a'")
    assert found(rows) == [(1, "on", 4, False), (51, "on", 2, False)]


def test_what_is_censored_counts_as_time_and_not_as_a_period(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [
            ("r", "a", "on", NOON, seconds, complete)
            for seconds, complete in ((4.0, True), (6.0, False))
        ],
        "broker string, client string, state string, start timestamp, seconds double, "
        "complete boolean",
    )
    (known,) = habits(rows).collect()
    assert (known["periods"], known["mean_s"]) == (1, 10.0)
    # 2·T/mean is chi-square with 2 degrees of freedom, whose quantiles are -2·ln(1 - p).
    assert known["low_s"] == pytest.approx(20 / (-2 * math.log(0.025)))
    assert known["high_s"] == pytest.approx(20 / (-2 * math.log(0.975)))
    assert known["exponential"] is None


def drawn(spark: SparkSession, clients: int, count: int, draw: Any) -> DataFrame:
    data = pd.DataFrame(
        {
            "broker": "r",
            "client": np.repeat([f"c{number}" for number in range(clients)], count),
            "state": "on",
            "start": NOON.replace(tzinfo=None),
            "seconds": [draw() for _ in range(clients * count)],
            "complete": True,
        }
    )
    return spark.createDataFrame(data)


def test_exponential_periods_are_recognised_and_their_mean_is_covered(spark: SparkSession) -> None:
    rng = Random(5)
    known = habits(drawn(spark, 400, 30, lambda: rng.expovariate(1 / 20))).collect()
    covered = sum(row["low_s"] <= 20 <= row["high_s"] for row in known)
    rejected = sum(not row["exponential"] for row in known)
    # 95 % of 400 and 5 % of 400, each within four deviations of a binomial count (4.36).
    assert abs(covered - 380) < 18
    assert abs(rejected - 20) < 18


def test_periods_of_another_kind_are_told_from_exponential_ones(spark: SparkSession) -> None:
    rng = Random(6)
    known = habits(drawn(spark, 50, 30, lambda: rng.uniform(18, 22))).collect()
    assert not any(row["exponential"] for row in known)
    assert all(row["scv"] < 0.01 for row in known)


def test_the_join_probability_is_that_of_the_model() -> None:
    """ON/OFF's setting: 8/s served, 20 s here and 20 s away, 7 s asked, at several loads;
    and cases at both ends."""
    cases = [(1.0, 7.0), (3.0, 7.0), (7.9, 7.0), (1.0, 100.0), (1.0, 0.01), (float("nan"), 7.0)]
    arrival, threshold = (pd.Series(values) for values in zip(*cases, strict=True))
    same = [pd.Series([value] * len(cases)) for value in (8.0, 20.0, 20.0)]
    values = largest_joins(arrival, *same, threshold)
    for (rate, asked), value in zip(cases, values, strict=True):
        if math.isnan(rate):
            assert math.isnan(value)
            continue
        answer = largest_join(rate, 8.0, 20.0, 20.0, asked)
        expected = getattr(answer, "value", 0.0)
        assert value == pytest.approx(expected, abs=1e-6), (rate, asked)


def test_traffic_is_offered_over_the_time_that_was_recorded(spark: SparkSession) -> None:
    records = [
        record(0, messages=30),
        record(4, outcome="dropped", reason="disconnected", waited_ms=None, messages=10),
        record(5, outcome="acknowledged", waited_ms=None, acknowledged_ms=100.0),
        record(10, outcome="acknowledged", waited_ms=None, acknowledged_ms=400.0),
        record(3, retained=True),
    ]
    thresholds = spark.createDataFrame([("app", 7.0)], "application string, threshold_s double")
    (row,) = traffic(messages_frame(spark, records), thresholds).collect()
    assert row["arrival_rate"] == pytest.approx(40 / 10)
    assert row["service_rate"] == pytest.approx(2 / 0.5)
    assert row["threshold_s"] == 7.0


def test_habits_and_traffic_come_together(spark: SparkSession) -> None:
    known = spark.createDataFrame(
        [
            ("a", "on", 9, 20.0, 1.0, 2.0, 1.0, 0.5, True),
            ("a", "off", 9, 20.0, 1.0, 2.0, 1.0, 0.5, True),
            ("b", "on", 1, 20.0, 1.0, 2.0, None, None, None),
        ],
        "client string, state string, periods long, mean_s double, low_s double, high_s double, "
        "scv double, distance double, exponential boolean",
    )
    traffic = spark.createDataFrame(
        [("a", 1.0, 8.0, 7.0), ("b", 1.0, 8.0, 7.0)],
        "client string, arrival_rate double, service_rate double, threshold_s double",
    )
    a, b = joining(known, traffic).sort("client").collect()
    assert a["join"] == pytest.approx(largest_join(1.0, 8.0, 20.0, 20.0, 7.0).value, abs=1e-6)
    assert b["join"] is None or math.isnan(b["join"])
