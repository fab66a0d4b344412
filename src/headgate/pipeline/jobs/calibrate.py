"""`headgate pipeline calibrate`: the model of each link, fitted to records and to simulations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from headgate.config import Configuration
from headgate.contract import LinkSpec
from headgate.contract.knowledge import CALIBRATION, VALIDATION, Input, Lineage
from headgate.contract.records import MESSAGES
from headgate.core.link import HEADERS
from headgate.core.links import MARGIN
from headgate.errors import ConfigurationError
from headgate.model import Scenario
from headgate.pipeline.calibrating import crossings, known_of
from headgate.pipeline.jobs.observe import interval
from headgate.pipeline.knowledge import KEEP, Errors, Making, Shelf, described
from headgate.pipeline.modelling import modelled
from headgate.pipeline.records import found, read, spark_schema
from headgate.pipeline.studying import (
    CALIBRATED,
    VALIDATED,
    Studying,
    calibrations,
    study_points,
    study_windows,
    validations,
)


@dataclass(frozen=True)
class Calibrate:
    """What to fit to, and where to put the result."""

    knowledge: str
    records: str | None = None
    dataset: str | None = None
    """Of `sweep`; with the scenario that was swept."""
    scenario: Scenario | None = None
    window: float = 60.0
    """Seconds."""
    windows: int = 10_000
    """Of each link, the newest: what a worker holds at a time is bounded by it."""
    keep: int = KEEP


@dataclass(frozen=True)
class Calibrated:
    """What came of it."""

    lineage: Lineage
    links: list[dict[str, object]]
    """The rows of the table, and `model_error`: of the model without calibration."""
    categories: Errors
    """By category, on held-out data: errors of mean and p99, before and after."""


def calibrate(spark: SparkSession, job: Calibrate, config: Configuration) -> Calibrated:
    """Fit, judge, and keep as a new version."""
    shelf = Shelf(job.knowledge)
    inputs: list[Input] = []
    studies: list[tuple[DataFrame, Studying]] = []
    if job.records is not None:
        known = windows_of(spark, job, job.records, inputs)
        studies.append(
            (with_before(known, spark, shelf, config.links, MARGIN, HEADERS), study_windows)
        )
    if job.dataset is not None:
        points = points_of(spark, job, job.dataset, inputs)
        assert job.scenario is not None
        if studies:
            # What was measured of a link counts, and not what was simulated of it.
            measured = studies[0][0].select("link").distinct()
            points = points.join(sf.broadcast(measured), "link", "left_anti")
        scenario = job.scenario
        points = with_before(points, spark, shelf, scenario.links, 1.0, scenario.overhead)
        studies.append((points, study_points))
    if not studies:
        raise ConfigurationError("nothing to calibrate by: give --records, or --dataset")
    links = union([studied(rows, calibrations(study), CALIBRATED) for rows, study in studies])
    held = union([studied(rows, validations(study), VALIDATED) for rows, study in studies])
    # Both tables are made of the same rows, and looked at before they are written.
    cached = [*(rows.persist() for rows, _ in studies), links.persist(), held.persist()]
    try:
        return kept(shelf, job, tuple(inputs), links, held)
    finally:
        for frame in cached:
            frame.unpersist()


def studied(
    rows: DataFrame, study: Callable[[pd.DataFrame], pd.DataFrame], schema: str
) -> DataFrame:
    """One link at a time: there are few, and each has a bounded number of windows."""
    return rows.groupBy("link").applyInPandas(study, schema)


def kept(
    shelf: Shelf,
    job: Calibrate,
    inputs: tuple[Input, ...],
    together: DataFrame,
    validation: DataFrame,
) -> Calibrated:
    links = [row.asDict() for row in together.sort("link").collect()]  # one for each link
    if not links:
        raise ConfigurationError(
            f"no link can be calibrated by {job.records or job.dataset}: no message went over a "
            "link whose rate is configured, or that was busy for long enough to tell"
        )
    categories = errors_of(validation)
    making = Making(
        inputs,
        {"window_s": job.window, "windows": job.windows},
        {**{f"category {name}": errors for name, errors in categories.items()}, **of_links(links)},
        tuple(notes_of(links)),
    )
    lineage = shelf.add(
        {VALIDATION.kind: validation, CALIBRATION.kind: together}, making, keep=job.keep
    )
    return Calibrated(lineage[CALIBRATION.kind], links, categories)


def windows_of(spark: SparkSession, job: Calibrate, place: str, inputs: list[Input]) -> DataFrame:
    records = read(spark, place, MESSAGES)
    segments = found(spark, MESSAGES).parquet(f"{place.rstrip('/')}/{MESSAGES.kind}")
    inputs.append(described("messages", place, segments, "at"))
    return known_of(crossings(records, interval(job.window)), job.windows)


def points_of(spark: SparkSession, job: Calibrate, place: str, inputs: list[Input]) -> DataFrame:
    if job.scenario is None:
        raise ConfigurationError("--dataset needs --scenario: the one that was swept")
    try:
        dataset = spark.read.parquet(place)
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigurationError(f"no sweep can be read from {place}: {reason}") from error
    other = dataset.where(sf.col("scenario") != job.scenario.name).select("scenario").head()
    if other is not None:
        raise ConfigurationError(
            f"{place} is a sweep of {other[0]!r}, not of {job.scenario.name!r}"
        )
    inputs.append(described("dataset", place, dataset, None))
    return modelled(dataset, job.scenario)


def with_before(
    rows: DataFrame,
    spark: SparkSession,
    shelf: Shelf,
    links: Sequence[LinkSpec],
    margin: float,
    overhead: float,
) -> DataFrame:
    """Rows with what was known of their link: as configured, and by the version in force.

    The broker paces below a link's rate by `margin`, and that is the rate that messages see.
    """
    given = spark.createDataFrame(
        [(one.name, None if one.rate is None else margin * one.rate) for one in links],
        "link string, given_rate double",
    )
    force = shelf.read(spark, CALIBRATION.kind)
    if force is None:
        force = spark.createDataFrame([], spark_schema(CALIBRATION))
    force = force.select(
        "link",
        sf.col("rate").alias("force_rate"),
        sf.col("overhead").alias("force_overhead"),
        sf.col("burstiness").alias("force_burstiness"),
        sf.col("response_factor").alias("force_response"),
    )
    return (
        rows.join(sf.broadcast(given), "link", "left")
        .join(sf.broadcast(force), "link", "left")
        .withColumn("given_overhead", sf.lit(float(overhead)))
    )


def union(frames: list[DataFrame]) -> DataFrame:
    first, *others = frames
    for other in others:
        first = first.unionByName(other)
    return first


def errors_of(validation: DataFrame) -> Errors:
    """By category: relative errors of mean and 99th percentile, before and after calibration."""

    def error(modelled: str, measured: str) -> Column:
        off = sf.coalesce(sf.abs(sf.col(modelled) - sf.col(measured)), sf.col(measured))
        return sf.try_divide(
            sf.sum(sf.col("messages") * off), sf.sum(sf.col("messages") * sf.col(measured))
        )

    rows = (
        validation.groupBy("category")
        .agg(
            sf.count("*").cast("double").alias("windows"),
            *(
                error(f"{which}_{what}_ms", f"{what}_ms").alias(f"{what}_{which}")
                for what in ("mean", "p99")
                for which in ("model", "calibrated")
            ),
        )
        .sort("category")
        .collect()
    )
    return {
        row["category"]: {k: v for k, v in row.asDict().items() if k != "category"} for row in rows
    }


def of_links(links: list[dict[str, object]]) -> Errors:
    return {
        f"link {row['link']}": {
            "mean_model": row["model_error"],  # type: ignore[dict-item]
            "mean_calibrated": row["error"],  # type: ignore[dict-item]
        }
        for row in links
    }


def notes_of(links: list[dict[str, object]]) -> list[str]:
    notes = []
    for row in links:
        if row["sparse"]:
            notes.append(f"{row['link']}: too little data to hold any out; errors are not known")
        if row["drift"]:
            notes.append(f"{row['link']}: has drifted from what was known of it")
    return notes
