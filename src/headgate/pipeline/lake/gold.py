"""From silver to gold: statistics by sensor and interval, gaps, and sensors that fell silent.

    silver ─▶ windowed: aggregates of each interval, with the times of its values
                 ─▶ statistics · gaps · sensors, with what was known of each sensor before

`windowed` is all that keeps state in a stream. Intervals of a sensor are complete one after the
other, so the rest can be made of those that a step completes and of what is known of their sensors:
when their last value was, and how far apart their values use to be.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from headgate.pipeline import sketches
from headgate.pipeline.lake.schemas import GAPS, SENSORS, STATISTICS

KEYS = ("topic", "name")
"""What a sensor is told by: a topic, and a measurement in its messages."""
KNOWN = ("sensor", "unit", "place", "owner", "period_s")
ENOUGH = 4
"""Distances between values from which their usual one is estimated."""
ACCURACY = 10_000
"""Quantiles err by one of so many in rank."""


class Gold(NamedTuple):
    statistics: DataFrame
    gaps: DataFrame
    sensors: DataFrame


def windowed(silver: DataFrame, interval: str) -> DataFrame:
    """Aggregates per interval of `time` and sensor. Rows without a value measure nothing."""
    number = sf.coalesce("value", sf.col("flag").cast("double"))
    has_value = number.isNotNull() | sf.col("text").isNotNull()
    skew = milliseconds("stamped", "at")
    return (
        silver.where(has_value)
        .groupBy(sf.window("time", interval).alias("window"), *KEYS)
        .agg(
            sf.count("*").alias("count"),
            sf.avg(number).alias("mean"),
            sf.min(number).alias("min"),
            sf.max(number).alias("max"),
            sf.stddev_samp(number).alias("stddev"),
            sf.min_by(number, "time").alias("first"),
            sf.max_by(number, "time").alias("last"),
            sf.percentile_approx(number, [0.5, 0.95], ACCURACY).alias("quantiles"),
            sf.percentile_approx(skew, 0.5, ACCURACY).alias("skew_ms"),
            sf.array_sort(sf.collect_list("time")).alias("times"),
            sf.max("at").alias("last_at"),
            sf.max_by(sf.struct(*KNOWN), "at").alias("known"),
        )
    )


def milliseconds(earlier: str, later: str) -> Column:
    return (sf.unix_micros(later) - sf.unix_micros(earlier)) / 1e3


def made(windows: DataFrame, before: DataFrame, patience: float) -> Gold:
    """The tables, of complete intervals and the sensors known before them.

    A gap is longer than `patience` periods; so is the silence of a late sensor.
    """
    chained = chain(windows, before)
    usual = periods(chained, before)
    judged = (
        chained.join(usual.select(*KEYS, "_estimate"), [*KEYS], "left")
        .withColumn("period_s", sf.coalesce("known.period_s", "_estimate"))
        .withColumn(
            "_gaps",
            sf.filter("_pairs", lambda pair: pair["seconds"] > patience * sf.col("period_s")),
        )
    )
    return Gold(statistics_of(judged), gaps_of(judged), sensors_of(judged, before, usual, patience))


def chain(windows: DataFrame, before: DataFrame) -> DataFrame:
    """Intervals with `_pairs`: each value's time and the one before it, across intervals too."""
    known = before.select(*KEYS, sf.col("last_time").alias("_last_time"))
    order = Window.partitionBy(*KEYS).orderBy("window.start")
    previous = sf.coalesce(sf.lag(sf.array_max("times")).over(order), sf.col("_last_time"))
    times = sf.when(
        sf.col("_previous").isNotNull(), sf.concat(sf.array("_previous"), sf.col("times"))
    ).otherwise(sf.col("times"))
    pairs = sf.zip_with(
        sf.slice("_times", sf.lit(1), sf.size("_times") - 1),
        sf.slice("_times", sf.lit(2), sf.size("_times") - 1),
        lambda start, end: sf.struct(
            start.alias("start"),
            end.alias("end"),
            ((sf.unix_micros(end) - sf.unix_micros(start)) / 1e6).alias("seconds"),
        ),
    )
    return (
        windows.join(known, [*KEYS], "left")
        .withColumn("_previous", previous)
        .withColumn("_times", times)
        .withColumn("_pairs", pairs)
    )


def periods(chained: DataFrame, before: DataFrame) -> DataFrame:
    """The usual distance of a sensor's values, the median of all so far: as a mergeable sketch."""
    distances = (
        chained.select(*KEYS, sf.explode("_pairs").alias("_pair"))
        .where("_pair.seconds > 0")
        .groupBy(*KEYS, sketches.bucket(sf.col("_pair.seconds") * 1e3).alias("bucket"))
        .agg(sf.count("*").cast("double").alias("n"))
    )
    earlier = before.select(*KEYS, sf.inline("distances"))
    sketch = (
        distances.unionByName(earlier)
        .groupBy(*KEYS, "bucket")
        .agg(sf.sum("n").alias("n"))
        .groupBy(*KEYS)
        .agg(
            sf.array_sort(sf.collect_list(sf.struct("bucket", "n"))).alias("distances"),
            sf.sum("n").alias("_n"),
        )
    )
    median_s = sketches.quantile(sf.col("distances"), 0.5) / 1e3
    return sketch.withColumn("_estimate", sf.when(sf.col("_n") >= ENOUGH, median_s)).drop("_n")


def statistics_of(judged: DataFrame) -> DataFrame:
    rows = judged.select(
        "window.start",
        "window.end",
        *KEYS,
        "known.sensor",
        "known.unit",
        "known.place",
        "known.owner",
        *("count", "mean", "min", "max", "stddev", "first", "last"),
        sf.get("quantiles", sf.lit(0)).alias("p50"),
        sf.get("quantiles", sf.lit(1)).alias("p95"),
        sf.coalesce(sf.size("_gaps"), sf.lit(0)).cast("bigint").alias("gaps"),
        sf.array_max(sf.transform("_pairs", lambda pair: pair["seconds"])).alias("longest_s"),
        "skew_ms",
    )
    return rows.select(*names(STATISTICS))


def gaps_of(judged: DataFrame) -> DataFrame:
    rows = judged.select(
        *KEYS,
        "known.sensor",
        "known.place",
        "known.owner",
        "period_s",
        sf.inline("_gaps"),
    )
    missed = sf.round(sf.col("seconds") / sf.col("period_s")).cast("bigint") - 1
    return rows.withColumn("missed", missed).select(*names(GAPS))


def sensors_of(
    judged: DataFrame, before: DataFrame, usual: DataFrame, patience: float
) -> DataFrame:
    """Every sensor that was ever seen, and whether it is silent for longer than it should."""
    now = judged.groupBy(*KEYS).agg(
        sf.sum("count").alias("count"),
        sf.min(sf.array_min("times")).alias("first_time"),
        sf.max(sf.array_max("times")).alias("last_time"),
        sf.max("last_at").alias("last_at"),
        sf.max_by("known", "window.start").alias("known"),
        sf.max_by("skew_ms", "window.start").alias("skew_ms"),
    )
    earlier = before.select(
        *KEYS,
        "count",
        "first_time",
        "last_time",
        "last_at",
        sf.struct(
            "sensor",
            "unit",
            "place",
            "owner",
            sf.when(~sf.col("estimated"), sf.col("period_s")).alias("period_s"),
        ).alias("known"),
        "skew_ms",
    )
    everyone = (
        now.unionByName(earlier)
        .groupBy(*KEYS)
        .agg(
            sf.sum("count").alias("count"),
            sf.min("first_time").alias("first_time"),
            sf.max("last_time").alias("last_time"),
            sf.max_by("known", "last_at").alias("known"),
            sf.max_by("skew_ms", "last_at").alias("skew_ms"),
            sf.max("last_at").alias("last_at"),
        )
    )
    end = everyone.agg(sf.max("last_at").alias("_end"))
    rows = (
        everyone.join(usual, [*KEYS], "left")
        .crossJoin(sf.broadcast(end))
        .withColumn("period_s", sf.coalesce("known.period_s", "_estimate"))
        .withColumn("estimated", sf.col("known.period_s").isNull())
        .withColumn("silent_s", milliseconds("last_at", "_end") / 1e3)
        .withColumn("late", sf.col("silent_s") > patience * sf.col("period_s"))
    )
    return rows.select(
        *KEYS,
        *(f"known.{name}" for name in ("sensor", "unit", "place", "owner")),
        *names(SENSORS)[len(KEYS) + 4 :],
    )


def names(ddl: str) -> list[str]:
    """The fields of a schema that has none within fields before the last."""
    return [part.strip().split()[0] for part in ddl.partition("array<")[0].split(",")]
