"""From what was observed to load ahead of time: series at equal steps, each continued by itself.

metrics of `observe` ─▶ loads: what was offered at each step, by link, category, application and
                        topic ─▶ complete: zero where nothing came, no row where nobody looked
                                   ─▶ forecast, back-test (`series`, one series at a time)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from headgate.pipeline.observing import REASONS
from headgate.pipeline.series import FORECASTS, Continued, continued

KEYS = ("link", "application", "category", "topic")
"""What tells series apart. A series has null in the others."""

FORECASTED = (
    "link string, application string, category string, topic string, start timestamp, "
    "end timestamp, rate double, bits double, low double, high double, model string, "
    "error double, coverage double, period_s double"
)
"""A row of the forecast, and what the job has to tell beside it."""

TESTED = (
    "link string, application string, category string, topic string, origin timestamp, "
    "start timestamp, model string, chosen boolean, measured double, bits double"
)


def loads(metrics: DataFrame, step: str) -> DataFrame:
    """Messages and bytes that were offered at each step, for every series.

    What was dropped has no packet, so its size is that of what was sent at the step; if nothing
    was, that of the whole series.
    """
    dropped = sum((sf.col(f"dropped_{reason}") for reason in REASONS), sf.lit(0.0))
    rows = metrics.select(
        "view",
        *KEYS,
        sf.window("start", step)["start"].alias("step"),
        "sent",
        "sent_bytes",
        (sf.col("sent") + sf.col("cut") + dropped).alias("offered"),
    )
    sums = [sf.sum(name).alias(name) for name in ("sent", "sent_bytes", "offered")]
    of_flows = (
        rows.where("view = 'flow'")
        .drop("topic")
        .groupingSets(
            [
                [sf.col("step"), sf.col("link")],
                [sf.col("step"), sf.col("link"), sf.col("category")],
                [sf.col("step"), sf.col("link"), sf.col("category"), sf.col("application")],
            ],
            *(sf.col(name) for name in ("step", "link", "category", "application")),
        )
        .agg(*sums)
        .withColumn("topic", sf.lit(None).cast("string"))
    )
    of_topics = (
        rows.where("view = 'topic'")
        .groupBy("step", "topic")
        .agg(*sums)
        .withColumns({name: sf.lit(None).cast("string") for name in KEYS if name != "topic"})
    )
    series = Window.partitionBy(*KEYS)
    size = sf.coalesce(
        sf.try_divide("sent_bytes", "sent"),
        sf.try_divide(sf.sum("sent_bytes").over(series), sf.sum("sent").over(series)),
        sf.lit(0.0),
    )
    return of_flows.unionByName(of_topics).select(
        *KEYS, "step", "offered", (sf.col("offered") * size).alias("bytes")
    )


def covered(metrics: DataFrame, seconds: float, history: int) -> DataFrame:
    """The steps of which anything is known from end to end: the newest `history` of them."""
    step = f"{round(seconds * 1e6)} microseconds"
    ends = metrics.agg(sf.min("start").alias("_from"), sf.max("end").alias("_to"))
    length = sf.expr(f"INTERVAL {round(seconds * 1e6)} MICROSECONDS")
    return (
        metrics.select(sf.window("start", step)["start"].alias("step"))
        .distinct()
        .crossJoin(sf.broadcast(ends))
        .where((sf.col("step") >= sf.col("_from")) & (sf.col("step") + length <= sf.col("_to")))
        .select("step")
        .sort(sf.desc("step"))
        .limit(history)
    )


def complete(found: DataFrame, steps: DataFrame, topics: int) -> DataFrame:
    """Every series at every step since it first appeared: zero where nothing came.

    A step at which nothing at all was observed is not there: nobody looked. Of the topics, those
    that carry most.
    """
    there = found.join(sf.broadcast(steps), "step", "left_semi")
    series = there.groupBy(*KEYS).agg(
        sf.min("step").alias("_since"), sf.sum("bytes").alias("_bytes")
    )
    of_links = series.where(sf.col("topic").isNull())
    of_topics = series.where(sf.col("topic").isNotNull()).sort(sf.desc("_bytes")).limit(topics)
    grid = (
        of_links.unionByName(of_topics)
        .crossJoin(sf.broadcast(steps))
        .where(sf.col("step") >= sf.col("_since"))
        .select(*KEYS, "step")
    )
    same = sf.lit(True)
    for name in (*KEYS, "step"):
        same = same & sf.col(f"grid.{name}").eqNullSafe(sf.col(f"there.{name}"))
    return (
        grid.alias("grid")
        .join(there.alias("there"), same, "left")
        .select(
            *(sf.col(f"grid.{name}") for name in (*KEYS, "step")),
            sf.coalesce("there.offered", sf.lit(0.0)).alias("offered"),
            sf.coalesce("there.bytes", sf.lit(0.0)).alias("bytes"),
        )
    )


Rows = Callable[[pd.DataFrame], pd.DataFrame]


def forecasts(seconds: float, horizon: int, period: int | None) -> Rows:
    """For Spark's workers: the steps of one series in, those ahead of it out."""

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        bits, rate, first = regular(rows, seconds)
        found = continued(bits, horizon, period)
        ahead = FORECASTS[found.method](rate, horizon, found.period)
        start = first + pd.to_timedelta((len(bits) + np.arange(horizon)) * seconds, unit="s")
        return pd.DataFrame(
            {
                **{name: rows[name].iloc[0] for name in KEYS},
                "start": start,
                "end": start + pd.to_timedelta(seconds, unit="s"),
                "rate": ahead,
                "bits": found.values,
                "low": found.low,
                "high": found.high,
                "model": str(found.method),
                "error": found.error,
                "coverage": found.coverage,
                "period_s": None if found.period is None else found.period * seconds,
            }
        )

    return run


def back_tests(seconds: float, horizon: int, period: int | None) -> Rows:
    """The same, out come the back-tests."""

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        bits, _, first = regular(rows, seconds)
        found: Continued = continued(bits, horizon, period)
        frames = []
        for test in found.tests:
            at = first + pd.to_timedelta(
                (test.origin + np.arange(len(test.said))) * seconds, unit="s"
            )
            frames.append(
                pd.DataFrame(
                    {
                        **{name: rows[name].iloc[0] for name in KEYS},
                        "origin": at[0],
                        "start": at,
                        "model": str(test.method),
                        "chosen": test.method is found.method,
                        "measured": test.came,
                        "bits": test.said,
                    }
                )
            )
        names = [field.split()[0] for field in TESTED.split(", ")]
        if not frames:
            return pd.DataFrame(columns=names)
        return pd.concat(frames)[names]

    return run


def regular(rows: pd.DataFrame, seconds: float) -> tuple[np.ndarray, np.ndarray, pd.Timestamp]:
    """bit/s and messages/s at equal steps, not a number where nobody looked; and the first step."""
    first = rows["step"].min()
    place = ((rows["step"] - first).dt.total_seconds() / seconds).round().astype(int).to_numpy()
    bits = np.full(place.max() + 1, np.nan)
    rate = bits.copy()
    bits[place] = 8 * rows["bytes"].to_numpy() / seconds
    rate[place] = rows["offered"].to_numpy() / seconds
    return bits, rate, first
