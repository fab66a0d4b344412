"""docs/records.md tells what the schemas say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headgate.contract.records import SCHEMAS

PAGE = Path(__file__).parents[2] / "docs" / "records.md"


@pytest.mark.parametrize("kind", SCHEMAS)
def test_every_field_is_documented_as_it_is_declared(kind: str) -> None:
    text = PAGE.read_text().partition(f"\n## {kind.capitalize()}\n")[2].partition("\n## ")[0]
    shown = re.findall(r"^\| `(\w+)` \| (\w+) \| (.+) \|$", text, re.M)
    assert shown == [
        (field.name, field.type.value, field.meaning) for field in SCHEMAS[kind].fields
    ]


def test_a_field_belongs_to_a_version_that_there_is() -> None:
    for schema in SCHEMAS.values():
        assert max(field.since for field in schema.fields) == schema.version
        assert len({field.name for field in schema.fields}) == len(schema.fields)
