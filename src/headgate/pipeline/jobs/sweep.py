"""`headgate pipeline sweep`: the performance dataset, from the simulator, in rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from headgate.model import Scenario
from headgate.pipeline.sweeping import POINT, Space, points, simulated

ROUND = 500
"""Points that are written together: what a kill loses at most."""


@dataclass(frozen=True)
class Sweep:
    output: str
    space: Space = field(default_factory=Space)
    points: int = 1000
    seed: int = 1
    duration: float = 60.0
    """Simulated seconds of each point."""
    warmup: float = 10.0


def sweep(
    spark: SparkSession,
    job: Sweep,
    scenario: Scenario,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Simulate what is not in the output yet; returns how many points that were."""
    done = finished(spark, job.output, job.seed)
    wanted = points(scenario, job.space, job.points, job.seed)
    missing = wanted[~wanted["point"].isin(done)]
    progress(len(wanted) - len(missing))
    # Points take unequal time: several parts for each core, so that none waits long for another.
    parts = 4 * spark_cores(spark)
    for start in range(0, len(missing), ROUND):
        some = missing.iloc[start : start + ROUND]
        frame = spark.createDataFrame(some, POINT).repartition(min(parts, len(some)), "point")
        simulated(frame, scenario, job.duration, job.warmup).write.mode("append").parquet(
            job.output
        )
        progress(len(some))
    return len(missing)


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
