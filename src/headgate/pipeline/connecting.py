"""From connection events to how clients come and go: ON and OFF periods, and what they tell.

    events ─▶ periods: when each client was here and away ─▶ habits: the means, with confidence
                                                          ─▶ with ζ, the join probability of ON/OFF

A period whose end nobody saw (the broker ended, or it still lasts) is censored: it counts as time,
not as a period. Absences across a restart of the broker are left out, as in `core/connectivity.py`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import DoubleType
from scipy import stats

from headgate.contract.records import Coming
from headgate.core.observing import Parting
from headgate.model import OnOffQueue

CONFIDENCE = 0.95

CRITICAL = 1.094
"""Of the modified Kolmogorov distance to an exponential distribution whose mean is estimated, at
5 % (Stephens, JASA 69, 1974, table 1A, case 4)."""

STEPS = 50
"""Halvings in the search for ζ: more than a double resolves."""


def periods(events: DataFrame) -> DataFrame:
    """When each client was here (`on`) and away (`off`): start, seconds, and whether it ended."""
    ended = events.groupBy("broker").agg(sf.max("at").alias("_ended"))
    clients = continued(events.where(sf.col("client") != ""))
    later = Window.partitionBy("broker", "client").orderBy("sequence")
    state = sf.when(sf.col("event") == Coming.CONNECTED, "on").otherwise("off")
    seen = clients.select(
        "broker",
        "client",
        state.alias("state"),
        sf.col("at").alias("start"),
        "reason",
        sf.lead("at").over(later).alias("_next"),
        sf.lead("reason").over(later).alias("_why"),
    ).join(sf.broadcast(ended), "broker")
    # Who leaves because the broker ends would have stayed: nobody knows how long.
    own_end = sf.col("_next").isNotNull() & (
        (sf.col("state") == "off") | (sf.col("_why") != Parting.SHUTDOWN)
    )
    return seen.where((sf.col("state") == "on") | (sf.col("reason") != Parting.SHUTDOWN)).select(
        "broker",
        "client",
        "state",
        "start",
        elapsed("start", sf.coalesce("_next", "_ended")).alias("seconds"),
        own_end.alias("complete"),
    )


def continued(events: DataFrame) -> DataFrame:
    """Comings and goings, without those of a client that took over its own connection."""
    before = Window.partitionBy("broker", "client").orderBy("sequence")
    taken_over = sf.col("reason") == Parting.TAKEN_OVER
    return (
        events.where(sf.col("event").isin(Coming.CONNECTED, Coming.PARTED))
        .withColumn("_follows", sf.coalesce(sf.lag(taken_over).over(before), sf.lit(False)))
        .where(~taken_over & ~sf.col("_follows"))
        .drop("_follows")
    )


def elapsed(start: str, end: Column) -> Column:
    return (sf.unix_micros(end) - sf.unix_micros(start)) / 1e6


def habits(found: DataFrame) -> DataFrame:
    """Mean ON and OFF periods of each client, their confidence, and how exponential they are.

    The mean is the time in a state over the periods that ended in it: the maximum likelihood
    estimate when some are censored. Its interval is that of an exponential distribution.
    """
    chi2 = pandas_udf(chi2_quantiles, DoubleType())  # type: ignore[call-overload]
    summed = (
        distances(found)
        .groupBy("client", "state")
        .agg(
            sf.count_if("complete").alias("periods"),
            sf.sum("seconds").alias("time_s"),
            sf.max("_distance").alias("_distance"),
            sf.try_divide(
                sf.var_samp(sf.when(sf.col("complete"), sf.col("seconds"))),
                sf.pow(sf.avg(sf.when(sf.col("complete"), sf.col("seconds"))), sf.lit(2)),
            ).alias("scv"),
        )
    )
    n = sf.col("periods")
    # Stephens: the distance grows comparable across sample sizes by this factor.
    modified = (sf.col("_distance") - 0.2 / n) * (sf.sqrt(n) + 0.26 + 0.5 / sf.sqrt(n))
    return summed.select(
        "client",
        "state",
        "periods",
        sf.try_divide("time_s", n).alias("mean_s"),
        (2 * sf.col("time_s") / chi2(sf.lit((1 + CONFIDENCE) / 2), 2 * n)).alias("low_s"),
        (2 * sf.col("time_s") / chi2(sf.lit((1 - CONFIDENCE) / 2), 2 * n)).alias("high_s"),
        "scv",
        sf.when(n >= 5, modified).alias("distance"),
        sf.when(n >= 5, modified < CRITICAL).alias("exponential"),
    )


def distances(found: DataFrame) -> DataFrame:
    """Each complete period's distance from the exponential distribution of its client's mean."""
    same = Window.partitionBy("client", "state", "complete")
    rank = sf.row_number().over(same.orderBy("seconds"))
    count = sf.count("*").over(same)
    expected = 1 - sf.exp(-sf.try_divide(sf.col("seconds"), sf.avg("seconds").over(same)))
    distance = sf.greatest(rank / count - expected, expected - (rank - 1) / count)
    return found.withColumn("_distance", sf.when(sf.col("complete"), distance))


def chi2_quantiles(fraction: pd.Series, freedom: pd.Series) -> pd.Series:
    """Quantiles of the chi-square distribution; null without a period."""
    return pd.Series(stats.chi2.ppf(fraction, freedom.where(freedom > 0)))


def joining(known: DataFrame, traffic: DataFrame) -> DataFrame:
    """Habits in one row for each client, with ζ for those of which enough is known.

    `traffic` has `client`, `arrival_rate` (offered per second), `service_rate` (per second while it
    is here) and `threshold_s` (the mean response to keep).
    """
    largest_join = pandas_udf(largest_joins, DoubleType())  # type: ignore[call-overload]
    on, off = (
        known.where(sf.col("state") == state).select(
            "client",
            *(
                sf.col(name).alias(f"{state}_{name}")
                for name in ("mean_s", "low_s", "high_s", "periods", "scv", "exponential")
            ),
        )
        for state in ("on", "off")
    )
    return (
        on.join(off, "client", "full")
        .join(traffic, "client", "left")
        .withColumn(
            "join",
            largest_join("arrival_rate", "service_rate", "on_mean_s", "off_mean_s", "threshold_s"),
        )
    )


def largest_joins(
    arrival_rate: pd.Series,
    service_rate: pd.Series,
    on_s: pd.Series,
    off_s: pd.Series,
    threshold_s: pd.Series,
) -> pd.Series:
    """The largest ζ whose mean response stays within the threshold (ON/OFF §II-C).

    All clients of a batch are searched at once, by halving. Null where something is not known, 0
    where even that is too slow.
    """
    given = np.array([arrival_rate, service_rate, on_s, off_s, threshold_s], dtype=float)
    known = np.isfinite(given).all(axis=0) & (given > 0).all(axis=0)
    lam, mu, on, off, threshold = np.where(known, given, 1.0)
    low, high = np.zeros(len(lam)), np.ones(len(lam))

    def fits(join: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            response = np.asarray(OnOffQueue(lam, mu, on, off, join).mean_response)
        return np.asarray(np.nan_to_num(response, nan=np.inf) <= threshold)

    everything = fits(high)
    for _ in range(STEPS):
        middle = (low + high) / 2
        enough = fits(middle)
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    return pd.Series(np.where(known, np.where(everything, 1.0, low), np.nan))


def traffic(messages: DataFrame, thresholds: DataFrame) -> DataFrame:
    """What is offered to each client and how fast it takes it, from message records.

    A message is served from its sending to its acknowledgement. A client that has several in
    flight is faster than that says, so the ζ that follows is on the safe side.
    """
    n = sf.col("messages") * sf.col("weight")
    offered = sf.col("outcome").isin("sent", "cut", "dropped") & ~sf.col("retained")
    confirmed = sf.col("outcome") == "acknowledged"
    span = messages.agg(elapsed_between("at").alias("_span"))
    return (
        messages.groupBy("client", "application")
        .agg(
            sf.sum(sf.when(offered, n).otherwise(0.0)).alias("_offered"),
            sf.sum(sf.when(confirmed, n * sf.col("acknowledged_ms"))).alias("_busy_ms"),
            sf.sum(sf.when(confirmed, n)).alias("_served"),
        )
        .crossJoin(sf.broadcast(span))
        .join(sf.broadcast(thresholds), "application", "left")
        .groupBy("client")  # who belongs to several applications keeps the shortest promise
        .agg(
            sf.try_divide(sf.sum("_offered"), sf.first("_span")).alias("arrival_rate"),
            sf.try_divide(1e3 * sf.sum("_served"), sf.sum("_busy_ms")).alias("service_rate"),
            sf.min("threshold_s").alias("threshold_s"),
        )
    )


def elapsed_between(moment: str) -> Column:
    return (sf.unix_micros(sf.max(moment)) - sf.unix_micros(sf.min(moment))) / 1e6
