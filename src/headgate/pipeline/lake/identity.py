"""Each message once: which numbers of which run of the broker have been taken in.

A run numbers its messages one after the other, so what was seen is a few intervals, however many
messages that is. Nothing has to be forgotten for it to stay small, and therefore nothing is ever
too late to be taken in (docs/decisions/0046).
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

SEEN = "broker string, first bigint, last bigint"


def unseen(records: DataFrame, seen: DataFrame) -> DataFrame:
    """Records that are in no interval, each once."""
    known = sf.broadcast(seen.alias("seen"))
    return (
        records.dropDuplicates(["broker", "sequence"])
        .alias("record")
        .join(
            known,
            sf.expr(
                "record.broker = seen.broker and record.sequence between seen.first and seen.last"
            ),
            "left_anti",
        )
    )


def intervals(records: DataFrame) -> DataFrame:
    """What records, each there once, are in: broker, first, last."""
    order = Window.partitionBy("broker").orderBy("sequence")
    return (
        records.select("broker", "sequence")
        # Neighbours have the same distance from their place in the order.
        .withColumn("_island", sf.col("sequence") - sf.row_number().over(order))
        .groupBy("broker", "_island")
        .agg(sf.min("sequence").alias("first"), sf.max("sequence").alias("last"))
        .drop("_island")
    )


def merged(some: DataFrame, more: DataFrame) -> DataFrame:
    """The union of two sets of intervals, with neighbours made one."""
    order = Window.partitionBy("broker").orderBy("first")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    begins = sf.coalesce(sf.col("first") > sf.max("last").over(before) + 1, sf.lit(True))
    return (
        some.unionByName(more)
        .withColumn("_begins", begins.cast("int"))
        .withColumn("_island", sf.sum("_begins").over(order))
        .groupBy("broker", "_island")
        .agg(sf.min("first").alias("first"), sf.max("last").alias("last"))
        .drop("_island")
    )
