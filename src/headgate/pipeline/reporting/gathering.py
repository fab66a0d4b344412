"""From the outputs of jobs to what fits on a page: Spark reduces, and what is collected is bounded.

However much there is, a page shows at most BINS points of time and the MOST important things of
each kind; the rest is in the tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from headgate.pipeline import sketches
from headgate.pipeline.observing import REASONS

BINS = 144
"""Points of time in a chart."""
MOST = 8
"""Lines in a chart, clients in a list."""
DOTS = 600
"""Points of a cloud."""

LOST = ("cut", *(f"dropped_{reason}" for reason in REASONS))


@dataclass(frozen=True)
class Observed:
    """The metrics of `observe`, by `bin` (seconds since the epoch) of `width` seconds."""

    since: float
    until: float
    width: float
    totals: pd.DataFrame
    """One row: sent, lost, p99_ms, mean_ms."""
    links: pd.DataFrame
    """name, bin, bits"""
    categories: pd.DataFrame
    """name, bin, bits, p50_ms, p95_ms, p99_ms"""
    applications: pd.DataFrame
    """name, bin, p50_ms, p95_ms, p99_ms: of those with requirements, and of the largest."""
    lost: pd.DataFrame
    """bin, and messages lost by reason"""
    attained: pd.DataFrame
    """application, category, windows, judged, met, within, p99_ms, mean_ms, loss, sent"""


def observed(metrics: DataFrame) -> Observed | None:
    ends = metrics.agg(
        (sf.min(sf.unix_micros("start")) / 1e6).alias("since"),
        (sf.max(sf.unix_micros("end")) / 1e6).alias("until"),
        (sf.max(sf.unix_micros("end") - sf.unix_micros("start")) / 1e6).alias("window"),
    ).collect()[0]
    if ends["since"] is None:
        return None
    window = max(ends["window"], 1e-6)
    # Whole windows in each bin, so that none is shown as half of itself.
    width = window * max(1, -(-(ends["until"] - ends["since"]) // (window * BINS)))
    start = sf.unix_micros("start") / 1e6
    binned = metrics.withColumn(
        "bin", sf.floor((start - ends["since"]) / width) * width + ends["since"]
    )
    rated = (8 * sf.sum("sent_bytes") / width).alias("bits")
    links = binned.where("view = 'link' and link != ''")
    categories = binned.where("view = 'category'")
    applications = binned.where("view = 'application' and application != ''")
    whole = binned.where("view = 'link'")  # every message is in one row of this view
    return Observed(
        ends["since"],
        ends["until"],
        width,
        whole.agg(sf.sum("sent").alias("sent"), lost().alias("lost"))
        .crossJoin(quantiles(whole, []))
        .toPandas(),
        largest(links, "link").groupBy("name", "bin").agg(rated).sort("name", "bin").toPandas(),
        largest(categories, "category")
        .groupBy("name", "bin")
        .agg(rated)
        .join(quantiles(largest(categories, "category"), ["name", "bin"]), ["name", "bin"], "left")
        .sort("name", "bin")
        .toPandas(),
        quantiles(largest(applications, "application", judged=True), ["name", "bin"])
        .sort("name", "bin")
        .toPandas(),
        whole.groupBy("bin")
        .agg(*(sf.sum(name).alias(name) for name in LOST))
        .sort("bin")
        .toPandas(),
        attained(applications),
    )


def lost() -> Column:
    return sf.sum(sum((sf.col(name) for name in LOST), sf.lit(0.0)))


def largest(rows: DataFrame, key: str, *, judged: bool = False) -> DataFrame:
    """The rows of the MOST that sent most (those that are judged before others), as `name`."""
    order = [sf.desc("_sent")]
    if judged:
        order.insert(0, sf.desc("_judged"))
    chosen = (
        rows.groupBy(key)
        .agg(sf.sum("sent").alias("_sent"), (sf.count("met") > 0).alias("_judged"))
        .sort(*order)
        .limit(MOST)
        .select(key)
    )
    named = sf.when(sf.col(key) == "", "(none)").otherwise(sf.col(key))
    return rows.join(sf.broadcast(chosen), key, "left_semi").withColumn("name", named)


def quantiles(rows: DataFrame, keys: list[str]) -> DataFrame:
    """Mean and quantiles of the response of all rows of a key together, from their sketches."""
    response = sf.col("_response")
    return (
        rows.select(*keys, sf.explode("response").alias("_one"))
        .groupBy(*keys, sf.col("_one.bucket").alias("bucket"))
        .agg(sf.sum("_one.n").alias("n"))
        .groupBy(*keys)
        .agg(
            sf.array_sort(sf.collect_list(sf.struct("bucket", "n"))).alias("_response"),
            sf.try_divide(
                sf.sum(sketches.value(sf.col("bucket")) * sf.col("n")), sf.sum("n")
            ).alias("mean_ms"),
        )
        .select(
            *keys,
            "mean_ms",
            sketches.quantile(response, 0.5).alias("p50_ms"),
            sketches.quantile(response, 0.95).alias("p95_ms"),
            sketches.quantile(response, 0.99).alias("p99_ms"),
        )
    )


def attained(applications: DataFrame) -> pd.DataFrame:
    """How often requirements were met: the applications that were worst off first."""
    counts = applications.groupBy("application", "category").agg(
        sf.count("*").alias("windows"),
        sf.count("met").alias("judged"),
        sf.count_if("met").alias("met"),
        sf.try_divide(
            sf.sum(sf.col("within") * sf.col("sent")),
            sf.sum(sf.when(sf.col("within").isNotNull(), sf.col("sent"))),
        ).alias("within"),
        sf.sum("sent").alias("sent"),
        sf.try_divide(lost(), sf.sum("sent") + lost()).alias("loss"),
    )
    return (
        counts.join(
            quantiles(applications, ["application", "category"]),
            ["application", "category"],
            "left",
        )
        .withColumn("_share", sf.try_divide("met", "judged"))
        .sort(sf.asc_nulls_last("_share"), sf.desc("sent"))
        .limit(4 * MOST)
        .drop("_share")
        .toPandas()
    )


@dataclass(frozen=True)
class Habits:
    totals: pd.DataFrame
    """One row: clients, and of how many periods are exponential or not."""
    clients: pd.DataFrame
    """Those of which most periods were seen."""


def habits(table: DataFrame) -> Habits:
    return Habits(
        table.agg(
            sf.count("*").alias("clients"),
            sf.count_if("on_exponential").alias("on_fits"),
            sf.count("on_exponential").alias("on_judged"),
            sf.count_if("off_exponential").alias("off_fits"),
            sf.count("off_exponential").alias("off_judged"),
        ).toPandas(),
        table.sort(sf.desc_nulls_last(sf.col("on_periods") + sf.col("off_periods")), "client")
        .limit(MOST)
        .toPandas(),
    )


def swept(dataset: DataFrame) -> pd.DataFrame:
    """Response over load, by category: quartiles of the points' means in twelve classes."""
    ends = dataset.agg(sf.min("load").alias("low"), sf.max("load").alias("high")).collect()[0]
    if ends["low"] is None:
        return pd.DataFrame()
    width = max((ends["high"] - ends["low"]) / 12, 1e-9)
    place = sf.least(sf.floor((sf.col("load") - ends["low"]) / width), sf.lit(11))
    middle = (place + 0.5) * width + ends["low"]
    return (
        dataset.groupBy("category", middle.alias("load"))
        .agg(
            sf.count("*").alias("points"),
            *(sf.percentile_approx("mean_ms", p / 100).alias(f"q{p}") for p in (25, 50, 75)),
        )
        .sort("category", "load")
        .toPandas()
    )


def cloud(validation: DataFrame) -> pd.DataFrame:
    """Held-out windows, or a fair choice of them; always the same."""
    known = validation.where("mean_ms > 0")
    chosen = known.orderBy(sf.xxhash64("link", "category", "start", "point")).limit(DOTS)
    return chosen.toPandas()


def continued(forecast: DataFrame, backtest: DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Forecasts of the largest links, and what their back-tests were.

    Steps are as many as were forecast; of the back-test, the newest origins.
    """
    of_links = "category is null and topic is null and link != ''"
    chosen = (
        forecast.where(of_links)
        .groupBy("link")
        .agg(sf.avg("bits").alias("_bits"))
        .sort(sf.desc("_bits"))
        .limit(4)
        .select("link")
    )
    ahead = forecast.where(of_links).join(sf.broadcast(chosen), "link", "left_semi")
    tested = backtest.where(of_links).join(sf.broadcast(chosen), "link", "left_semi")
    return (
        ahead.sort("link", "start").limit(8000).toPandas(),
        tested.sort("link", sf.desc("start")).limit(8000).toPandas(),
    )


def tables_in(spark: SparkSession, folder: str, names: tuple[str, ...]) -> dict[str, DataFrame]:
    """Those of a folder's tables that are there and can be read."""
    found = {}
    for name in names:
        try:
            found[name] = spark.read.parquet(f"{folder.rstrip('/')}/{name}")
        except Exception:  # noqa: S112 (not there, or empty: the page says so)
            continue
    return found
