"""docs/pipeline.md names every field that the jobs write, and no other; and every job."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import SparkSession

from headgate.cli.pipeline import pipeline
from headgate.config import Configuration
from headgate.pipeline.connecting import habits, joining, periods, traffic
from headgate.pipeline.jobs.connectivity import thresholds_of
from headgate.pipeline.jobs.observe import needs_of
from headgate.pipeline.observing import counted, measured
from headgate.pipeline.sweeping import RESULT

from .recording import frame
from .test_connecting import frame as events

PAGE = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()


def documented(section: str) -> set[str]:
    """The codes in the first column of a section's table of fields."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = text.partition("| field | |")[2].splitlines()
    return {
        code
        for row in rows
        if row.startswith("| `")
        for code in re.findall(r"`(\w+)`", row.split("|")[1])
    }


def test_every_job_is_named() -> None:
    shown = re.findall(r"^\| `(\w+)` \|", PAGE.partition("\n## ")[0], re.M)
    assert sorted(shown) == sorted(pipeline.commands)


def test_the_fields_of_observe(spark: SparkSession) -> None:
    needs = needs_of(spark, Configuration())
    rows = measured(counted(frame(spark, []), needs, "10 seconds"), needs)
    assert set(rows.columns) == documented("Observe")


def test_the_fields_of_connectivity(spark: SparkSession) -> None:
    known = habits(periods(events(spark, [])))
    rows = joining(known, traffic(frame(spark, []), thresholds_of(spark, Configuration())))
    assert set(rows.columns) - {"client"} == documented("Connectivity")


def test_the_fields_of_sweep(spark: SparkSession) -> None:
    assert set(spark.createDataFrame([], RESULT).columns) == documented("Sweep")
