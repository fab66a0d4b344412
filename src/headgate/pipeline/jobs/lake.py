"""`headgate pipeline lake`: what was published, as tables: as it comes, or all anew.

Two streams. The first takes captures into bronze and makes silver and quarantine of them, step by
step; the second makes gold of silver. Each step's files have names of their own, and its state
is that of the step before: repeated after a kill, it does the same again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from headgate.contract.records import CAPTURES
from headgate.errors import ConfigurationError
from headgate.pipeline.jobs.observe import interval
from headgate.pipeline.lake import decoding, gold
from headgate.pipeline.lake.damaged import damaged, segments_of
from headgate.pipeline.lake.formats import Rule, recognised
from headgate.pipeline.lake.identity import SEEN, intervals, merged, unseen
from headgate.pipeline.lake.registry import read_registry, registry_frame
from headgate.pipeline.lake.schemas import QUARANTINE, SENSORS, SILVER, TABLES
from headgate.pipeline.lake.tables import ROWS_PER_FILE, Tables, by_day
from headgate.pipeline.records import missing, stream

CHECKPOINT = "_checkpoint/captures"
AT_ONCE = "_checkpoint/at-once"
"""There while gold was made in one go: a stream has to begin it anew."""
UNDER_WAY = "_checkpoint/under-way"
"""There while silver and quarantine are replaced: what is between the two is in neither or both."""


@dataclass(frozen=True)
class Lake:
    """What to take in, and how."""

    records: str
    """Folder or URL of the broker's records."""
    output: str
    registry: Path | None = None
    formats: tuple[Rule, ...] = ()
    interval: float = 60.0
    """Seconds of gold's intervals."""
    lateness: float = 180.0
    """Seconds that a value may come later than others and still count in gold, in a stream."""
    patience: float = 3.0
    """Periods without a value from which it is a gap."""
    files: int = 50
    """Segments in one step at most."""


class Amounts(NamedTuple):
    messages: int
    measurements: int
    quarantined: int


# The first stream: bronze, silver, quarantine


def take_in(spark: SparkSession, job: Lake, tables: Tables, every: float | None) -> StreamingQuery:
    """Captures as they come, looking every so many seconds; None takes what there is and ends."""
    try:
        captures = stream(spark, job.records, CAPTURES, job.files, oldest="3650d")
    except Exception as error:
        raise missing(job.records, CAPTURES, error) from error
    named = captures.withColumn("_file", sf.col("_metadata.file_name"))
    return started(named, "lake", tables.at(CHECKPOINT), taker(job, tables), every)


def taker(job: Lake, tables: Tables) -> Callable[[DataFrame, int], None]:
    def take(batch: DataFrame, step: int) -> None:
        spark = batch.sparkSession
        contents = contents_of(batch, job.formats)
        lost = damaged(spark, segments_of(tables, CHECKPOINT, step), contents.read)
        parts = 1 + sum(contents.read.values()) // ROWS_PER_FILE
        seen = tables.remembered(spark, "seen", step, SEEN)
        rows = by_day(unseen(batch, seen).drop("_file"), "at")
        files = tables.publish(rows, "bronze", step, ["broker", "sequence"], parts)
        if files:
            fresh = spark.read.schema(TABLES["bronze"]).parquet(*map(tables.at, files))
            decode(spark, job, tables, Fresh(step, fresh, contents.formats, parts), lost)
            tables.remember(merged(seen, intervals(fresh)), "seen", step)
        elif not lost.isEmpty():
            tables.publish(by_day(lost, "at"), "quarantine", step, ["at"])

    return take


class Contents(NamedTuple):
    """What a step has, before anything is done with it."""

    read: dict[str, int]
    """Records that could be read, by segment."""
    formats: set[str]


def contents_of(batch: DataFrame, rules: tuple[Rule, ...]) -> Contents:
    counted = (
        recognised(batch, rules).groupBy("_file", "format").agg(sf.count("payload").alias("n"))
    ).collect()  # at most so many rows as there are segments and formats
    read: dict[str, int] = {}
    for row in counted:
        read[row["_file"]] = read.get(row["_file"], 0) + row["n"]
    return Contents(read, {row["format"] for row in counted})


class Fresh(NamedTuple):
    """The bronze of a step."""

    step: int
    messages: DataFrame
    formats: set[str]
    parts: int


def decode(spark: SparkSession, job: Lake, tables: Tables, fresh: Fresh, lost: DataFrame) -> None:
    """Silver and quarantine of a step's bronze."""
    step = fresh.step
    known = tables.remembered(spark, "nodes", step, decoding.KNOWN)
    messages = decoding.decoded(fresh.messages, job.formats, known, fresh.formats).persist()
    try:
        silver, quarantine = split(spark, job, messages)
        order = ["topic", "name", "time", "broker", "sequence", "part"]
        tables.publish(by_day(silver, "at"), "silver", step, order, fresh.parts)
        bad = by_day(quarantine.unionByName(lost), "at")
        tables.publish(bad, "quarantine", step, ["topic", "at"])
        if "known" in messages.columns:
            tables.remember(decoding.known_nodes(messages, known), "nodes", step)
    finally:
        messages.unpersist()


def split(spark: SparkSession, job: Lake, messages: DataFrame) -> tuple[DataFrame, DataFrame]:
    # Read at each step: a sensor that is registered now is known from the next step on.
    entries = [] if job.registry is None else read_registry(job.registry)
    registry = registry_frame(spark, entries)
    return decoding.measured(messages, registry), decoding.quarantined(messages)


# The second stream: gold


def measure(spark: SparkSession, job: Lake, tables: Tables, every: float | None) -> StreamingQuery:
    """Gold, of silver's files as they appear."""
    silver = (
        spark.readStream.schema(SILVER)
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "step-*.parquet")  # not what was made of them later
        .option("maxFilesPerTrigger", job.files)
        .option("maxFileAge", "3650d")
        .parquet(tables.at("silver"))
        .withWatermark("time", interval(job.lateness))
    )
    windows = gold.windowed(silver, interval(job.interval))
    return started(windows, "gold", tables.at("_checkpoint/gold"), measurer(job, tables), every)


def measurer(job: Lake, tables: Tables) -> Callable[[DataFrame, int], None]:
    def write(windows: DataFrame, step: int) -> None:
        windows.persist()
        try:
            if not windows.isEmpty():
                before = tables.remembered(windows.sparkSession, "sensors", step, SENSORS)
                write_gold(tables, gold.made(windows, before, job.patience), step)
        finally:
            windows.unpersist()

    return write


def write_gold(tables: Tables, made: gold.Gold, step: int) -> None:
    order = ["topic", "name", "start"]
    tables.publish(by_day(made.statistics, "start"), "gold/statistics", step, order)
    tables.publish(by_day(made.gaps, "end"), "gold/gaps", step, order)
    tables.remember(made.sensors, "sensors", step)
    tables.show("sensors", step, "gold/sensors")


# Running them


def started(
    rows: DataFrame,
    name: str,
    checkpoint: str,
    write: Callable[[DataFrame, int], None],
    every: float | None,
) -> StreamingQuery:
    writer = (
        rows.writeStream.queryName(name)
        .outputMode("append")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(write)
    )
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=interval(every)).start()


def prepared(spark: SparkSession, job: Lake) -> Tables:
    """The tables, ready for a stream."""
    tables = Tables(job.output)
    if tables.marked(UNDER_WAY):
        raise ConfigurationError(
            f"{job.output}: making it anew was interrupted; do that again, "
            "without --follow and --catch-up"
        )
    if job.registry is not None:
        read_registry(job.registry)  # its mistakes are told before anything is done
    if tables.marked(AT_ONCE):
        for folder in ("gold", "_checkpoint/gold", "_checkpoint/state/sensors"):
            tables.clear(folder)
        tables.unmark(AT_ONCE)
    tables.prepare(spark)
    return tables


def follow(spark: SparkSession, job: Lake, every: float) -> list[StreamingQuery]:
    """Both streams, until they are stopped."""
    tables = prepared(spark, job)
    return [take_in(spark, job, tables, every), measure(spark, job, tables, every)]


def catch_up(spark: SparkSession, job: Lake) -> Amounts:
    """Go on where the streams ended, with what there is, and end."""
    tables = prepared(spark, job)
    take_in(spark, job, tables, None).awaitTermination()
    measure(spark, job, tables, None).awaitTermination()
    return amounts(spark, tables)


def make(spark: SparkSession, job: Lake) -> Amounts:
    """Take in what there is, and make silver, quarantine and gold anew of all of bronze.

    Bronze is never made anew: the broker's records do not last for ever.
    """
    Tables(job.output).unmark(UNDER_WAY)
    tables = prepared(spark, job)
    take_in(spark, job, tables, None).awaitTermination()
    remake(spark, job, tables)
    return amounts(spark, tables)


def remake(spark: SparkSession, job: Lake, tables: Tables) -> None:
    bronze = spark.read.schema(TABLES["bronze"]).parquet(tables.at("bronze"))
    present = decoding.formats_of(bronze, job.formats)
    messages = decoding.decoded(bronze, job.formats, decoding.nothing_known(spark), present)
    segments = spark.read.schema(QUARANTINE).parquet(tables.at("quarantine"))
    lost = segments.where(sf.col("broker").isNull()).drop("date")
    tables.mark(AT_ONCE)
    tables.mark(UNDER_WAY)
    silver, quarantine = split(spark, job, messages)
    tables.remade(by_day(silver, "at"), "silver")
    tables.remade(by_day(quarantine.unionByName(lost), "at"), "quarantine")
    tables.unmark(UNDER_WAY)
    for folder in ("gold/statistics", "gold/gaps", "_checkpoint/state/sensors"):
        tables.clear(folder)
    tables.prepare(spark)
    rows = spark.read.schema(SILVER).parquet(tables.at("silver"))
    windows = gold.windowed(rows, interval(job.interval))
    nobody = spark.createDataFrame([], SENSORS)
    write_gold(tables, gold.made(windows, nobody, job.patience), 0)


def compact(spark: SparkSession, job: Lake) -> int:
    """The files of days that are over, made one for each day; returns how many days that were."""
    tables = Tables(job.output)
    growing = ("bronze", "silver", "quarantine", "gold/statistics", "gold/gaps")
    return sum(tables.compact(spark, table) for table in growing)


def amounts(spark: SparkSession, tables: Tables) -> Amounts:
    return Amounts(
        *(
            spark.read.parquet(tables.at(table)).count()
            for table in ("bronze", "silver", "quarantine")
        )
    )
