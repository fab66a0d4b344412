"""From message records to what each flow, application, category, topic and link experienced.

    records ─▶ counted: sums per window, flow, topic, kind and bucket of the response time
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

TIMED = "timed"
"""The kind of what was sent, and not because it was retained: it has a response time."""

SUMS = ("n", "bytes", "ms", "within")

NEEDS = (
    "application string, response_ms double, percentile double, mean_ms double, loss double, "
    "throughput double"
)


Need = tuple[str, float | None, float | None, float | None, float | None, float | None]
"""A row of `NEEDS`."""


def needs_from(needed: Iterable[tuple[Application, Requirement | None]]) -> list[Need]:
    """What applications need."""
    return [
        (one.name, need.response_ms, need.percentile, need.mean_ms, need.loss, need.throughput)
        for one, need in needed
        if need is not None
    ]


def requirements(spark: SparkSession, needs: list[Need]) -> DataFrame:
    """The same as a small table."""
    return spark.createDataFrame(needs, NEEDS)


def counted(records: DataFrame, needs: DataFrame, window: str) -> DataFrame:
    """Sums per window of `at`, flow, topic, kind and bucket of the response time.

    The kind is what became of a message: `timed`, or `sent` if it was retained; `acknowledged`,
    `cut`, or the reason for which it was dropped. It is a key, not a column of sums for each: few
    sums for each record, and narrow rows to shuffle and to keep.
    """
    # Fields that an older segment lacks are null, and mean what they meant before they were there.
    n = sf.coalesce("messages", sf.lit(1)) * sf.coalesce("weight", sf.lit(1.0))
    outcome = sf.col("outcome")
    timed = (outcome == "sent") & ~sf.coalesce("retained", sf.lit(False))
    known = sf.broadcast(needs.select("application", "response_ms"))
    return (
        records.join(known, "application", "left")
        .groupBy(
            sf.window("at", window).alias("window"),
            *KEYS,
            sf.when(timed, TIMED)
            .when(outcome == "dropped", sf.col("reason"))
            .otherwise(outcome)
            .alias("kind"),
            sf.when(timed, sketches.bucket(sf.col("waited_ms"))).alias("bucket"),
        )
        .agg(
            sf.sum(n).alias("n"),
            sf.sum(sf.col("bytes") * sf.coalesce("weight", sf.lit(1.0))).alias("bytes"),
            # One of the two is null: `acknowledged` has not waited, others are not acknowledged.
            sf.sum(n * sf.coalesce("waited_ms", "acknowledged_ms")).alias("ms"),
            sf.sum(
                sf.when(timed & (sf.col("waited_ms") <= sf.col("response_ms")), n).otherwise(0.0)
            ).alias("within"),
            sf.max(sf.when(timed, sf.col("waited_ms"))).alias("longest"),
        )
    )


def measured(counts: DataFrame, needs: DataFrame) -> DataFrame:
    """What each view experienced in each window, with the sketch to merge windows by."""
    by_bucket = (
        viewed(halved(counts)).groupBy("window", "view", *KEYS, "kind", "bucket").agg(*summed())
    )
    kind = sf.col("kind")
    timed = kind == TIMED
    sent = timed | (kind == "sent")
    acknowledged = kind == "acknowledged"
    one = sf.struct(sf.col("bucket"), sf.col("n"))
    rows = by_bucket.groupBy("window", "view", *KEYS).agg(
        total("n", sent).alias("sent"),
        total("bytes", sent).alias("sent_bytes"),
        total("n", acknowledged).alias("acknowledged"),
        total("n", kind == "cut").alias("cut"),
        *(total("n", kind == reason).alias(f"dropped_{reason}") for reason in REASONS),
        total("ms", timed).alias("waited_sum"),
        total("ms", acknowledged).alias("acknowledged_sum"),
        sf.sum("within").alias("within"),
        total("n", timed).alias("timed"),
        sf.max("longest").alias("longest"),
        sf.array_sort(sf.collect_list(sf.when(timed, one))).alias("response"),
    )
    return judged(described(rows), needs)


def total(column: str, condition: Column) -> Column:
    return sf.sum(sf.when(condition, sf.col(column)).otherwise(sf.lit(0.0)))


def halved(counts: DataFrame) -> DataFrame:
    """The same by flow, and by topic: all other views are made of few rows of these, not of the
    many that flows times topics are."""
    every = ("window", *KEYS, "kind", "bucket")
    sets = [
        [sf.col(name) for name in ("window", *VIEWS[view], "kind", "bucket")]
        for view in ("flow", "topic")
    ]
    return counts.groupingSets(sets, *(sf.col(name) for name in every)).agg(
        sf.grouping("topic").alias("_flow"), *summed()
    )


def viewed(halves: DataFrame) -> DataFrame:
    """Each row once for each view that it belongs to."""

    def keys(view: str) -> Column:
        none = sf.lit(None).cast("string")
        return sf.struct(
            sf.lit(view).alias("view"),
            *((sf.col(key) if key in VIEWS[view] else none).alias(key) for key in KEYS),
        )

    of_flows = sf.array(*(keys(view) for view in VIEWS if view != "topic"))
    of_topics = sf.array(keys("topic"))
    views = sf.explode(sf.when(sf.col("_flow") == 1, of_flows).otherwise(of_topics))
    kept = ("window", "kind", "bucket", *SUMS, "longest")
    return halves.select(*kept, views.alias("_keys")).select(*kept, "_keys.*")


def summed() -> list[Column]:
    return [*(sf.sum(name).alias(name) for name in SUMS), sf.max("longest").alias("longest")]


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
        *(
            sketches.quantile(response, share, sf.col("timed")).alias(name)
            for name, share in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99))
        ),
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
