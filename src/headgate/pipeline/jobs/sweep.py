"""`headgate pipeline sweep`: the performance dataset, from the simulator, in rounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pandas as pd
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from headgate.model import Scenario
from headgate.pipeline.sweeping import POINT, Space, grid, points, simulated

ROUND = 500
"""Points that are written together at first."""
LOST = 20.0
"""Seconds that a round is to take: what a kill loses, about. Between rounds all but one core are
idle for a moment, so rounds are to be long; how many points that is depends on the cluster."""
GROWTH = 4
"""A round has at most so many times the points of the one before."""


@dataclass(frozen=True)
class Sweep:
    output: str
    space: Space = field(default_factory=Space)
    points: int = 1000
    """Of a Latin hypercube."""
    seed: int = 1
    duration: float = 60.0
    """Simulated seconds of each point."""
    warmup: float = 10.0
    grid: int | None = None
    """Values of each dimension, in all combinations; then `points` means nothing."""


def wanted_by(job: Sweep, scenario: Scenario) -> pd.DataFrame:
    """The points of a sweep."""
    if job.grid is not None:
        return grid(scenario, job.space, job.grid, job.seed)
    return points(scenario, job.space, job.points, job.seed)


def sweep(
    spark: SparkSession,
    job: Sweep,
    scenario: Scenario,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Simulate what is not in the output yet; returns how many points that were."""
    done = finished(spark, job.output, job.seed)
    wanted = wanted_by(job, scenario)
    missing = wanted[~wanted["point"].isin(done)]
    progress(len(wanted) - len(missing))
    # Points take unequal time: several parts for each core, so that none waits long for another.
    parts = 4 * spark_cores(spark)
    start, size = 0, ROUND
    while start < len(missing):
        some = missing.iloc[start : start + size]
        begun = time.monotonic()
        # In turn, not by a hash: by chance one part would have a third more than another.
        frame = spark.createDataFrame(some, POINT).repartition(min(parts, len(some)))
        simulated(frame, scenario, job.duration, job.warmup).write.mode("append").parquet(
            job.output
        )
        progress(len(some))
        start += len(some)
        size = next_round(size, time.monotonic() - begun)
    return len(missing)


def next_round(size: int, seconds: float) -> int:
    """Points of the round after one of `size` points that took so long."""
    fitting = int(size * LOST / max(seconds, 1e-3))
    return max(ROUND, min(GROWTH * size, fitting))


def finished(spark: SparkSession, output: str, seed: int) -> set[int]:
    """The points of this sweep that are there. A point's rows are in one file: all or none."""
    try:
        there = spark.read.parquet(output)
        own = there.where(sf.col("seed").between(seed << 32, ((seed + 1) << 32) - 1))
        return {row["point"] for row in own.select("point").distinct().toLocalIterator()}
    except AnalysisException:  # over Spark Connect, only when it is looked at
        return set()


def spark_cores(spark: SparkSession) -> int:
    """How many tasks run at once; over Spark Connect that is not told, and few are assumed."""
    try:
        return spark.sparkContext.defaultParallelism
    except Exception:
        return 8
