"""Quantiles from counts by bucket: mergeable, weighted, and as exact as one chooses.

A duration falls into bucket ⌈log x / log γ⌉ with γ = (1 + α) / (1 - α); a quantile read from the
buckets errs by at most α of its value, whatever the distribution (Masson, Rim, Lee: DDSketch, VLDB
2019). Two sketches merge by adding counts. Spark's KLL sketches take no weights, and a record that
stands for many messages has one (docs/decisions/0029).
"""

from __future__ import annotations

import math

from pyspark.sql import Column
from pyspark.sql import functions as sf

ACCURACY = 0.01
"""α: a quantile of 100 ms is given as 99 to 101 ms."""
GAMMA = (1 + ACCURACY) / (1 - ACCURACY)
SHORTEST = 0.001
"""Milliseconds below which durations are not told apart."""
WIDTH = 16
"""Buckets that one row of sums holds side by side: from x to 1.37 x."""
COUNTS = tuple(f"count_{place:02d}" for place in range(WIDTH))
"""The fields in which it does."""


def bucket(milliseconds: Column) -> Column:
    """The number of a duration's bucket; null if it is null."""
    clamped = sf.greatest(milliseconds, sf.lit(SHORTEST))
    return sf.when(
        milliseconds.isNotNull(), sf.ceil(sf.log(clamped) / sf.lit(math.log(GAMMA))).cast("int")
    )


def stretch(number: Column) -> Column:
    """The number of the stretch of `WIDTH` buckets to which one belongs."""
    return sf.floor(number / sf.lit(WIDTH)).cast("int")


def counts(number: Column, n: Column) -> list[Column]:
    """Sums of `n` by the bucket's place in its stretch: the fields `COUNTS`."""
    place = sf.pmod(number, sf.lit(WIDTH))
    return [
        sf.sum(sf.when(place == index, n).otherwise(sf.lit(0.0))).alias(name)
        for index, name in enumerate(COUNTS)
    ]


def collected(stretch: Column) -> Column:
    """One sketch of all rows of a group: `array<struct<bucket, n>>`, sorted by bucket.

    Each row holds a stretch and its `COUNTS`; rows whose `stretch` is null have none.
    """
    rows = sf.collect_list(
        sf.when(stretch.isNotNull(), sf.struct(stretch.alias("_at"), sf.array(*COUNTS).alias("_n")))
    )
    buckets = sf.transform(
        sf.array_sort(rows),
        lambda row: sf.transform(
            row["_n"],
            lambda n, place: sf.struct(
                (row["_at"] * WIDTH + place).alias("bucket"),
                n.alias("n"),
            ),
        ),
    )
    return sf.filter(sf.flatten(buckets), lambda one: one["n"] > 0)


def value(number: Column) -> Column:
    """The duration in the middle of a bucket: no other in it is farther away than α."""
    return sf.lit(2 / (GAMMA + 1)) * sf.pow(sf.lit(GAMMA), number)


def quantile(sketch: Column, fraction: float | Column, n: Column | None = None) -> Column:
    """A quantile of `array<struct<bucket, n>>`, sorted by bucket; null if it is empty.

    `n` is the sum of all counts, if it is known already.
    """
    share = sf.lit(fraction) if isinstance(fraction, float) else fraction
    total = sf.aggregate(sketch, sf.lit(0.0), lambda sum_, one: sum_ + one["n"]) if n is None else n
    found = sf.aggregate(
        sketch,
        sf.struct(sf.lit(0.0).alias("seen"), sf.lit(None).cast("int").alias("bucket")),
        lambda state, one: sf.struct(
            (state["seen"] + one["n"]).alias("seen"),
            sf.when(
                # Not yet found, and with this bucket it is enough.
                state["bucket"].isNull()
                & (state["seen"] + one["n"] >= share * total * (1 - 1e-12)),
                one["bucket"],
            )
            .otherwise(state["bucket"])
            .alias("bucket"),
        ),
    )["bucket"]
    return value(found)
