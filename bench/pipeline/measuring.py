"""The measurements, each in a Spark session of its own: one part of the bench is one process."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from bench.brokers import BenchError
from bench.pipeline import records
from bench.pipeline.by_hand import by_hand, by_hand_in_steps
from headgate.config import Configuration
from headgate.contract.records import MESSAGES
from headgate.experiments.scenarios import load as load_scenario
from headgate.model import Scenario
from headgate.pipeline.jobs.observe import Observe, follow, observe
from headgate.pipeline.jobs.sweep import Sweep, sweep
from headgate.pipeline.records import spark_schema
from headgate.pipeline.session import Options, spark_session
from headgate.pipeline.sweeping import points as points_of
from headgate.pipeline.sweeping import simulate_point

Figures = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """How much of everything; what is affordable depends on the machine."""

    repetitions: int = 3
    """Of what is measured in one go; the median counts."""
    stream_repetitions: int = 1
    kept: Path | None = None
    """Folder in which records stay for another run: to make them takes longer than to read them."""


LATENESS = 20.0
"""Seconds, of streams that catch up: so that nearly all of their windows are written."""
STEP = 8
"""Segments in one of their steps: four million records."""


VARIETY = 10
"""Seconds of different records, before they repeat: a window's length, so that no record of a
window is there twice."""


def told(text: str) -> None:
    """Progress: long work says what it is at."""
    print(f"  {text}", file=sys.stderr, flush=True)


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name:
        yield Path(name)


def made(spark: SparkSession, place: Path, count: int, rate: int, sizes: Sizes) -> Path:
    """A folder with so many records."""
    own = (sizes.kept or place) / f"records-{count}-{rate}"
    if not (own / "messages" / "_SUCCESS").exists():
        told(f"making {count:,} records")
        took = timed(lambda: records.write(spark, str(own), count, rate))
        told(f"made in {took:.0f} s")
    return own


def batch(count: int, rate: int, master: str, sizes: Sizes, *, stream: bool = True) -> Figures:
    """`observe` in one go and as a stream that catches up, each beside what is written by hand.

    In turn, so that what else the machine does burdens both.
    """
    with folder() as place, spark_session(Options(master=master)) as spark:
        own = made(spark, place, count, rate, sizes)
        warm_up(spark, place)
        hand, ours = place / "hand", place / "ours"
        found = in_turn(
            sizes.repetitions,
            {
                "by_hand": lambda: at_once_by_hand(spark, own, hand),
                "observe": lambda: observe(spark, job(own, ours), Configuration()),
            },
        )
        must_agree(spark, hand, ours)
        if stream:
            steps = {
                "by_hand_stream": lambda: stepwise_by_hand(spark, own, place / "hand-steps"),
                "stream": lambda: caught_up(spark, job(own, place / "steps")),
            }
            found |= in_turn(sizes.stream_repetitions, steps)
            must_agree(spark, place / "hand-steps", place / "steps")
        size = sum(file.stat().st_size for file in own.rglob("*.parquet"))
    figures: Figures = {"records": count, "rate": rate, "bytes": size}
    for name, seconds in found.items():
        figures[f"{name}_s"] = median(seconds)
        figures[f"{name}_all_s"] = seconds
        figures[f"{name}_per_s"] = count / median(seconds)
    figures["ratio"] = figures["observe_s"] / figures["by_hand_s"]
    if stream:
        figures["stream_ratio"] = figures["stream_s"] / figures["by_hand_stream_s"]
        figures["stream_to_batch"] = figures["stream_s"] / figures["by_hand_s"]
    return figures


def in_turn(times: int, ways: Mapping[str, Callable[[], object]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(times):
        for name, way in ways.items():
            found[name].append(timed(way))
            told(f"{name}: {found[name][-1]:.1f} s")
    return found


def at_once_by_hand(spark: SparkSession, own: Path, output: Path) -> None:
    rows = by_hand(spark.read.parquet(str(own / "messages")))
    rows.write.mode("overwrite").parquet(str(output))


def stepwise_by_hand(spark: SparkSession, own: Path, output: Path) -> None:
    shutil.rmtree(output, ignore_errors=True)
    query = by_hand_in_steps(spark, str(own / "messages"), str(output), LATENESS, STEP)
    query.awaitTermination()


def job(own: Path, output: Path) -> Observe:
    return Observe(str(own), str(output), lateness=LATENESS, files=STEP)


def timed(run: Callable[[], object]) -> float:
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
    shutil.rmtree(task.output, ignore_errors=True)
    query = follow(spark, task, Configuration(), None)
    query.awaitTermination()


def latency(rate: int, seconds: int, warm_up: int, master: str) -> Figures:
    """Micro-batches of `observe --follow 1s` while `rate` records a second are recorded.

    Those of the first seconds do not count: a stream runs for days, and at first Java compiles.
    """
    remembering = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
    with folder() as place, spark_session(Options(master=master, conf=remembering)) as spark:
        own = place / "records"
        made = records.records(spark, rate * VARIETY, rate).toArrow().cast(arrow_schema())
        seconds_of = [made.slice(second * rate, rate) for second in range(VARIETY)]
        stop = threading.Event()
        recorder = threading.Thread(target=keep_recording, args=(own, seconds_of, stop))
        recorder.start()
        try:
            task = Observe(str(own), str(place / "out"), lateness=5.0)
            query = follow(spark, task, Configuration(), 1.0)
            query.awaitTermination(warm_up)
            told("measuring")
            first = len(steps_of(query))
            query.awaitTermination(seconds)
            steps = steps_of(query)[first:]
            query.stop()
        finally:
            stop.set()
            recorder.join()
    if not steps:
        raise BenchError(f"not one micro-batch of {rate:,} records a second ended in {seconds} s")
    took = sorted(one["durationMs"]["triggerExecution"] / 1e3 for one in steps)
    rows = sum(one["numInputRows"] for one in steps)
    return {
        "rate": rate,
        "warm_up_s": warm_up,
        "steps": len(steps),
        "records": rows,
        "p50_s": median(took),
        "p95_s": quantiles(took, n=20, method="inclusive")[-1] if len(took) > 1 else took[-1],
        "longest_s": took[-1],
        "kept_up": rows >= 0.8 * rate * sum(max(1.0, one) for one in took),
    }


def steps_of(query: StreamingQuery) -> list[Any]:
    return [one for one in query.recentProgress if one["numInputRows"]]


def arrow_schema() -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    return to_arrow_schema(spark_schema(MESSAGES), timezone="UTC")


def keep_recording(own: Path, seconds: list[pa.Table], stop: threading.Event) -> None:
    """A segment each second, with records of that second."""
    target = own / "messages"
    target.mkdir(parents=True)
    begun = datetime.now(UTC)
    shift = timedelta(0)
    number = 0
    while not stop.is_set():
        template = seconds[number % len(seconds)]
        first = records.START + timedelta(seconds=number % len(seconds))
        moved = pc.add(template["at"], begun + shift - first)
        table = template.set_column(template.schema.get_field_index("at"), "at", moved)
        half = target / f".{number:06d}.parquet"
        pq.write_table(table, half, compression="zstd")
        half.rename(target / f"{number:06d}.parquet")
        number += 1
        shift = timedelta(seconds=number)
        stop.wait(max(0.0, (begun + shift - datetime.now(UTC)).total_seconds()))


def sweeping(points: int, cores: int, repetitions: int) -> Figures:
    """Points of PlanEMQX's dataset in a second, beside as many plain processes as there are cores:
    these share nothing and tell what the machine can do."""
    scenario = load_scenario("planemqx")
    master = f"local[{cores}]"
    with folder() as place, spark_session(Options(master=master)) as spark, plain(cores) as pool:
        # Each worker compiles the simulator once, and keeps it.
        few = Sweep(str(place / "warm"), points=8, duration=5, warmup=1)
        sweep(spark, few, scenario)

        def shared(task: Sweep) -> None:
            shares = [(scenario, task, number, cores) for number in range(cores)]
            pool.starmap(simulate_some, shares, chunksize=1)

        shared(few)
        outputs = (str(place / f"all-{number}") for number in count())
        found = in_turn(
            repetitions,
            {
                "plain": lambda: shared(Sweep("", points=points)),
                "sweep": lambda: sweep(spark, Sweep(next(outputs), points=points), scenario),
            },
        )
    took, alone = median(found["sweep"]), median(found["plain"])
    return {
        "master": master,
        "points": points,
        "seconds": took,
        "all_s": found["sweep"],
        "per_s": points / took,
        "plain_all_s": found["plain"],
        "plain_per_s": points / alone,
    }


def plain(processes: int) -> Pool:
    return get_context("spawn").Pool(processes)


def simulate_some(scenario: Scenario, task: Sweep, first: int, step: int) -> None:
    """Each `step`-th of the points of a sweep, in this process."""
    points = points_of(scenario, task.space, task.points, task.seed).to_dict("records")
    for point in points[first::step]:
        simulate_point(scenario, point, task.duration, task.warmup)
