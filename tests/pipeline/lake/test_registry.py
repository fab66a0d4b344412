"""The registry as a file, and the mistakes in one; and those of the command line."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from headgate.cli.pipeline import pipeline
from headgate.errors import ConfigurationError
from headgate.pipeline.lake.registry import Entry, read_registry

EXPECTED = [
    Entry("hall/+", sensor="T1", unit="C", place="hall", owner="ops", period_s=10.0),
    Entry("hall/t", name="battery", unit="V"),
]

YAML = """
sensors:
  - {topic: hall/+, sensor: T1, unit: C, place: hall, owner: ops, period: 10s}
  - {topic: hall/t, name: battery, unit: V}
"""
CSV = """topic,name,sensor,unit,place,owner,period
hall/+,,T1,C,hall,ops,10s
hall/t,battery,,V,,,
"""


def test_it_is_read_from_yaml_csv_and_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(YAML)
    (tmp_path / "a.csv").write_text(CSV)
    rows = [
        {"topic": "hall/+", "sensor": "T1", "unit": "C", "place": "hall", "owner": "ops"},
        {"topic": "hall/t", "name": "battery", "unit": "V"},
    ]
    names = ("topic", "name", "sensor", "unit", "place", "owner")
    schema = pa.schema([(name, pa.string()) for name in names] + [("period", pa.float64())])
    rows[0]["period"] = 10.0  # type: ignore[assignment]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / "a.parquet")
    for name in ("a.yaml", "a.csv", "a.parquet"):
        assert read_registry(tmp_path / name) == EXPECTED, name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("42", "expected a list of sensors"),
        ("- {sensor: a}", "entry 1: expected fields such as topic"),
        ("- {topic: a, colour: red}", "entry 1: 'colour' is not known"),
        ("- {topic: a#}", "entry 1: in the filter 'a#'"),
        ("- {topic: a, period: soon}", "entry 1"),
        ("- {topic: a}\n- {topic: a}", "entry 2: 'a' is there twice"),
        ("- [", "cannot be read"),
    ],
)
def test_mistakes_are_told_in_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "sensors.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=said) as caught:
        read_registry(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--follow", "10s", "--catch-up"], "does not go together"),
        (["--format", "a=xml"], "expected FILTER=FORMAT"),
        (["--registry", "nowhere.csv"], "nowhere.csv"),
        (["--interval", "soon"], "expected a duration"),
        (["--patience", "0"], "patience"),
    ],
)
def test_the_command_tells_mistakes_before_spark_starts(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(pipeline, ["lake", "records", "lake", *arguments])
    assert done.exit_code != 0
    assert said in done.output + str(done.exception)
    assert "Spark 4" not in done.output
