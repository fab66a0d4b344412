"""Observing as records come: what is late, what is twice, and what a kill does."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from broker_process import COMMAND
from pyspark.sql import DataFrame, SparkSession

from headgate.config import Configuration
from headgate.contract.records import MESSAGES
from headgate.pipeline.jobs.damaged import Damaged
from headgate.pipeline.jobs.observe import Observe, follow, observe

from .recording import Record, record, segment

PATIENCE = 240.0


def catch_up(spark: SparkSession, folder: Path, files: int = 200) -> None:
    job = Observe(
        str(folder / "records"),
        str(folder / "metrics"),
        window=10,
        lateness=30,
        files=files,
    )
    query = follow(spark, job, Configuration(), None)
    query.awaitTermination()
    assert query.exception() is None


def metrics(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.parquet(str(folder / "metrics")).where("view = 'link'")


def sent(spark: SparkSession, folder: Path) -> dict[int, float]:
    """Messages by the second past noon at which their window begins; each window only once."""
    rows = metrics(spark, folder).select("start", "sent").collect()
    found = {row["start"].minute * 60 + row["start"].second: row["sent"] for row in rows}
    assert len(found) == len(rows), "a window was written twice"
    return found


def test_a_window_is_written_when_nothing_of_it_can_come_any_more(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = tmp_path / "records"
    segment(records, "1", [record(1), record(12)])
    catch_up(spark, tmp_path)
    assert sent(spark, tmp_path) == {}  # no window yet, but a table that says which fields it has
    segment(records, "2", [record(5), record(45)])  # 5 is late, but not too late
    catch_up(spark, tmp_path)
    assert sent(spark, tmp_path) == {0: 2}
    segment(records, "3", [record(3), record(100)])  # 3 is too late: its window is written
    catch_up(spark, tmp_path)
    segment(records, "3", [record(99)], day="2026-11-18")  # a copy of what was read, by its name
    catch_up(spark, tmp_path)
    assert sent(spark, tmp_path) == {0: 2, 10: 1, 40: 1}
    # Of those that closed no window only the first has left a file.
    files = {file.parent.name for file in (tmp_path / "metrics").glob("batch=*/*.parquet")}
    closing = spark.read.parquet(str(tmp_path / "metrics")).select("batch").distinct().count()
    assert len(files) == 1 + closing


def test_a_damaged_segment_does_not_stop_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    records = tmp_path / "records"
    segment(records, "1", [record(1)])
    damaged = segment(records, "2", [record(2)])
    damaged.write_bytes(damaged.read_bytes()[:50])
    damaged.with_name("foreign.parquet").write_text("this is no Parquet, though it says so")
    damaged.with_name("empty.parquet").touch()
    catch_up(spark, tmp_path)
    segment(records, "3", [record(100)])
    catch_up(spark, tmp_path)
    assert sent(spark, tmp_path) == {0: 1}

    looking = Damaged(spark, str(records), MESSAGES, str(tmp_path / "metrics"))
    assert looking.look() == ["2.parquet", "foreign.parquet"]
    assert looking.look() == []
    damaged.with_name("4.parquet").write_bytes(damaged.read_bytes())
    assert looking.look() == ["4.parquet"]
    # The list is kept with the output, and is no part of what is read of it.
    again = Damaged(spark, str(records), MESSAGES, str(tmp_path / "metrics"))
    assert (again.look(), again.count) == ([], 3)
    assert sent(spark, tmp_path) == {0: 1}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_in_the_middle_it_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """A process of its own, killed with all its children while it works; then another one."""
    records = tmp_path / "records"
    rng = Random(3)
    everything: list[Record] = []
    for number in range(30):
        batch = [
            record(number * 10 + rng.random() * 10, messages=rng.randrange(1, 5)) for _ in range(50)
        ]
        everything += batch
        segment(records, f"{number:03d}", batch)
    watched = tmp_path / "metrics" / "_checkpoint" / "commits"

    process = following(tmp_path)
    wait_for(lambda: watched.exists() and len(list(watched.glob("[0-9]*"))) >= 2, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    committed = len(list(watched.glob("[0-9]*")))
    assert committed < 30, "it was done before it was killed: the test shows nothing"

    catch_up(spark, tmp_path, files=10)  # the rest in few steps: it is the first that counts
    found = sent(spark, tmp_path)
    expected: dict[int, float] = {}
    for one in everything:
        start = (one["at"].minute * 60 + one["at"].second) // 10 * 10
        expected[start] = expected.get(start, 0) + one["messages"]
    # What lies less than the allowed lateness before the last record is not closed yet.
    closed = {start: count for start, count in expected.items() if start + 10 <= 300 - 30 - 10}
    assert {start: found[start] for start in closed} == closed
    assert all(found[start] == expected[start] for start in found)


def following(folder: Path) -> subprocess.Popen[bytes]:
    command = [COMMAND, "pipeline", "observe", folder / "records", folder / "metrics"]
    options = ["--follow", "100ms", "--lateness", "30s", "--files", "1"]
    spark = ["--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=2"]
    return subprocess.Popen([*command, *options, *spark], start_new_session=True)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, "the job ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_in_one_go_and_in_steps_give_the_same(spark: SparkSession, tmp_path: Path) -> None:
    records = tmp_path / "records"
    rng = Random(4)
    for number in range(4):
        batch = [
            record(number * 20 + rng.random() * 20, waited_ms=rng.expovariate(0.1))
            for _ in range(100)
        ]
        segment(records, f"{number}", batch)
    segment(records, "last", [record(1000)])
    catch_up(spark, tmp_path)
    segment(records, "after", [record(1001)])
    catch_up(spark, tmp_path)
    whole = Observe(str(records), str(tmp_path / "whole"))
    observe(spark, whole, Configuration())
    columns = ["start", "view", "client", "topic", "sent", "p50_ms", "p99_ms", "mean_ms"]
    closed = "start < '2026-11-17 12:16:00'"
    stepwise = spark.read.parquet(str(tmp_path / "metrics")).where(closed).select(columns)
    at_once = spark.read.parquet(str(tmp_path / "whole")).where(closed).select(columns)
    assert stepwise.count() == 8 * 5
    assert rounded(stepwise) == rounded(at_once)


def rounded(rows: DataFrame) -> list[tuple[object, ...]]:
    return sorted(
        (
            tuple(round(value, 6) if isinstance(value, float) else value for value in row)
            for row in rows.collect()
        ),
        key=repr,
    )
