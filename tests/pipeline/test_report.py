"""The report: one page of whatever there is, and a line for what is not."""

from __future__ import annotations

import re
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from headgate.config import Configuration, parse
from headgate.contract.knowledge import Input
from headgate.pipeline.jobs.observe import Observe, observe
from headgate.pipeline.jobs.report import Report, Reported, report
from headgate.pipeline.knowledge import Making, Shelf
from headgate.pipeline.reporting import charts
from headgate.pipeline.reporting.gathering import BINS, quantiles
from headgate.pipeline.studying import CALIBRATED, VALIDATED

from .recording import NOON, record, segment

CONFIG = parse(
    "applications:\n"
    "  fire<b>: {clients: ['a-*'], category: RT, requirement: {response_ms: 20, loss: 0.0}}\n"
)

SECTIONS = (
    *("Load", "Response", "Loss", "Attainment", "Connectivity", "Sweep"),
    *("Calibration", "Forecast", "Sensors"),
)


class Page(HTMLParser):
    """What a browser would find: whether tags fit, and where it would go for more."""

    VOID = ("meta", "br")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []
        self.feed(html)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Closed where it was opened."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def check(made: Reported) -> Page:
    """A page that needs nothing else, whose drawings are XML."""
    page = Page(made.html)
    assert all(link.startswith("#") for link in page.links)
    assert "<script" not in made.html
    assert "url(" not in made.html
    for drawing in re.findall(r"<svg.*?</svg>", made.html, re.S):
        ElementTree.fromstring(drawing)
    assert "nan" not in " ".join(page.text).lower().split()
    return page


@pytest.fixture(scope="module")
def metrics(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An hour of 10 s windows: waits of 5 ms, and of 50 ms in the last ten minutes."""
    folder = tmp_path_factory.mktemp("observed")
    records = []
    for n in range(720):
        wait = 50.0 if n >= 600 else 5.0
        records.append(
            record(5 * n, client="a-1", application="fire<b>", waited_ms=wait, bytes=1000)
        )
    records += [record(1000 + n, outcome="dropped", reason="rate") for n in range(30)]
    segment(folder / "records", "one", records)
    place = str(folder / "metrics")
    observe(spark, Observe(str(folder / "records"), place), CONFIG)
    return place


def test_nothing_at_all_is_a_page_that_says_so(spark: SparkSession) -> None:
    made = report(spark, Report(), Configuration())
    check(made)
    assert made.shown == ()
    assert len(made.missing) == len(SECTIONS)


def test_what_was_observed_is_shown(spark: SparkSession, metrics: str) -> None:
    made = report(spark, Report(metrics=metrics, habits="/nowhere"), CONFIG)
    text = " ".join(check(made).text)
    assert made.shown == ("Load", "Response", "Loss", "Attainment")
    assert "720 messages sent" in re.sub(r"\s+", " ", text)
    assert "99 % within 20 ms" in text
    assert "30 messages did not arrive" in text.replace("\n", " ")
    # Ten of sixty minutes were too slow: 300 of 360 windows met, named as the user named it.
    assert "fire<b>" in text
    assert "300 of 360" in text
    assert any("/nowhere cannot be read" in line for line in made.missing)


def test_a_long_time_is_shown_in_few_points(spark: SparkSession, metrics: str) -> None:
    rows = spark.read.parquet(metrics)
    assert rows.where("view = 'link'").count() > 2 * BINS
    html = report(spark, Report(metrics=metrics), CONFIG).html
    longest = max(path.count("L") for path in re.findall(r'd="(M[^"]+)"', html))
    assert BINS / 2 < longest < BINS


def test_quantiles_of_bins_are_those_of_all_their_windows(
    spark: SparkSession, metrics: str
) -> None:
    rows = spark.read.parquet(metrics).where("view = 'link'")
    (row,) = quantiles(rows, []).collect()
    assert row["p50_ms"] == pytest.approx(5, rel=0.01)
    assert row["p95_ms"] == pytest.approx(50, rel=0.01)
    assert row["mean_ms"] == pytest.approx((600 * 5 + 120 * 50) / 720, rel=0.01)


def test_knowledge_is_shown_with_its_errors(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "knowledge")
    start = NOON + timedelta(hours=1)
    calibration = spark.createDataFrame(
        [("floor", 9.8e6, 70.0, 0.55, 1.02, 40, 0.08, True, NOON, start, 0.9, False)], CALIBRATED
    )
    validation = spark.createDataFrame(
        [
            ("floor", "RT", start, start, None, 0.7, 100.0, 5.0, 20.0, 9.0, None, 5.2, 21.0)
            for _ in range(5)
        ],
        VALIDATED,
    )
    errors = {"mean_model": 0.8, "mean_calibrated": 0.04, "p99_model": 1.0, "p99_calibrated": 0.05}
    making = Making((Input(kind="messages", place="r"),), {}, {"category RT": errors})
    Shelf(place).add({"validation": validation, "calibration": calibration}, making)
    made = report(spark, Report(knowledge=place), CONFIG)
    text = " ".join(check(made).text)
    assert made.shown == ("Calibration",)
    for said in ("9.800 Mbit/s", "✗ drift", "80.0 %", "✓ 4.0 %"):
        assert said in text
    assert any(line.startswith("Forecast: none in") for line in made.missing)


def test_late_sensors_and_gaps_are_shown(spark: SparkSession, tmp_path: Path) -> None:
    known = pd.DataFrame(
        {
            "topic": ["f/1", "f/2"],
            "name": ["t", "t"],
            "sensor": ["heat-1", None],
            "place": ["hall", None],
            "last_time": [NOON, NOON],
            "period_s": [60.0, 10.0],
            "silent_s": [5400.0, 1.0],
            "late": [True, False],
        }
    )
    schema = (
        "topic string, name string, sensor string, place string, last_time timestamp, "
        "period_s double, silent_s double, late boolean"
    )
    spark.createDataFrame(known, schema).write.parquet(str(tmp_path / "gold" / "sensors"))
    gaps = [("f/2", "t", None, "attic", NOON, NOON + timedelta(minutes=5), 300.0, 29)]
    spark.createDataFrame(
        gaps,
        "topic string, name string, sensor string, place string, start timestamp, end timestamp, "
        "seconds double, missed bigint",
    ).write.parquet(str(tmp_path / "gold" / "gaps"))
    made = report(spark, Report(lake=str(tmp_path)), CONFIG)
    text = " ".join(check(made).text)
    assert made.shown == ("Sensors",)
    for said in ("2 sensors, 1 of them late; 1 gaps", "heat-1 (f/1 t)", "1.5 h", "5 min"):
        assert said in text


# Drawings


@pytest.mark.parametrize("highest", [0.0, 1e-9, 0.7, 1.0, 99.0, 3.2e7])
def test_axes_end_at_round_numbers_above_everything(highest: float) -> None:
    top = charts.nice_top(highest)
    assert highest * 0.999 <= top <= max(1.0, 1.7 * highest)
    marks = charts.ticks((0.0, top), False)
    assert 2 <= len(marks) <= 7
    assert marks[0] == 0


@pytest.mark.parametrize("span", [0.5, 20.0, 400.0, 7200.0, 86400.0, 9 * 86400.0, 400 * 86400.0])
def test_times_are_marked_a_few_times(span: float) -> None:
    marks = charts.time_ticks(1.7e9, 1.7e9 + span)
    assert len(marks) <= 6
    assert len({text for _, text in marks}) == len(marks)


def test_a_gap_interrupts_a_line() -> None:
    points = charts.gapped([(0, 1.0), (10, 2.0), (40, 3.0), (50, 4.0)], 10)
    assert points[2] == (20, None)
    drawing = charts.lines("t", [charts.Line("x", points)]).html()
    assert drawing.count("<path") == 2


def test_what_is_not_there_is_no_drawing() -> None:
    assert "no data" in charts.lines("t", []).html()
    assert "no data" in charts.scatter("t", [("x", [])], "ms").html()
