"""docs/knowledge.md names the fields of the tables that the controller loads, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headgate.contract.knowledge import (
    BACKTEST,
    CALIBRATION,
    FORECAST,
    LINEAGE,
    VALIDATION,
    Lineage,
    complete,
    in_force,
    version_folder,
    version_of,
)
from headgate.contract.records import Schema
from headgate.pipeline.forecasting import FORECASTED, TESTED
from headgate.pipeline.series import Method
from headgate.pipeline.studying import CALIBRATED, VALIDATED, columns_of

PAGE = (Path(__file__).parents[2] / "docs" / "knowledge.md").read_text()


def first_column(section: str, heads: str) -> list[str]:
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = text.partition(heads)[2].partition("\n\n")[0].splitlines()
    return [
        c
        for row in rows
        if row.startswith("| `")
        for c in re.findall(r"`([\w-]+)`", row.split("|")[1])
    ]


@pytest.mark.parametrize(
    ("section", "schema"), [("Calibrate", CALIBRATION), ("Forecast", FORECAST)]
)
def test_the_fields_of_the_tables(section: str, schema: Schema) -> None:
    assert first_column(section, "| field | |") == [field.name for field in schema.fields]


def test_the_models_and_the_keys_of_the_lineage() -> None:
    assert first_column("Forecast", "| model | |") == [str(method) for method in Method]
    assert sorted(first_column("Versions", "| key | |")) == sorted(Lineage.__struct_fields__)


@pytest.mark.parametrize(
    ("schema", "made"),
    [
        (CALIBRATION, CALIBRATED),
        (VALIDATION, VALIDATED),
        (FORECAST, FORECASTED),
        (BACKTEST, TESTED),
    ],
)
def test_jobs_make_every_field(schema: Schema, made: str) -> None:
    names = columns_of(made)
    assert [field.name for field in schema.fields] == [
        name for name in names if name in {field.name for field in schema.fields}
    ]


def test_a_version_counts_when_its_lineage_is_there(tmp_path: Path) -> None:
    assert in_force(tmp_path, "forecast") is None
    for version in (1, 2, 3):
        folder = tmp_path / version_folder("forecast", version)
        folder.mkdir(parents=True)
        if version < 3:
            (folder / LINEAGE).write_text("{}")
    assert in_force(tmp_path, "forecast") == 2
    assert version_of("version=000012") == 12
    assert version_of("version=12") is None
    assert complete(["a/version=000004/_lineage.json", "a/version=000005/part-0.parquet"]) == [4]
