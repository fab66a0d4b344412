"""From message records to what each flow, application, category, topic and link experienced.

    records ─▶ counted: sums per window, flow, topic and bucket of the response time
                  ─▶ measured: the same per flow, application, category, topic and link

`counted` is the only step that sees every record, and the only one that keeps state in a stream:
sums and nothing else. All rows of one window are complete at the same time, so `measured` can be
made of them batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from headgate.contract import Application, Requirement
from headgate.core.reasons import Drop
from headgate.pipeline import sketches

REASONS = tuple(reason.name.lower() for reason in Drop)

VIEWS = {
    "flow": ("client", "filter", "application", "category", "link"),
    "application": ("application", "category"),
    "category": ("category",),
    "topic": ("topic",),
    "link": ("link",),
}
"""What a row of the result stands for, and the fields that tell it apart."""

KEYS = ("client", "filter", "application", "category", "link", "topic")

SUMS = (
    "sent",
    "sent_bytes",
    "acknowledged",
    "cut",
    *(f"dropped_{reason}" for reason in REASONS),
    "waited_sum",
    "acknowledged_sum",
    "within",
)

NEEDS = (
    "application string, response_ms double, percentile double, mean_ms double, loss double, "
    "throughput double"
)


def requirements(
    spark: SparkSession, needed: Iterable[tuple[Application, Requirement | None]]
) -> DataFrame:
    """What applications need, as a small table."""
    rows = [
        (one.name, need.response_ms, need.percentile, need.mean_ms, need.loss, need.throughput)
        for one, need in needed
        if need is not None
    ]
    return spark.createDataFrame(rows, NEEDS)


def counted(records: DataFrame, needs: DataFrame, window: str) -> DataFrame:
    """Sums per window of `at`, flow, topic and bucket of the response time."""
    n = sf.col("messages") * sf.col("weight")
    outcome = sf.col("outcome")
    sent = (outcome == "sent") & ~sf.col("retained")
    return (
        records.join(
            sf.broadcast(needs.select("application", "response_ms")), "application", "left"
        )
        .groupBy(
            sf.window("at", window).alias("window"),
            *KEYS,
            sf.when(sent, sketches.bucket(sf.col("waited_ms"))).alias("bucket"),
        )
        .agg(
            total(n, outcome == "sent").alias("sent"),
            total(sf.col("bytes") * sf.col("weight"), outcome == "sent").alias("sent_bytes"),
            total(n, outcome == "acknowledged").alias("acknowledged"),
            total(n, outcome == "cut").alias("cut"),
            *(
                total(n, (outcome == "dropped") & (sf.col("reason") == reason)).alias(
                    f"dropped_{reason}"
                )
                for reason in REASONS
            ),
            total(n * sf.col("waited_ms"), sent).alias("waited_sum"),
            total(n * sf.col("acknowledged_ms"), outcome == "acknowledged").alias(
                "acknowledged_sum"
            ),
            total(n, sent & (sf.col("waited_ms") <= sf.col("response_ms"))).alias("within"),
            sf.max(sf.when(sent, sf.col("waited_ms"))).alias("longest"),
        )
    )


def total(value: Column, condition: Column) -> Column:
    return sf.sum(sf.when(condition, value).otherwise(sf.lit(0.0)))


def measured(counts: DataFrame, needs: DataFrame) -> DataFrame:
    """What each view experienced in each window, with the sketch to merge windows by."""
    every = ("window", *KEYS, "bucket")
    sets = [[sf.col(name) for name in ("window", *keys, "bucket")] for keys in VIEWS.values()]
    # In one pass: all views together, told apart by which keys are left out.
    by_bucket = counts.groupingSets(sets, *(sf.col(name) for name in every)).agg(
        view_of(sf.grouping_id(), every).alias("view"),
        *(sf.sum(column).alias(column) for column in SUMS),
        sf.max("longest").alias("longest"),
    )
    timed = sf.col("bucket").isNotNull()
    one = sf.struct(sf.col("bucket"), sf.col("sent").alias("n"))
    rows = by_bucket.groupBy("window", "view", *KEYS).agg(
        *(sf.sum(column).alias(column) for column in SUMS),
        sf.sum(sf.when(timed, sf.col("sent")).otherwise(0.0)).alias("timed"),
        sf.max("longest").alias("longest"),
        sf.array_sort(sf.collect_list(sf.when(timed, one))).alias("response"),
    )
    return judged(described(rows), needs)


def view_of(grouping: Column, every: tuple[str, ...]) -> Column:
    """The view whose keys a grouping id says are there: a bit is set for each that is left out."""
    named = sf.lit(None).cast("string")
    for view, keys in VIEWS.items():
        left_out = sum(
            1 << (len(every) - 1 - position)
            for position, name in enumerate(every)
            if name in KEYS and name not in keys
        )
        named = sf.when(grouping == left_out, view).otherwise(named)
    return named


def described(rows: DataFrame) -> DataFrame:
    """Rates, means and quantiles of the sums."""
    seconds = sf.unix_micros("window.end") / 1e6 - sf.unix_micros("window.start") / 1e6
    dropped = sum((sf.col(f"dropped_{reason}") for reason in REASONS), sf.lit(0.0))
    offered = sf.col("sent") + sf.col("cut") + dropped
    response = sf.col("response")
    return rows.select(
        sf.col("window.start").alias("start"),
        sf.col("window.end").alias("end"),
        "view",
        *KEYS,
        "sent",
        "sent_bytes",
        "acknowledged",
        "cut",
        *(f"dropped_{reason}" for reason in REASONS),
        (sf.col("sent") / seconds).alias("rate"),
        sf.try_divide(sf.col("cut") + dropped, offered).alias("loss"),
        sf.try_divide("waited_sum", "timed").alias("mean_ms"),
        sketches.quantile(response, 0.5).alias("p50_ms"),
        sketches.quantile(response, 0.95).alias("p95_ms"),
        sketches.quantile(response, 0.99).alias("p99_ms"),
        sf.col("longest").alias("max_ms"),
        sf.try_divide("acknowledged_sum", "acknowledged").alias("acknowledged_mean_ms"),
        sf.try_divide("within", "timed").alias("_within"),
        "response",
    )


def judged(rows: DataFrame, needs: DataFrame) -> DataFrame:
    """Whether requirements were met: of flows and applications that have one."""
    of_application = sf.col("view").isin("flow", "application")
    named = needs.select(
        sf.col("application").alias("_application"),
        "response_ms",
        "percentile",
        sf.col("mean_ms").alias("_mean_ms"),
        sf.col("loss").alias("_loss"),
        "throughput",
    )
    # What was not asked for is met; what nothing was sent of, nothing can be said of.
    met = (
        sf.coalesce(
            sf.col("response_ms").isNull() | (sf.col("_within") * 100 >= sf.col("percentile")),
            sf.lit(True),
        )
        & sf.coalesce(sf.col("mean_ms") <= sf.col("_mean_ms"), sf.lit(True))
        & sf.coalesce(sf.col("loss") <= sf.col("_loss"), sf.lit(True))
        # As long as they are published: what all of it arrived of is enough.
        & sf.coalesce(
            (sf.col("rate") >= sf.col("throughput")) | (sf.col("loss") == 0), sf.lit(True)
        )
    )
    known = sf.col("_application").isNotNull()
    within = sf.when(known & sf.col("response_ms").isNotNull(), sf.col("_within"))
    return (
        rows.join(
            sf.broadcast(named),
            of_application & (sf.col("application") == sf.col("_application")),
            "left",
        )
        .withColumn("within", within)
        .withColumn("met", sf.when(known, met))
        .drop(*named.columns, "_within")
    )
