"""What is measured of records, held against numbers that can be worked out by hand."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headgate.config import Configuration, parse
from headgate.contract.records import MESSAGES
from headgate.pipeline import sketches
from headgate.pipeline.jobs.observe import Observe, needs_of, observe
from headgate.pipeline.observing import QUANTILES, VIEWS, counted, exactly, measured
from headgate.pipeline.records import read, spark_schema, unreadable

from .recording import Record, frame, record, segment

NEEDY = parse(
    "applications: {app: {clients: ['app-*'], "
    "requirement: {response_ms: 50, percentile: 90, loss: 0.1}}}"
)


def measure(
    spark: SparkSession, records: list[Record], config: Configuration = NEEDY
) -> dict[str, list[dict[str, Any]]]:
    """What was measured, by view."""
    needs = needs_of(spark, config)
    rows = measured(counted(frame(spark, records), needs, "10 seconds"), needs)
    found: dict[str, list[dict[str, Any]]] = {view: [] for view in VIEWS}
    for row in rows.sort("start", "client", "application", "category", "topic", "link").collect():
        found[row["view"]].append(row.asDict())
    return found


def test_counts_rates_and_losses_add_up(spark: SparkSession) -> None:
    records = [
        record(1, messages=40, bytes=4000, waited_ms=10.0),
        record(2, messages=40, bytes=4000, waited_ms=20.0),
        record(3, outcome="dropped", reason="rate", messages=15),
        record(4, outcome="cut", messages=5),
        record(5, outcome="acknowledged", waited_ms=None, acknowledged_ms=8.0),
        record(12, messages=3),
    ]
    first, second = measure(spark, records)["flow"]
    assert (first["sent"], first["sent_bytes"], first["rate"]) == (80, 8000, 8.0)
    assert (first["dropped_rate"], first["cut"], first["acknowledged"]) == (15, 5, 1)
    assert first["loss"] == pytest.approx(0.2)
    assert first["mean_ms"] == pytest.approx(15.0)
    assert first["max_ms"] == 20.0
    assert first["acknowledged_mean_ms"] == 8.0
    assert (second["sent"], second["loss"]) == (3, 0.0)


def test_each_view_sums_what_belongs_to_it(spark: SparkSession) -> None:
    records = [
        record(client="app-1", topic="t/a"),
        record(client="app-2", topic="t/a"),
        record(client="film", application="", category="AN", topic="t/b", link=""),
    ]
    found = measure(spark, records)
    assert [row["client"] for row in found["flow"]] == ["app-1", "app-2", "film"]
    assert [(row["application"], row["sent"]) for row in found["application"]] == [
        ("", 1),
        ("app", 2),
    ]
    assert [(row["category"], row["sent"]) for row in found["category"]] == [("AN", 1), ("RT", 2)]
    assert [(row["topic"], row["sent"]) for row in found["topic"]] == [("t/a", 2), ("t/b", 1)]
    assert [(row["link"], row["sent"]) for row in found["link"]] == [("", 1), ("floor", 2)]


def test_a_sample_stands_for_all(spark: SparkSession) -> None:
    (row,) = measure(spark, [record(weight=100.0, messages=2), record(weight=100.0)])["link"]
    assert (row["sent"], row["rate"]) == (300, 30.0)


@pytest.mark.parametrize(
    ("waits", "drops", "met"),
    [
        ([10.0] * 95 + [60.0] * 5, 0, True),
        ([10.0] * 85 + [60.0] * 15, 0, False),
        ([10.0] * 95, 5, True),
        ([10.0] * 80, 20, False),
    ],
)
def test_requirements_are_judged_by_what_was_counted(
    spark: SparkSession, waits: list[float], drops: int, met: bool
) -> None:
    records = [record(waited_ms=wait) for wait in waits]
    records += [record(outcome="dropped", reason="rate")] * drops
    found = measure(spark, records)
    (row,) = found["application"]
    assert row["met"] is met
    assert row["within"] == pytest.approx(sum(wait <= 50 for wait in waits) / len(waits))
    assert found["flow"][0]["met"] is met
    assert found["topic"][0]["met"] is None


def test_retained_messages_say_nothing_of_response_times(spark: SparkSession) -> None:
    (row,) = measure(spark, [record(retained=True, waited_ms=9999.0)])["link"]
    assert (row["sent"], row["mean_ms"], row["p99_ms"], row["max_ms"]) == (1, None, None, None)


@pytest.mark.parametrize("scale", [0.01, 1.0, 10_000.0])
def test_quantiles_err_by_no_more_than_was_promised(spark: SparkSession, scale: float) -> None:
    rng = Random(7)
    waits = sorted(rng.expovariate(1 / scale) for _ in range(2000))
    (row,) = measure(spark, [record(waited_ms=wait) for wait in waits])["link"]
    for fraction, name in ((0.5, "p50_ms"), (0.95, "p95_ms"), (0.99, "p99_ms")):
        exact = max(waits[round(fraction * len(waits)) - 1], sketches.SHORTEST)
        assert row[name] == pytest.approx(exact, rel=sketches.ACCURACY * 1.001)


def test_exact_quantiles_are_those_of_all_values(spark: SparkSession) -> None:
    rng = Random(10)
    records = [
        record(rng.random() * 20, client=f"app-{rng.randrange(3)}", waited_ms=rng.expovariate(0.1))
        for _ in range(300)
    ]
    records.append(record(1, client="app-1", waited_ms=50.0, messages=40))  # stands for forty
    records.append(record(25, outcome="dropped", reason="rate"))  # a window without any response
    needs = needs_of(spark, NEEDY)
    all_of_them = frame(spark, records)
    rows = measured(counted(all_of_them, needs, "10 seconds"), needs)
    exact = exactly(rows, all_of_them, "10 seconds")
    assert exact.columns == rows.columns
    found = {
        (row["view"], row["client"], row["start"].second): row
        for row in exact.where("view in ('flow', 'link')").collect()
    }
    assert len(found) == 2 * 3 + 2 + 2
    for (view, client, start), row in found.items():
        values = [
            one["waited_ms"]
            for one in records
            for _ in range(one["messages"])
            if one["outcome"] == "sent"
            and one["at"].second // 10 * 10 == start
            and (view == "link" or one["client"] == client)
        ]
        for name, share in QUANTILES.items():
            expected = np.quantile(values, share) if values else None
            assert row[name] == (expected and pytest.approx(expected)), (view, client, name)


def test_a_sketch_has_each_bucket_once_in_order_and_nothing_is_lost(spark: SparkSession) -> None:
    rng = Random(9)
    waits = [rng.lognormvariate(0, 3) for _ in range(500)]  # from microseconds to seconds
    (row,) = measure(spark, [record(waited_ms=wait, weight=2.0) for wait in waits])["link"]
    found = {one["bucket"]: one["n"] for one in row["response"]}
    assert [one["bucket"] for one in row["response"]] == sorted(found)
    numbers = (
        math.ceil(math.log(max(wait, sketches.SHORTEST)) / math.log(sketches.GAMMA))
        for wait in waits
    )
    assert found == {number: 2.0 * n for number, n in Counter(numbers).items()}


def test_sketches_merge_into_what_all_together_would_have_given(spark: SparkSession) -> None:
    rng = Random(8)
    records = [record(rng.random() * 30, waited_ms=rng.lognormvariate(2, 1)) for _ in range(900)]
    needs = needs_of(spark, NEEDY)
    rows = measured(counted(frame(spark, records), needs, "10 seconds"), needs)
    merged = (
        rows.where("view = 'link'")
        .select(sf.explode("response").alias("one"))
        .groupBy("one.bucket")
        .agg(sf.sum("one.n").alias("n"))
        .agg(sf.array_sort(sf.collect_list(sf.struct("bucket", "n"))).alias("response"))
        .select(sketches.quantile(sf.col("response"), 0.95).alias("p95"))
    )
    whole = measured(counted(frame(spark, records), needs, "30 seconds"), needs)
    (expected,) = whole.where("view = 'link'").collect()
    assert merged.collect()[0]["p95"] == expected["p95_ms"]


# Segments


def names(rows: DataFrame) -> list[int]:
    return sorted(row["sequence"] for row in rows.select("sequence").collect())


def test_copies_of_a_segment_count_once(spark: SparkSession, tmp_path: Path) -> None:
    segment(tmp_path, "one", [record(sequence=1)])
    segment(tmp_path, "one", [record(sequence=1)], day="2026-11-18")
    segment(tmp_path, "two", [record(sequence=2)])
    assert names(read(spark, str(tmp_path), MESSAGES)) == [1, 2]


def test_a_damaged_segment_is_passed_over_and_named(spark: SparkSession, tmp_path: Path) -> None:
    segment(tmp_path, "good", [record(sequence=1)])
    whole = segment(tmp_path, "cut", [record(sequence=2)])
    whole.write_bytes(whole.read_bytes()[:-20])
    whole.with_name("empty.parquet").write_bytes(b"")
    whole.with_name(".half.parquet").write_bytes(b"not yet")
    done = observe(spark, Observe(str(tmp_path), str(tmp_path / "out")), Configuration())
    assert done.unreadable == ("cut.parquet",)
    assert done.rows == len(VIEWS)
    assert unreadable(spark, str(tmp_path), MESSAGES).count() == 1


def test_an_older_segment_still_reads(spark: SparkSession, tmp_path: Path) -> None:
    """One from before a field was added, and one from after a field that we do not know."""
    file = segment(tmp_path, "old", [record(sequence=1)])
    pq.write_table(pq.read_table(file, partitioning=None).drop_columns(["weight", "link"]), file)
    newer = segment(tmp_path, "new", [record(sequence=2)])
    table = pq.read_table(newer, partitioning=None)
    pq.write_table(table.append_column("mood", table["client"]), newer)
    rows = read(spark, str(tmp_path), MESSAGES)
    assert rows.columns == spark_schema(MESSAGES).fieldNames()
    found = {row["sequence"]: row for row in rows.collect()}
    assert (found[1]["weight"], found[1]["link"], found[1]["client"]) == (None, None, "app-1")
    assert found[2]["weight"] == 1.0


# The plan


def plan_of(rows: DataFrame) -> str:
    text: str = rows._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]
    return text


def test_the_plan_reads_once_what_it_needs_and_sorts_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    segment(tmp_path, "one", [record()])
    needs = needs_of(spark, NEEDY)
    counts = counted(read(spark, str(tmp_path), MESSAGES), needs, "10 seconds")
    plan = plan_of(measured(counts, needs))
    assert plan.count("FileScan parquet") == 1
    assert "PushedFilters: [IsNotNull(at)]" in plan
    (columns,) = re.findall(r"FileScan parquet \[(.*?)\]", plan)
    read_names = set(re.findall(r"(\w+)#", columns))
    assert not read_names & {"broker", "sequence", "arrived", "priority", "class", "qos"}
    for surprise in ("Sort", "Cartesian", "NestedLoop", "Python"):
        assert surprise not in plan, f"{surprise} in {plan}"
    # By flow, topic and stretch; by flow or topic, and stretch; by view.
    assert plan.count("Exchange hashpartitioning") == 3
