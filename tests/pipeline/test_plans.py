"""How Spark carries out jobs: what they read, how often, and nothing that grows with its square.

`observe` has a stricter test of its own, beside what it measures.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headgate.config import Configuration
from headgate.contract.records import CONNECTIONS, MESSAGES, Schema
from headgate.pipeline.calibrating import crossings, known_of
from headgate.pipeline.connecting import habits, joining, periods, traffic
from headgate.pipeline.forecasting import complete, covered, loads
from headgate.pipeline.jobs.connectivity import thresholds_of
from headgate.pipeline.jobs.observe import needs_of
from headgate.pipeline.observing import counted, measured
from headgate.pipeline.records import spark_schema

SURPRISES = (
    "CartesianProduct",  # every row with every row
    "BatchEvalPython",  # Python row by row, not in batches of Arrow
    "SortMergeJoin Cross",
)


def table(spark: SparkSession, place: Path, schema: Schema) -> DataFrame:
    """An empty table of records on disk, so that the plan shows what is read."""
    spark.createDataFrame([], spark_schema(schema)).write.parquet(str(place))
    return spark.read.schema(spark_schema(schema)).parquet(str(place))


def connectivity(spark: SparkSession, folder: Path) -> DataFrame:
    events = table(spark, folder / "connections", CONNECTIONS)
    messages = table(spark, folder / "messages", MESSAGES)
    offered = traffic(messages, thresholds_of(spark, Configuration()))
    return joining(habits(periods(events)), offered)


def calibration(spark: SparkSession, folder: Path) -> DataFrame:
    return known_of(crossings(table(spark, folder / "messages", MESSAGES), "60 seconds"), 100)


def forecast(spark: SparkSession, folder: Path) -> DataFrame:
    needs = needs_of(spark, Configuration())
    rows = measured(counted(table(spark, folder / "m", MESSAGES), needs, "10 seconds"), needs)
    rows.write.parquet(str(folder / "metrics"))
    metrics = spark.read.parquet(str(folder / "metrics"))
    return complete(loads(metrics, "900 seconds"), covered(metrics, 900.0, 100), 10)


@pytest.mark.parametrize(
    ("job", "scans", "loops"),
    [
        # Events for periods and for the ends of brokers, messages by client and for how long they
        # were recorded; that span is one row.
        (connectivity, 4, 1),
        # Work by level, responses, busy runs, and how fast these usually are.
        (calibration, 4, 0),
        # Of `observe`'s table, which is small; the grid of series and steps is what is wanted.
        (forecast, 7, 3),
    ],
    ids=["connectivity", "calibrate", "forecast"],
)
def test_the_plan_has_no_surprise(
    spark: SparkSession, tmp_path: Path, job: object, scans: int, loops: int
) -> None:
    assert callable(job)
    plan: str = job(spark, tmp_path)._jdf.queryExecution().executedPlan().toString()
    for surprise in SURPRISES:
        assert surprise not in plan, f"{surprise} in {plan}"
    found = Counter(re.findall(r"FileScan parquet|NestedLoopJoin", plan))
    assert found["FileScan parquet"] <= scans, plan
    # Each of them with a side that is broadcast: one row, or the steps of a forecast.
    assert found["NestedLoopJoin"] == plan.count("BroadcastNestedLoopJoin") == loops, plan
