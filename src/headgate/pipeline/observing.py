"""From message records to what each flow, application, category, topic and link experienced.

    records ─▶ counted: sums per window, flow, topic, kind and stretch of the response time
                  ─▶ measured: the same per flow, application, category, topic and link

`counted` is the only step that sees every record, and the only one that keeps state in a stream:
sums and nothing else. All rows of one window are complete at the same time, so `measured` can be
made of them batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
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

BASES = ("flow", "topic")
"""The views of which all others are made."""

KEYS = ("client", "filter", "application", "category", "link", "topic")

QUANTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}

TIMED = "timed"
"""The kind of what was sent, and not because it was retained: it has a response time."""

AMOUNTS = ("n", "bytes", "ms", "within")
SUMS = (*AMOUNTS, *sketches.COUNTS)

NUMBERS = ("response_ms", "percentile", "mean_ms", "loss", "throughput")
NEEDS = pa.schema([("application", pa.string()), *((name, pa.float64()) for name in NUMBERS)])
NEEDS_IN_SPARK = "application string, " + ", ".join(f"{name} double" for name in NUMBERS)
"""Told, because Spark Connect does not look at the schema of a table without rows."""


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
    """The same as a small table; of Arrow, which Spark knows by itself and asks no Python for."""
    columns = zip(*needs, strict=True) if needs else [()] * len(NEEDS)
    arrays = [pa.array(one, field.type) for one, field in zip(columns, NEEDS, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=NEEDS)
    return spark.createDataFrame(table, NEEDS_IN_SPARK)


def counted(records: DataFrame, needs: DataFrame, window: str) -> DataFrame:
    """Sums per window of `at`, flow, topic, kind and stretch of the response time.

    The kind is what became of a message: `timed`, or `sent` if it was retained; `acknowledged`,
    `cut`, or the reason for which it was dropped. It is a key, not a column of sums for each: few
    sums for each record, and narrow rows to shuffle and to keep. Buckets of the response time are
    a key and a column: few rows to keep, and few columns (docs/decisions/0060).
    """
    weight, n, timed = meanings()
    outcome = sf.col("outcome")
    known = sf.broadcast(needs.select("application", "response_ms"))
    in_time = timed & (sf.col("waited_ms") <= sf.col("response_ms"))
    each = records.join(known, "application", "left").select(
        "at",
        *KEYS,
        sf.when(timed, TIMED)
        .when(outcome == "dropped", sf.col("reason"))
        .otherwise(outcome)
        .alias("kind"),
        n.alias("n"),
        (sf.col("bytes") * weight).alias("bytes"),
        # One of the two is null: `acknowledged` has not waited, others are not acknowledged.
        (n * sf.coalesce("waited_ms", "acknowledged_ms")).alias("ms"),
        sf.when(in_time, n).otherwise(0.0).alias("within"),
        sf.when(timed, sf.col("waited_ms")).alias("longest"),
        sf.when(timed, sketches.bucket(sf.col("waited_ms"))).alias("bucket"),
    )
    stretch = sketches.stretch(sf.col("bucket")).alias("stretch")
    return each.groupBy(sf.window("at", window).alias("window"), *KEYS, "kind", stretch).agg(
        *(sf.sum(name).alias(name) for name in AMOUNTS),
        sf.max("longest").alias("longest"),
        *sketches.counts(sf.col("bucket"), sf.col("n")),
    )


def meanings() -> tuple[Column, Column, Column]:
    """Of a record: its weight, the messages that it stands for, whether it has a response time.

    Fields that an older segment lacks are null, and mean what they meant before they were there.
    """
    weight = sf.coalesce("weight", sf.lit(1.0))
    n = sf.coalesce("messages", sf.lit(1)) * weight
    timed = (sf.col("outcome") == "sent") & ~sf.coalesce("retained", sf.lit(False))
    return weight, n, timed


def exactly(rows: DataFrame, records: DataFrame, window: str) -> DataFrame:
    """The same rows, with quantiles of all values instead of the sketch's.

    Every value is held for each view that it belongs to: for when a hundredth matters, and not for
    streams.
    """
    _, n, timed = meanings()
    one = ("_window", "_view", *(f"_{key}" for key in KEYS))
    memberships = sf.explode(sf.array(*(keys_of(view, "_") for view in VIEWS)))
    found = (
        records.where(timed)
        .select(
            sf.window("at", window).alias("_window"),
            sf.col("waited_ms").alias("_ms"),
            sf.greatest(sf.round(n), sf.lit(1.0)).cast("long").alias("_n"),
            memberships.alias("_keys"),
        )
        .select("_window", "_ms", "_n", "_keys.*")
        .groupBy(*one)
        .agg(sf.percentile("_ms", list(QUANTILES.values()), sf.col("_n")).alias("_exact"))
    )
    same = (sf.col("start") == sf.col("_window.start")) & (sf.col("view") == sf.col("_view"))
    for key in KEYS:
        same = same & sf.col(key).eqNullSafe(sf.col(f"_{key}"))
    quantiles = {name: sf.get("_exact", sf.lit(at)) for at, name in enumerate(QUANTILES)}
    return rows.join(found, same, "left").withColumns(quantiles).select(*rows.columns)


def measured(counts: DataFrame, needs: DataFrame) -> DataFrame:
    """What each view experienced in each window, with the sketch to merge windows by."""
    return Measuring().of(counts, needs)


class Measuring:
    """How `counted` becomes what each view experienced, its expressions made once.

    They are the same at every step of a stream, and to make them, each a call to Spark, takes
    longer than to plan with them.
    """

    ONE = ("window", "view", *KEYS)
    """What tells a row of the result apart."""

    def __init__(self) -> None:
        self._summed = [
            *(sf.sum(name).alias(name) for name in SUMS),
            sf.max("longest").alias("longest"),
        ]
        self._halves = [columns("window", *VIEWS[view], "kind", "stretch") for view in BASES]
        self._every = columns("window", *KEYS, "kind", "stretch")
        self._from_flows = sf.grouping("topic").alias("_flow")
        self._keys = memberships().alias("_keys")
        self._outcomes = outcomes()
        self._described = described()
        self._needed = needed()
        self._of_application = sf.col("view").isin("flow", "application") & (
            sf.col("application") == sf.col("_application")
        )
        self._judged = judged()

    def of(self, counts: DataFrame, needs: DataFrame) -> DataFrame:
        # What a row of the result is made of is brought together once, for both sums.
        together = self._viewed(self._halved(counts)).repartition(*self.ONE)
        by_stretch = together.groupBy(*self.ONE, "kind", "stretch").agg(*self._summed)
        rows = by_stretch.groupBy(*self.ONE).agg(*self._outcomes).select(*self._described)
        named = sf.broadcast(needs.select(*self._needed))
        return (
            rows.join(named, self._of_application, "left")
            .withColumns(self._judged)
            .drop(*named.columns, "_within")
        )

    def _halved(self, counts: DataFrame) -> DataFrame:
        """The same by flow, and by topic: all other views are made of few rows of these, not of the
        many that flows times topics are."""
        return counts.groupingSets(self._halves, *self._every).agg(self._from_flows, *self._summed)

    def _viewed(self, halves: DataFrame) -> DataFrame:
        """Each row once for each view that it belongs to."""
        kept = ("window", "kind", "stretch", *SUMS, "longest")
        return halves.select(*kept, self._keys).select(*kept, "_keys.*")


def columns(*names: str) -> list[Column]:
    return [sf.col(name) for name in names]


def memberships() -> Column:
    """The keys of each view that a row of flows or of topics belongs to."""

    of_flows = sf.array(*(keys_of(view) for view in VIEWS if view != "topic"))
    of_topics = sf.array(keys_of("topic"))
    return sf.explode(sf.when(sf.col("_flow") == 1, of_flows).otherwise(of_topics))


def keys_of(view: str, prefix: str = "") -> Column:
    """What tells a row of a view apart: the fields that do not belong to it are null."""
    none = sf.lit(None).cast("string")
    keys = ((sf.col(key) if key in VIEWS[view] else none).alias(f"{prefix}{key}") for key in KEYS)
    return sf.struct(sf.lit(view).alias(f"{prefix}view"), *keys)


def outcomes() -> list[Column]:
    """Sums by kind, as columns, and the sketch of the response times."""
    kind = sf.col("kind")
    timed = kind == TIMED
    sent = timed | (kind == "sent")
    acknowledged = kind == "acknowledged"

    def total(column: str, condition: Column) -> Column:
        return sf.sum(sf.when(condition, sf.col(column)).otherwise(sf.lit(0.0)))

    return [
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
        sketches.collected(sf.col("stretch")).alias("response"),
    ]


def described() -> list[Column]:
    """Rates, means and quantiles of the sums."""
    seconds = sf.unix_micros("window.end") / 1e6 - sf.unix_micros("window.start") / 1e6
    dropped = sum((sf.col(f"dropped_{reason}") for reason in REASONS), sf.lit(0.0))
    offered = sf.col("sent") + sf.col("cut") + dropped
    response = sf.col("response")
    return [
        sf.col("window.start").alias("start"),
        sf.col("window.end").alias("end"),
        *columns("view", *KEYS, "sent", "sent_bytes", "acknowledged", "cut"),
        *columns(*(f"dropped_{reason}" for reason in REASONS)),
        (sf.col("sent") / seconds).alias("rate"),
        sf.try_divide(sf.col("cut") + dropped, offered).alias("loss"),
        sf.try_divide("waited_sum", "timed").alias("mean_ms"),
        *(
            sketches.quantile(response, share, sf.col("timed")).alias(name)
            for name, share in QUANTILES.items()
        ),
        sf.col("longest").alias("max_ms"),
        sf.try_divide("acknowledged_sum", "acknowledged").alias("acknowledged_mean_ms"),
        sf.try_divide("within", "timed").alias("_within"),
        response,
    ]


def needed() -> list[Column]:
    """Requirements, under names that the rows that are judged by them do not have."""
    return [
        sf.col("application").alias("_application"),
        *columns("response_ms", "percentile", "throughput"),
        sf.col("mean_ms").alias("_mean_ms"),
        sf.col("loss").alias("_loss"),
    ]


def judged() -> dict[str, Column]:
    """Whether requirements were met: of flows and applications that have one."""
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
    return {"within": within, "met": sf.when(known, met)}
