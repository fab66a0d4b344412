"""Forecasts of what was observed: series as they are cut, continued and kept."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from headgate.contract.knowledge import FORECAST, in_force
from headgate.errors import ConfigurationError
from headgate.pipeline.forecasting import KEYS, complete, covered, loads
from headgate.pipeline.jobs.forecast import Forecast, forecast
from headgate.pipeline.knowledge import Shelf
from headgate.pipeline.observing import REASONS

from .recording import NOON

METRICS = (
    "start timestamp, end timestamp, view string, client string, filter string, "
    "application string, category string, link string, topic string, sent double, "
    "sent_bytes double, cut double, " + ", ".join(f"dropped_{reason} double" for reason in REASONS)
)


def metric(minute: float, sent: float, size: float = 100.0, **values: object) -> dict[str, object]:
    """A window of a minute, as `observe` has it."""
    start = NOON + timedelta(minutes=minute)
    row: dict[str, object] = dict.fromkeys(name.split()[0] for name in METRICS.split(", "))
    row |= {"start": start, "end": start + timedelta(minutes=1), "cut": 0.0}
    row |= {f"dropped_{reason}": 0.0 for reason in REASONS}
    return row | {"sent": sent, "sent_bytes": size * sent} | values


def flow(minute: float, sent: float, **values: object) -> dict[str, object]:
    usual = {"view": "flow", "client": "c", "filter": "t", "application": "film"}
    return metric(minute, sent, **{**usual, "category": "AN", "link": "floor", **values})  # type: ignore[arg-type]


def topic(minute: float, sent: float, name: str = "t") -> dict[str, object]:
    return metric(minute, sent, view="topic", topic=name)


def frame(spark: SparkSession, rows: list[dict[str, object]]) -> DataFrame:
    return spark.createDataFrame(pd.DataFrame(rows), METRICS)


def test_load_is_what_was_offered_by_link_category_application_and_topic(
    spark: SparkSession,
) -> None:
    rows = [
        flow(0, 60, dropped_rate=20.0),
        flow(1, 30, cut=10.0),
        flow(0, 30, client="d", application="alarm", category="RT"),
        topic(0, 40),
    ]
    found = loads(frame(spark, rows), "5 minutes").select(*KEYS, "offered", "bytes")
    expected = spark.createDataFrame(
        [
            ("floor", None, None, None, 150.0, 15000.0),
            ("floor", None, "AN", None, 120.0, 12000.0),
            ("floor", None, "RT", None, 30.0, 3000.0),
            ("floor", "film", "AN", None, 120.0, 12000.0),
            ("floor", "alarm", "RT", None, 30.0, 3000.0),
            (None, None, None, "t", 40.0, 4000.0),
        ],
        found.schema,
    )
    assertDataFrameEqual(found, expected)


def test_what_was_all_dropped_has_the_size_of_what_was_sent_before(spark: SparkSession) -> None:
    rows = [flow(0, 10), flow(5, 0, dropped_rate=10.0)]
    found = loads(frame(spark, rows), "5 minutes").where("category is null").sort("step").collect()
    assert [row["bytes"] for row in found] == [1000.0, 1000.0]


def test_steps_that_are_not_whole_are_left_out(spark: SparkSession) -> None:
    """From 12:03 to 12:17, by five minutes: 12:05 and 12:10 are known from end to end."""
    metrics = frame(spark, [flow(minute, 1) for minute in range(3, 17)])
    found = sorted(row["step"].minute for row in covered(metrics, 300.0, 100).collect())
    assert found == [5, 10]
    (newest,) = covered(metrics, 300.0, 1).collect()
    assert newest["step"].minute == 10


def test_silence_is_zero_where_somebody_looked(spark: SparkSession) -> None:
    """The film is silent at 5, nobody looked at 10, and the alarm is new at 15."""
    rows = [flow(0, 10), topic(5, 1), flow(15, 30), topic(19, 1)]
    rows += [flow(15, 5, application="alarm", category="RT")]
    metrics = frame(spark, rows)
    found = complete(loads(metrics, "5 minutes"), covered(metrics, 300.0, 100), 10)
    by_application = found.where("application is not null").sort("application", "step").collect()
    assert [(r["application"], r["step"].minute, r["offered"]) for r in by_application] == [
        ("alarm", 15, 5.0),
        ("film", 0, 10.0),
        ("film", 5, 0.0),
        ("film", 15, 30.0),
    ]


def test_of_the_topics_those_that_carry_most(spark: SparkSession) -> None:
    metrics = frame(spark, [topic(m, m + n, f"t{n}") for n in range(5) for m in range(5)])
    found = complete(loads(metrics, "5 minutes"), covered(metrics, 300.0, 100), 2)
    assert {row["topic"] for row in found.collect()} == {"t3", "t4"}


@pytest.fixture(scope="module")
def week(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Five days of half hours with a daily wave; a new topic on the last day."""
    rng = np.random.default_rng(5)
    rows = []
    for step in range(5 * 48):
        wave = 1000 + 400 * np.sin(2 * np.pi * step / 48)
        minute = 30 * step
        rows.append(flow(minute, round(wave + rng.normal(0, 40))))
        rows.append(topic(minute, round(wave)))
        if step >= 5 * 48 - 6:
            rows.append(topic(minute, 100, "new"))
    place = str(tmp_path_factory.mktemp("metrics"))
    # The end of the last half hour is known, too.
    rows.append(flow(30 * 5 * 48 - 1, 0))
    frame(spark, rows).coalesce(1).write.mode("overwrite").parquet(place)
    return place


def test_a_forecast_is_kept_with_its_lineage(
    spark: SparkSession, week: str, tmp_path: Path
) -> None:
    job = Forecast(week, str(tmp_path), horizon=24 * 3600, step=1800, keep=2)
    done = forecast(spark, job)
    assert in_force(tmp_path, FORECAST.kind) == 1
    rows = Shelf(str(tmp_path)).read(spark, FORECAST.kind)
    assert rows is not None
    link = rows.where("link = 'floor' and category is null").sort("start").toPandas()
    assert len(link) == 48
    assert (link["end"] - link["start"] == pd.Timedelta("30min")).all()
    # Of a window of a minute in each half hour: 1000 messages of 100 bytes in 1800 s.
    truth = (1000 + 400 * np.sin(2 * np.pi * np.arange(48) / 48)) / 1800
    assert np.abs(link["rate"] - truth).sum() / truth.sum() < 0.05
    assert link["bits"].to_numpy() == pytest.approx(800 * link["rate"].to_numpy(), rel=0.05)
    assert ((link["low"] <= link["bits"]) & (link["bits"] <= link["high"])).all()
    assert link["error"].iloc[0] < 0.06

    new = rows.where("topic = 'new'").toPandas()
    assert set(new["model"]) == {"last-value"}
    assert new["error"].isna().all()
    assert any("too short to be judged" in note for note in done.lineage.notes)

    (given,) = done.lineage.inputs
    assert (given.kind, given.rows, given.files) == ("metrics", 2 * 240 + 7, 1)
    assert given.since == NOON
    assert done.lineage.rows == rows.count()
    assert done.errors["link"]["series"] == 1
    assert done.errors["link"]["chosen"] == pytest.approx(link["error"].iloc[0])
    assert done.errors["topic"]["coverage"] is not None

    # Versions are added, and the oldest go.
    for _ in range(2):
        forecast(spark, job)
    assert in_force(tmp_path, FORECAST.kind) == 3
    kept = sorted(one.name for one in (tmp_path / "forecast").iterdir())
    assert kept == ["version=000002", "version=000003"]


@pytest.mark.parametrize(
    ("step", "said"), [(30.0, "shorter than the windows"), (1e7, "no whole step")]
)
def test_steps_that_cannot_be_had_are_told(
    spark: SparkSession, week: str, tmp_path: Path, step: float, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        forecast(spark, Forecast(week, str(tmp_path), horizon=1e7, step=step))


def test_metrics_that_are_not_there_are_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no metrics can be read"):
        forecast(spark, Forecast(str(tmp_path / "nowhere"), str(tmp_path)))
