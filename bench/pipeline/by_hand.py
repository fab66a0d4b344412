"""The same windows and views as `observe`, the way one writes them by hand: the bench's yardstick.

One `groupBy` for each view, sums of conditions, `percentile_approx` for the quantiles, the five
results in one table. It reads what it needs and no more, knows nothing of copies of segments,
requirements or damaged files, and its quantiles can neither be weighted nor merged later.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from headgate.contract.records import MESSAGES
from headgate.pipeline.observing import REASONS, VIEWS
from headgate.pipeline.records import spark_schema

KEYS = ("client", "filter", "application", "category", "link", "topic")


def by_hand(records: DataFrame, window: str = "10 seconds") -> DataFrame:
    views = [view(records, name, keys, window) for name, keys in VIEWS.items()]
    return reduce(DataFrame.unionByName, views)


def by_hand_in_steps(
    spark: SparkSession, messages: str, output: str, lateness: float, files: int
) -> StreamingQuery:
    """The same as a stream that takes what there is and ends, with Spark's own sink."""
    records = (
        spark.readStream.schema(spark_schema(MESSAGES))
        .option("maxFilesPerTrigger", files)
        .parquet(messages)
        .withWatermark("at", f"{lateness} seconds")
    )
    return (
        by_hand(records)
        .writeStream.outputMode("append")
        .option("checkpointLocation", f"{output}/_checkpoint")
        .trigger(availableNow=True)
        .start(path=output, format="parquet")
    )


def view(records: DataFrame, name: str, keys: tuple[str, ...], window: str) -> DataFrame:
    sent = sf.col("outcome") == "sent"
    timed = sent & ~sf.col("retained")
    n = sf.col("messages") * sf.col("weight")
    acknowledged = sf.col("outcome") == "acknowledged"

    def total(condition: Column, value: Column = n) -> Column:
        return sf.sum(sf.when(condition, value).otherwise(0.0))

    rows = records.groupBy(sf.window("at", window).alias("window"), *keys).agg(
        total(sent).alias("sent"),
        total(sent, sf.col("bytes") * sf.col("weight")).alias("sent_bytes"),
        total(acknowledged).alias("acknowledged"),
        total(sf.col("outcome") == "cut").alias("cut"),
        *(total(sf.col("reason") == one).alias(f"dropped_{one}") for one in REASONS),
        sf.avg(sf.when(timed, sf.col("waited_ms"))).alias("mean_ms"),
        sf.max(sf.when(timed, sf.col("waited_ms"))).alias("max_ms"),
        sf.percentile_approx(sf.when(timed, sf.col("waited_ms")), [0.5, 0.95, 0.99]).alias("_q"),
        sf.avg("acknowledged_ms").alias("acknowledged_mean_ms"),
    )
    lost = sum((sf.col(f"dropped_{one}") for one in REASONS), sf.col("cut"))
    seconds = sf.unix_seconds("window.end") - sf.unix_seconds("window.start")
    return rows.select(
        sf.col("window.start").alias("start"),
        sf.col("window.end").alias("end"),
        sf.lit(name).alias("view"),
        *(sf.col(key) if key in keys else sf.lit("").alias(key) for key in KEYS),
        "sent",
        "sent_bytes",
        "acknowledged",
        "cut",
        *(f"dropped_{one}" for one in REASONS),
        (sf.col("sent") / seconds).alias("rate"),
        sf.try_divide(lost, sf.col("sent") + lost).alias("loss"),
        "mean_ms",
        sf.col("_q")[0].alias("p50_ms"),
        sf.col("_q")[1].alias("p95_ms"),
        sf.col("_q")[2].alias("p99_ms"),
        "max_ms",
        "acknowledged_mean_ms",
    )
