"""docs/lake.md names every field of the tables, with its type, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.pipeline.lake.schemas import GAPS, QUARANTINE, SENSORS, SILVER, STATISTICS, TABLES

PAGE = (Path(__file__).parents[3] / "docs" / "lake.md").read_text()


def documented(section: str) -> dict[str, str]:
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = {}
    for row in re.findall(r"^\| (`.*)$", text, re.M):
        names, types = row.split("|")[:2]
        fields, kinds = re.findall(r"`(\w+)`", names), types.strip().split(", ")
        found |= dict(zip(fields, kinds * len(fields) if len(kinds) == 1 else kinds, strict=False))
    return found


@pytest.mark.parametrize(
    ("section", "schema"),
    [("Silver", SILVER), ("Statistics", STATISTICS), ("Gaps", GAPS), ("Sensors", SENSORS)],
)
def test_the_fields_of_a_table(spark: SparkSession, section: str, schema: str) -> None:
    fields = spark.createDataFrame([], schema).schema.fields
    kinds = {field.name: field.dataType.simpleString().partition("<")[0] for field in fields}
    assert documented(section) == kinds


def test_the_fields_of_quarantine_and_the_tables() -> None:
    assert QUARANTINE.endswith(", ".join(f"{name} string" for name in documented("Quarantine")))
    assert re.findall(r"^\| `([a-z/]+)` \|", PAGE.partition("\n## ")[0], re.M) == list(TABLES)
