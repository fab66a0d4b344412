"""The measurements, each in a Spark session of its own: one part of the bench is one process."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from bench.brokers import BenchError
from bench.pipeline import records
from bench.pipeline.by_hand import by_hand
from headgate.config import Configuration
from headgate.contract.records import MESSAGES
from headgate.experiments.scenarios import load as load_scenario
from headgate.pipeline.jobs.observe import Observe, follow, observe
from headgate.pipeline.jobs.sweep import Sweep, sweep
from headgate.pipeline.records import spark_schema
from headgate.pipeline.session import Options, spark_session

Figures = dict[str, Any]


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name:
        yield Path(name)


def batch(count: int, rate: int, master: str) -> Figures:
    """`observe` in one go and as a stream that catches up, beside what is written by hand."""
    with folder() as place, spark_session(Options(master=master)) as spark:
        own = place / "records"
        making = timed(lambda: records.write(spark, str(own), count, rate))
        warm_up(spark, place)
        hand = timed(
            lambda: (
                by_hand(spark.read.parquet(str(own / "messages")))
                .write.mode("overwrite")
                .parquet(str(place / "hand"))
            )
        )
        ours = timed(lambda: observe(spark, job(own, place / "ours"), Configuration()))
        must_agree(spark, place / "hand", place / "ours")
        stream = timed(lambda: caught_up(spark, job(own, place / "stream")))
        size = sum(file.stat().st_size for file in own.rglob("*.parquet"))
    return {
        "records": count,
        "rate": rate,
        "bytes": size,
        "generated_s": making,
        "by_hand_s": hand,
        "observe_s": ours,
        "stream_s": stream,
        "by_hand_per_s": count / hand,
        "observe_per_s": count / ours,
        "stream_per_s": count / stream,
        "ratio": ours / hand,
        "stream_ratio": stream / hand,
    }


def job(own: Path, output: Path, **options: Any) -> Observe:
    return Observe(str(own), str(output), **options)


def timed(run: Any) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def warm_up(spark: SparkSession, place: Path) -> None:
    """What is compiled once should not count against whoever comes first."""
    records.write(spark, str(place / "few"), 100_000, 10_000)
    by_hand(spark.read.parquet(str(place / "few" / "messages"))).count()
    observe(spark, job(place / "few", place / "few-ours"), Configuration())
    shutil.rmtree(place / "few")


def must_agree(spark: SparkSession, hand: Path, ours: Path) -> None:
    """A faster way to another result would be none."""
    sums = ("count(*)", "sum(sent)", "sum(dropped_capacity)", "avg(p95_ms)")
    one, other = (
        spark.read.parquet(str(place)).groupBy("view").agg(*map(sf.expr, sums)).sort("view")
        for place in (hand, ours)
    )
    for left, right in zip(one.collect(), other.collect(), strict=True):
        same = left[:4] == right[:4] and abs(left[4] / right[4] - 1) < 0.02
        if not same:
            raise BenchError(f"the results differ in {', '.join(sums)}: {left}, {right}")


def caught_up(spark: SparkSession, task: Observe) -> None:
    query = follow(spark, task, Configuration(), None)
    query.awaitTermination()


def latency(rate: int, seconds: int, master: str) -> Figures:
    """Micro-batches of `observe --follow 1s` while `rate` records a second are recorded."""
    with folder() as place, spark_session(Options(master=master)) as spark:
        own = place / "records"
        template = records.records(spark, rate, rate).toArrow().cast(arrow_schema())
        stop = threading.Event()
        recorder = threading.Thread(target=keep_recording, args=(own, template, stop))
        recorder.start()
        try:
            task = job(own, place / "out", lateness=5.0)
            query = follow(spark, task, Configuration(), 1.0)
            query.awaitTermination(seconds)
            steps = [one for one in query.recentProgress if one["numInputRows"]]
            query.stop()
        finally:
            stop.set()
            recorder.join()
    warm = steps[len(steps) // 3 :]  # the first ones compile
    took = sorted(one["durationMs"]["triggerExecution"] / 1e3 for one in warm)
    rows = sum(one["numInputRows"] for one in warm)
    return {
        "rate": rate,
        "steps": len(warm),
        "records": rows,
        "p50_s": median(took),
        "p95_s": quantiles(took, n=20)[-1] if len(took) > 1 else took[-1],
        "longest_s": took[-1],
        "kept_up": rows >= 0.8 * rate * sum(max(1.0, one) for one in took),
    }


def arrow_schema() -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    return to_arrow_schema(spark_schema(MESSAGES), timezone="UTC")


def keep_recording(own: Path, template: pa.Table, stop: threading.Event) -> None:
    """A segment each second, with records of that second."""
    target = own / "messages"
    target.mkdir(parents=True)
    begun = datetime.now(UTC)
    shift = timedelta(0)
    number = 0
    while not stop.is_set():
        moved = pc.add(template["at"], begun + shift - records.START)
        table = template.set_column(template.schema.get_field_index("at"), "at", moved)
        half = target / f".{number:06d}.parquet"
        pq.write_table(table, half, compression="zstd")
        half.rename(target / f"{number:06d}.parquet")
        number += 1
        shift = timedelta(seconds=number)
        stop.wait(max(0.0, (begun + shift - datetime.now(UTC)).total_seconds()))


def sweeping(points: int, master: str) -> Figures:
    """Points of PlanEMQX's dataset in a second."""
    scenario = load_scenario("planemqx")
    with folder() as place, spark_session(Options(master=master)) as spark:
        # Each worker compiles the simulator once, and keeps it.
        sweep(spark, Sweep(str(place / "warm"), points=8, duration=5, warmup=1), scenario)
        took = timed(lambda: sweep(spark, Sweep(str(place / "all"), points=points), scenario))
    return {"master": master, "points": points, "seconds": took, "per_s": points / took}
