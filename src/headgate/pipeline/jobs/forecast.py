"""`headgate pipeline forecast`: load ahead of time, from what was observed."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from headgate.contract.knowledge import BACKTEST, FORECAST, Lineage
from headgate.errors import ConfigurationError
from headgate.pipeline.forecasting import (
    FORECASTED,
    KEYS,
    TESTED,
    back_tests,
    complete,
    covered,
    forecasts,
    loads,
)
from headgate.pipeline.jobs.observe import interval
from headgate.pipeline.knowledge import KEEP, Errors, Making, Shelf, described


@dataclass(frozen=True)
class Forecast:
    """What to forecast by, and how far."""

    metrics: str
    """Of `observe`."""
    knowledge: str
    horizon: float = 3600.0
    """Seconds ahead."""
    step: float = 300.0
    """Seconds."""
    period: float | None = None
    """Seconds after which load repeats itself; None: as found in each series."""
    topics: int = 100
    """Topics that are looked at one by one: those that carry most."""
    history: int = 5000
    """Steps, the newest: what a worker holds at a time is bounded by it."""
    keep: int = KEEP


@dataclass(frozen=True)
class Forecasted:
    """What came of it."""

    lineage: Lineage
    errors: Errors
    """By kind of series: how many, errors of each model and of the chosen ones, coverage."""


def forecast(spark: SparkSession, job: Forecast) -> Forecasted:
    """Continue every series, judge, and keep as a new version."""
    try:
        metrics = spark.read.option("recursiveFileLookup", "true").parquet(job.metrics)
        metrics.select("view", "start", "end", "sent", "sent_bytes", "cut", *KEYS)
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigurationError(f"no metrics can be read from {job.metrics}: {reason}") from error
    steps = covered(metrics, job.step, job.history)
    shape = check(metrics, steps, job)
    series = complete(loads(metrics, interval(job.step)), steps, job.topics).persist()
    horizon = max(1, round(job.horizon / job.step))
    period = None if job.period is None else max(2, round(job.period / job.step))
    grouped = series.groupBy(*KEYS)
    ahead = grouped.applyInPandas(forecasts(job.step, horizon, period), FORECASTED).persist()
    tested = grouped.applyInPandas(back_tests(job.step, horizon, period), TESTED).persist()
    try:
        errors = errors_of(ahead, tested)
        notes = [] if shape > 1 else ["one step of data: what came last is all that is known"]
        unjudged = ahead.where(sf.col("error").isNull()).select(*KEYS).distinct().count()
        if unjudged:
            notes.append(
                f"{unjudged} series are too short to be judged: they have no error, and an "
                "interval of all that ever came"
            )
        making = Making(
            (described("metrics", job.metrics, metrics, "start"),),
            {
                "horizon_s": job.horizon,
                "step_s": job.step,
                "period_s": job.period,
                "topics": job.topics,
                "history": job.history,
            },
            errors,
            tuple(notes),
        )
        tables = {BACKTEST.kind: tested, FORECAST.kind: ahead}
        lineage = Shelf(job.knowledge).add(tables, making, keep=job.keep)
        return Forecasted(lineage[FORECAST.kind], errors)
    finally:
        for frame in (ahead, tested, series):
            frame.unpersist()


def check(metrics: DataFrame, steps: DataFrame, job: Forecast) -> int:
    """How many steps are known; says so where there are none, or where windows are longer."""
    longest = metrics.select(
        sf.max(sf.unix_micros("end") - sf.unix_micros("start")).alias("longest")
    ).collect()[0]["longest"]
    if longest is None:
        raise ConfigurationError(f"{job.metrics} holds no metrics: nothing was observed yet")
    if longest > job.step * 1e6:
        raise ConfigurationError(
            f"--step {job.step:g}s is shorter than the windows of {job.metrics}, "
            f"{longest / 1e6:g}s: take at least that"
        )
    count = steps.count()
    if not count:
        raise ConfigurationError(
            f"{job.metrics} holds no whole step of {job.step:g} s: take a shorter --step, or wait"
        )
    return count


def kind_of() -> Column:
    """Which kind of series a row is of, by what is null."""
    return (
        sf.when(sf.col("topic").isNotNull(), "topic")
        .when(sf.col("application").isNotNull(), "application")
        .when(sf.col("category").isNotNull(), "category")
        .otherwise("link")
    )


def errors_of(ahead: DataFrame, tested: DataFrame) -> Errors:
    """How good the forecasts would have been, by kind of series."""
    off = sf.abs(sf.col("measured") - sf.col("bits"))
    models = ("last-value", "seasonal-naive", "regression")

    def error(condition: Column) -> Column:
        return sf.try_divide(
            sf.sum(sf.when(condition, off)), sf.sum(sf.when(condition, sf.col("measured")))
        )

    judged = (
        tested.groupBy(kind_of().alias("kind"))
        .agg(
            error(sf.col("chosen")).alias("chosen"),
            *(error(sf.col("model") == name).alias(name) for name in models),
        )
        .collect()
    )
    series = (
        ahead.groupBy(*KEYS)
        .agg(sf.first("coverage").alias("coverage"), sf.first("model").alias("model"))
        .groupBy(kind_of().alias("kind"))
        .agg(
            sf.count("*").cast("double").alias("series"),
            sf.avg("coverage").alias("coverage"),
            *(sf.count_if(sf.col("model") == m).cast("double").alias(f"by {m}") for m in models),
        )
        .collect()
    )
    found: Errors = {}
    for row in (*series, *judged):
        found.setdefault(row["kind"], {}).update(
            {name: value for name, value in row.asDict().items() if name != "kind"}
        )
    return dict(sorted(found.items()))
