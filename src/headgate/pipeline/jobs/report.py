"""`headgate pipeline report`: what all jobs found, on one page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headgate.config import Configuration
from headgate.contract.knowledge import BACKTEST, CALIBRATION, FORECAST, VALIDATION
from headgate.pipeline.knowledge import Shelf
from headgate.pipeline.reporting import gathering, sections
from headgate.pipeline.reporting.gathering import MOST, Observed
from headgate.pipeline.reporting.page import Section, Tile, moment, page


@dataclass(frozen=True)
class Report:
    """Where outputs of jobs are; what is None is left out."""

    metrics: str | None = None
    habits: str | None = None
    dataset: str | None = None
    knowledge: str | None = None
    lake: str | None = None
    title: str = "Headgate"


@dataclass(frozen=True)
class Reported:
    html: str
    shown: tuple[str, ...]
    missing: tuple[str, ...]
    """With the reason."""


OBSERVED = ("Load", "Response", "Loss", "Attainment")


def report(spark: SparkSession, job: Report, config: Configuration) -> Reported:
    """The page, of whatever there is."""
    found, parts = observed_sections(spark, job, config)
    parts.append(
        of_table(
            "Connectivity",
            "connectivity",
            job.habits,
            spark,
            lambda table: sections.connectivity(gathering.habits(table)),
        )
    )
    parts.append(
        of_table(
            "Sweep",
            "sweep",
            job.dataset,
            spark,
            lambda table: sections.sweep(gathering.swept(table)),
        )
    )
    parts.extend(knowledge_sections(spark, job.knowledge))
    parts.append(lake_section(spark, job.lake))
    now = datetime.now(UTC)
    subtitle = f"Made on {moment(now)}."
    if found is not None:
        since, until = (datetime.fromtimestamp(t, UTC) for t in (found.since, found.until))
        subtitle = f"{moment(since)} to {moment(until)}. {subtitle}"
    return Reported(
        page(job.title, subtitle, tiles_of(found), parts),
        tuple(one.name for one in parts if not one.missing),
        tuple(f"{one.name}: {one.missing}" for one in parts if one.missing),
    )


def observed_sections(
    spark: SparkSession, job: Report, config: Configuration
) -> tuple[Observed | None, list[Section]]:
    if job.metrics is None:
        why = "the output of observe was not given (--metrics)"
        return None, [Section(name, "", missing=why) for name in OBSERVED]
    try:
        metrics = spark.read.option("recursiveFileLookup", "true").parquet(job.metrics)
        found = gathering.observed(metrics)
    except Exception as error:
        return None, [
            Section(name, "", missing=unreadable(job.metrics, error)) for name in OBSERVED
        ]
    if found is None:
        return None, [Section(name, "", missing="nothing was observed") for name in OBSERVED]
    needs = {
        one.name: need
        for one in config.applications
        if (need := config.requirement_of(one)) is not None
    }
    return found, [
        sections.load(found),
        sections.response(found, needs),
        sections.losses(found),
        sections.attainment(found, needs),
    ]


def of_table(
    name: str,
    option: str,
    place: str | None,
    spark: SparkSession,
    make: Callable[[DataFrame], Section],
) -> Section:
    """A section of one job's output, or why there is none."""
    if place is None:
        return Section(name, "", missing=f"the output of {option} was not given")
    try:
        table = spark.read.parquet(place)
        if table.isEmpty():
            return Section(name, "", missing=f"{place} is empty")
        return make(table)
    except Exception as error:
        return Section(name, "", missing=unreadable(place, error))


def knowledge_sections(spark: SparkSession, place: str | None) -> list[Section]:
    if place is None:
        why = "no knowledge was given (--knowledge)"
        return [Section(name, "", missing=why) for name in ("Calibration", "Forecast")]
    shelf = Shelf(place)
    return [calibration_section(spark, shelf), forecast_section(spark, shelf)]


def calibration_section(spark: SparkSession, shelf: Shelf) -> Section:
    version = shelf.version(CALIBRATION.kind)
    if version is None:
        return Section("Calibration", "", missing=f"none in {shelf.place}")
    table = shelf.read(spark, CALIBRATION.kind, version)
    held = shelf.read(spark, VALIDATION.kind, version)
    lineage = shelf.lineage(CALIBRATION.kind, version)
    assert table is not None
    assert held is not None
    assert lineage is not None
    links = table.sort(sf.desc("drift"), "link").limit(4 * MOST).toPandas()
    return sections.calibration(links, lineage, gathering.cloud(held))


def forecast_section(spark: SparkSession, shelf: Shelf) -> Section:
    version = shelf.version(FORECAST.kind)
    if version is None:
        return Section("Forecast", "", missing=f"none in {shelf.place}")
    ahead = shelf.read(spark, FORECAST.kind, version)
    tested = shelf.read(spark, BACKTEST.kind, version)
    lineage = shelf.lineage(FORECAST.kind, version)
    assert ahead is not None
    assert tested is not None
    assert lineage is not None
    shown = gathering.continued(ahead, tested)
    if shown[0].empty:
        return Section("Forecast", "", missing="no link was forecast")
    return sections.forecast(*shown, lineage)


def lake_section(spark: SparkSession, place: str | None) -> Section:
    if place is None:
        return Section("Sensors", "", missing="the output of lake was not given (--lake)")
    found = gathering.tables_in(spark, f"{place.rstrip('/')}/gold", ("sensors", "gaps"))
    if "sensors" not in found:
        return Section("Sensors", "", missing=f"{place} has no gold/sensors")
    try:
        return gold_section(found["sensors"], found.get("gaps"))
    except Exception as error:
        return Section("Sensors", "", missing=unreadable(place, error))


def gold_section(known: DataFrame, gaps: DataFrame | None) -> Section:
    totals = known.agg(sf.count("*").alias("sensors"), sf.count_if("late").alias("late")).collect()[
        0
    ]
    late = known.where("late").sort(sf.desc("silent_s")).limit(2 * MOST).drop("distances")
    longest = None if gaps is None else gaps.sort(sf.desc("seconds")).limit(2 * MOST).toPandas()
    empty = known.limit(0).toPandas()
    return sections.sensors(
        {
            "sensors": totals["sensors"],
            "late": totals["late"],
            "gaps": 0 if gaps is None else gaps.count(),
        },
        late.toPandas(),
        empty if longest is None else longest,
    )


def unreadable(place: str, error: Exception) -> str:
    return f"{place} cannot be read: {(str(error).strip() or type(error).__name__).splitlines()[0]}"


def tiles_of(found: Observed | None) -> list[Tile]:
    """What one looks for first."""
    if found is None:
        return []
    total = found.totals.iloc[0]
    sent, lost = float(total["sent"] or 0), float(total["lost"] or 0)
    tiles = [
        Tile(f"{sent:,.0f}", "messages sent"),
        Tile(sections.percent(lost / (sent + lost) if sent + lost else None), "lost"),
        Tile(sections.ms(total["mean_ms"]), "mean response"),
        Tile(sections.ms(total["p99_ms"]), "99th percentile"),
    ]
    judged = found.attained["judged"].sum()
    if judged:
        met = found.attained["met"].sum()
        tiles.append(
            Tile(sections.percent(met / judged), "requirements met", bool(met >= 0.999 * judged))
        )
    return tiles
