"""The lake as segments come: copies, late ones, damaged ones, older ones; and all anew."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from headgate.pipeline.jobs.lake import Amounts, Lake, catch_up, make
from headgate.pipeline.lake.tables import Tables, by_day

from .captured import NOON, Capture, capture, field, frame, metric, payload, segment


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


TOPIC = "spBv1.0/g/{}/n"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_message_is_there_once_whatever_the_segments(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = tmp_path / "records"
    segment(records, "1", readings(0, 40))
    segment(records, "2", readings(30, 60))  # a part of it again, as after a crash
    born = payload(metric("m", 1, 3, field(10, 1)))
    segment(records, "3", [capture(1, born, topic=TOPIC.format("NBIRTH"), broker="run-3")])
    segment(records, "none", [])
    damaged = segment(records, "damaged", readings(100, 110))
    damaged.write_bytes(damaged.read_bytes()[:-20])
    (records / "captures" / ".half.parquet").write_bytes(b"not yet")
    (tmp_path / "sensors.csv").write_text("topic,sensor,period\nhall/#,T1,1s\n")
    job = lake(tmp_path, registry=tmp_path / "sensors.csv")
    assert catch_up(spark, job) == Amounts(61, 46, 16)
    everything = [("run-1", number) for number in range(60)] + [("run-3", 1)]
    assert ids(table(spark, tmp_path, "bronze")) == everything
    silver, bad = table(spark, tmp_path, "silver"), table(spark, tmp_path, "quarantine")
    assert sorted(ids(silver) + ids(bad)) == everything
    (row,) = bad.where("broker is null").collect()
    assert row["reason"] == "segment damaged.parquet: cannot be read"
    assert silver.where("sensor = 'T1'").count() == 45

    # Another run of the broker; what is a week old; a segment from before a field was added, and
    # with one that nobody knows.
    old = NOON - timedelta(days=7)
    segment(records, "4", readings(0, 4, broker="run-2", at=old), day="2026-11-10")
    data = payload(metric(alias=1, value=field(10, 9)))
    segment(records, "5", [capture(2, data, 1, topic=TOPIC.format("NDATA"), broker="run-3")])
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
    assert hall(spark, tmp_path) == {0: 8, 10: 7, 20: 8}
    assert table(spark, tmp_path, "gold/sensors").where("sensor = 'T1'").count() == 1


def hall(spark: SparkSession, folder: Path) -> dict[int, int]:
    """Values by the second past noon at which their interval begins; each interval only once."""
    statistics = table(spark, folder, "gold/statistics").where("topic = 'hall/temperature'")
    rows = statistics.where("date = '2026-11-17'").collect()
    found = {row["start"].minute * 60 + row["start"].second: row["count"] for row in rows}
    assert len(found) == len(rows), "an interval was written twice"
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_made_anew_it_is_of_all_of_bronze_and_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    records = tmp_path / "records"
    (tmp_path / "sensors.csv").write_text("topic,sensor\nhall/#,T1\n")
    job = lake(tmp_path, registry=tmp_path / "sensors.csv")
    born = payload(metric("m", 1, 3, field(10, 1)))
    data = payload(metric(alias=1, value=field(10, 9)))
    segment(records, "1", readings(30, 62))
    segment(records, "2", [capture(2, data, 1, topic=TOPIC.format("NDATA"), broker="run-3")])
    assert catch_up(spark, job) == Amounts(33, 24, 9)  # its alias is not known
    # What is late for gold, and the certificate that was missing.
    segment(records, "3", readings(0, 30))
    segment(records, "4", [capture(1, born, topic=TOPIC.format("NBIRTH"), broker="run-3")])
    (tmp_path / "sensors.csv").write_text("topic,sensor\nhall/#,T2\n")
    assert make(spark, job) == Amounts(64, 49, 15)
    silver = table(spark, tmp_path, "silver")
    assert {row["sensor"] for row in silver.select("sensor").distinct().collect()} == {
        "T2",
        TOPIC.format("NBIRTH"),
        TOPIC.format("NDATA"),
    }
    assert hall(spark, tmp_path) == {0: 8, 10: 7, 20: 8, 30: 7, 40: 8, 50: 7, 60: 2}
    # As a stream again: what is not complete is not there.
    segment(records, "5", readings(62, 75))
    assert catch_up(spark, job).messages == 64 + 13
    assert hall(spark, tmp_path) == {0: 8, 10: 7, 20: 8, 30: 7}


def test_a_day_that_is_over_becomes_one_file(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path / "lake"))
    for step, numbers in enumerate([range(4), range(4, 9), range(86400, 86402)]):
        some = [capture(number, "1", number) for number in numbers]
        tables.publish(by_day(frame(spark, some), "at"), "bronze", step, ["broker", "sequence"])
    before = ids(table(spark, tmp_path, "bronze"))
    assert tables.compact(spark, "bronze") == 1
    assert ids(table(spark, tmp_path, "bronze")) == before
    day = tmp_path / "lake" / "bronze" / "date=2026-11-17"
    assert len(list(day.glob("*.parquet"))) == 1
    late = by_day(frame(spark, [capture(9, "1", 9)]), "at")
    for _ in range(2):  # a step that is repeated replaces its files
        tables.publish(late, "bronze", 3, ["broker", "sequence"])
    assert ids(table(spark, tmp_path, "bronze")) == sorted([*before, ("run-1", 9)])
    assert len(list(day.glob("*.parquet"))) == 2


def test_a_lake_of_nothing_has_its_tables(spark: SparkSession, tmp_path: Path) -> None:
    segment(tmp_path / "records", "none", [])
    assert catch_up(spark, lake(tmp_path)) == Amounts(0, 0, 0)
    for name in ("bronze", "silver", "quarantine", "gold/statistics", "gold/gaps", "gold/sensors"):
        assert table(spark, tmp_path, name).count() == 0
