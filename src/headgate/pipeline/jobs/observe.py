"""`headgate pipeline observe`: what was experienced, from the records, once or as they come."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate.config import Configuration
from headgate.contract.records import MESSAGES
from headgate.pipeline.observing import (
    Measuring,
    Need,
    counted,
    exactly,
    measured,
    needs_from,
    requirements,
)
from headgate.pipeline.records import read, stream, unreadable


@dataclass(frozen=True)
class Observe:
    """What to observe, and how."""

    records: str
    """Folder or URL of the broker's records."""
    output: str
    window: float = 10.0
    """Seconds."""
    lateness: float = 180.0
    """Seconds that a record may come later than others and still count; more than the recorder's
    `segment_age`."""
    files: int = 200
    """Segments in one micro-batch at most."""
    exact: bool = False
    """Quantiles of all values, not of sketches; in one go only."""


def needed(config: Configuration) -> list[Need]:
    return needs_from((one, config.requirement_of(one)) for one in config.applications)


def needs_of(spark: SparkSession, config: Configuration) -> DataFrame:
    return requirements(spark, needed(config))


@dataclass(frozen=True)
class Observed:
    """What came of it."""

    rows: int
    unreadable: tuple[str, ...]
    """Names of segments that were passed over; the first hundred."""


def observe(spark: SparkSession, job: Observe, config: Configuration) -> Observed:
    """All that there is, in one go."""
    needs = needs_of(spark, config)
    records = read(spark, job.records, MESSAGES)
    rows = measured(counted(records, needs, interval(job.window)), needs)
    if job.exact:
        rows = exactly(rows, records, interval(job.window))
    rows.write.mode("overwrite").parquet(job.output)
    damaged = unreadable(spark, job.records, MESSAGES).select("name").sort("name").limit(100)
    return Observed(
        spark.read.parquet(job.output).count(), tuple(row["name"] for row in damaged.collect())
    )


def follow(
    spark: SparkSession, job: Observe, config: Configuration, every: float | None
) -> StreamingQuery:
    """Segments as they come, looking every so many seconds; None takes what there is and ends.

    A window is written once, when no record of it can come any more. Each micro-batch has a folder
    of its own that a repetition overwrites: after a crash nothing is missing and nothing twice.
    """
    needs = needs_of(spark, config)
    records = stream(spark, job.records, MESSAGES, job.files).withWatermark(
        "at", interval(job.lateness)
    )
    writer = (
        counted(records, needs, interval(job.window))
        .writeStream.queryName("observe")
        .outputMode("append")
        .option("checkpointLocation", f"{job.output.rstrip('/')}/_checkpoint")
        .foreachBatch(Writing(job.output, needed(config)))
    )
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=interval(every)).start()


def interval(seconds: float) -> str:
    """A duration as Spark reads it."""
    return f"{round(seconds * 1e6)} microseconds"


class Writing:
    """Writes the windows that a step closes; over Spark Connect it does so at the server."""

    def __init__(self, output: str, needs: list[Need]) -> None:
        # Plain data, which can travel; the rest is made where it is used.
        self._output = output.rstrip("/")
        self._needs = needs
        self._measuring: Measuring | None = None

    def __call__(self, counts: DataFrame, number: int) -> None:
        counts.persist()  # looked at twice, and to make it changes state
        try:
            # Most steps close no window. The first never does, and tells readers of the fields.
            if counts.count() or number == 0:
                self._write(counts, f"{self._output}/batch={number:08d}")
        finally:
            counts.unpersist()

    def _write(self, counts: DataFrame, folder: str) -> None:
        if self._measuring is None:
            self._measuring = Measuring()
        known = requirements(counts.sparkSession, self._needs)
        rows = self._measuring.of(counts, known)
        rows.coalesce(1).write.mode("overwrite").parquet(folder)
