"""The lake as segments come: copies, late ones, damaged ones, older ones; and all anew."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from headgate.pipeline.jobs.lake import Amounts, Lake, catch_up, compact, make

from .captured import NOON, Capture, capture, field, metric, payload, segment


def lake(folder: Path, **options: object) -> Lake:
    chosen = {"interval": 10.0, "lateness": 30.0, **options}
    return Lake(str(folder / "records"), str(folder / "lake"), **chosen)  # type: ignore[arg-type]


def table(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    return spark.read.parquet(str(folder / "lake" / name))


def ids(rows: DataFrame) -> list[tuple[str, int]]:
    found = rows.where("broker is not null").select("broker", "sequence").collect()
    return sorted((row["broker"], row["sequence"]) for row in found)


def readings(first: int, last: int, **values: object) -> list[Capture]:
    """One each second, every fourth in quarantine."""
    return [
        {**capture(number, "{" if number % 4 == 3 else str(number), number), **values}
        for number in range(first, last)
    ]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_message_is_there_once_whatever_the_segments(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = tmp_path / "records"
    topic = "spBv1.0/g/{}/n"
    segment(records, "1", readings(0, 40))
    segment(records, "2", readings(30, 60))  # a part of it again, as after a crash
    born = payload(metric("m", 1, 3, field(10, 1)))
    segment(records, "3", [capture(1, born, topic=topic.format("NBIRTH"), broker="run-3")])
    segment(records, "none", [])
    damaged = segment(records, "damaged", readings(100, 110))
    damaged.write_bytes(damaged.read_bytes()[:-20])
    (records / "captures" / ".half.parquet").write_bytes(b"not yet")
    (tmp_path / "sensors.csv").write_text("topic,sensor,period\nhall/#,T1,1s\n")
    job = lake(tmp_path, registry=tmp_path / "sensors.csv", files=2)
    done = catch_up(spark, job)
    assert done == Amounts(61, 46, 16)
    everything = [("run-1", number) for number in range(60)] + [("run-3", 1)]
    assert ids(table(spark, tmp_path, "bronze")) == everything
    silver, bad = table(spark, tmp_path, "silver"), table(spark, tmp_path, "quarantine")
    assert sorted(ids(silver) + ids(bad)) == everything
    (row,) = bad.where("broker is null").collect()
    assert row["reason"] == "segment damaged.parquet: cannot be read"
    assert silver.where("sensor = 'T1'").count() == 45

    # Another run of the broker; what is a week old; a segment from before a field was added, and
    # one with a field that nobody knows.
    old = NOON - timedelta(days=7)
    segment(records, "4", readings(0, 4, broker="run-2", at=old), day="2026-11-10")
    data = payload(metric(alias=1, value=field(10, 9)))
    segment(records, "5", [capture(2, data, 1, topic=topic.format("NDATA"), broker="run-3")])
    segment(records, "1", readings(0, 40), day="2026-11-18")  # a copy of a segment
    older = segment(records, "6", readings(60, 62))
    without = pq.read_table(older, partitioning=None).drop_columns(["properties", "duplicate"])
    pq.write_table(without.append_column("mood", without["client"]), older)
    assert catch_up(spark, job) == Amounts(68, 52, 17)
    everything += [("run-1", 60), ("run-1", 61), ("run-3", 2)]
    everything = sorted(everything + [("run-2", number) for number in range(4)])
    assert ids(table(spark, tmp_path, "bronze")) == everything
    silver = table(spark, tmp_path, "silver")
    assert sorted(ids(silver) + ids(table(spark, tmp_path, "quarantine"))) == everything
    (row,) = silver.where("broker = 'run-3' and sequence = 2").collect()
    assert (row["name"], row["value"]) == ("m", 9.0)
    days = {row["date"].isoformat() for row in silver.select("date").distinct().collect()}
    assert days == {"2026-11-10", "2026-11-17"}

    # Windows that are complete: all but the last half minute.
    statistics = table(spark, tmp_path, "gold/statistics").where("topic = 'hall/temperature'")
    counts = {row["start"].second: row["count"] for row in statistics.collect()}
    assert counts == {0: 8, 10: 7, 20: 8}
    assert table(spark, tmp_path, "gold/sensors").where("sensor = 'T1'").count() == 1

    # The same anew, in one go: here nothing is too late for gold.
    kept = silver.toPandas().sort_values(["broker", "sequence"]).drop(columns="date")
    (tmp_path / "sensors.csv").write_text("topic,sensor,period\nhall/#,T2,1s\n")
    assert make(spark, job) == Amounts(68, 52, 17)
    again = table(spark, tmp_path, "silver").toPandas().sort_values(["broker", "sequence"])
    assert set(again["sensor"]) == {"T2", *(set(kept["sensor"]) - {"T1"})}
    columns = ["broker", "sequence", "part", "at", "time", "value", "text", "name", "format"]
    assert again[columns].values.tolist() == kept[columns].values.tolist()
    statistics = table(spark, tmp_path, "gold/statistics").where("topic = 'hall/temperature'")
    assert sum(row["count"] for row in statistics.collect()) == 47 + 3

    # And on, as a stream.
    segment(records, "7", readings(62, 120))
    assert catch_up(spark, job).messages == 68 + 58
    segment(records, "8", readings(120, 122))
    assert catch_up(spark, job).messages == 68 + 60
    statistics = table(spark, tmp_path, "gold/statistics").where("topic = 'hall/temperature'")
    starts = [row["start"] for row in statistics.collect()]
    assert len(starts) == len(set(starts))
    assertDataFrameEqual(
        statistics.where("start >= '2026-11-17 12:01:00'").select("count"),
        spark.createDataFrame([(8,), (7,), (8,)], "count bigint"),
    )

    # A day that is over becomes one file, and what comes for it later is added.
    segment(records, "9", readings(200, 201, at=NOON + timedelta(days=1)), day="2026-11-18")
    catch_up(spark, job)
    before = {name: ids(table(spark, tmp_path, name)) for name in ("bronze", "silver")}
    assert compact(spark, job) >= 2
    assert {name: ids(table(spark, tmp_path, name)) for name in before} == before
    for name in before:
        assert len(list((tmp_path / "lake" / name / "date=2026-11-17").glob("*.parquet"))) == 1
    segment(records, "10", readings(122, 123))
    assert catch_up(spark, job).messages == 68 + 62


def test_a_lake_of_nothing_has_its_tables(spark: SparkSession, tmp_path: Path) -> None:
    segment(tmp_path / "records", "none", [])
    assert catch_up(spark, lake(tmp_path)) == Amounts(0, 0, 0)
    for name in ("bronze", "silver", "quarantine", "gold/statistics", "gold/gaps", "gold/sensors"):
        assert table(spark, tmp_path, name).count() == 0
