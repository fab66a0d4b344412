"""docs/configuration.md tells the truth: its example loads, its tables name every key."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path

import msgspec
import pytest

from headgate.config import (
    AccessRule,
    Auth,
    CaptureRule,
    Configuration,
    Jwt,
    Limits,
    Listener,
    Metrics,
    Planner,
    RecorderConfig,
    Tls,
    Urgency,
    describe,
    parse,
    remarks,
)
from headgate.config.describing import FORMATS
from headgate.config.reader import unfold
from headgate.contract import (
    AdaptingTopic,
    Application,
    Category,
    FlowSelector,
    LinkSpec,
    PolicyRule,
    Requirement,
)
from headgate.contract.schema import Record

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
SECTIONS: dict[str, tuple[type[Record], set[str]]] = {
    "Top level": (Configuration, set()),
    "Listeners": (Listener, set()),
    "TLS": (Tls, set()),
    "Auth": (Auth, set()),
    "JWT": (Jwt, set()),
    "Access list": (AccessRule, set()),
    "Limits": (Limits, set()),
    "Metrics": (Metrics, set()),
    "Recorder": (RecorderConfig, set()),
    "Captures": (CaptureRule, set()),
    "Urgency": (Urgency, set()),
    "Applications": (Application, {"name"}),
    "Requirement": (Requirement, set()),
    "Categories": (Category, {"name"}),
    "Links": (LinkSpec, set()),
    "Policy": (PolicyRule, set()),
    "Flow": (FlowSelector, set()),
    "Planner": (Planner, set()),
    "Periods": (AdaptingTopic, set()),
}


def section(title: str) -> str:
    (text,) = re.findall(
        rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S
    )
    return str(text)


def rows(title: str) -> dict[str, str]:
    """Key to default, of the section's table of keys."""
    table = section(title).partition("| key | default | meaning |")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \| ", table, re.M))


def written(default: object, declared: object) -> str | None:
    """A default as the page should give it; None where it says it in words."""
    kind = unfold(declared)[1]
    if kind in FORMATS and default is not None:
        return FORMATS[kind](default)
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, Enum):
        return str(default.value)
    if isinstance(default, int | float | str | Path):
        return str(default)
    return None


@pytest.mark.parametrize("title", SECTIONS)
def test_every_key_is_documented_with_its_default(title: str) -> None:
    record, elsewhere = SECTIONS[title]
    found = rows(title)
    fields = {field.name: field for field in msgspec.structs.fields(record)}
    assert set(found) == set(fields) - elsewhere
    for key, default in found.items():
        field = fields[key]
        assert (default == "required") == field.required, key
        if not field.required and field.default is not msgspec.NODEFAULT:
            expected = written(field.default, field.type)
            if expected is not None:
                assert default == f"`{expected}`", key


def test_every_section_is_documented() -> None:
    def records(declared: object) -> set[type[Record]]:
        found = set()
        stack = [declared]
        while stack:
            part = stack.pop()
            stack.extend(getattr(part, "__args__", ()))
            if isinstance(part, type) and issubclass(part, Record) and part not in found:
                found.add(part)
                stack.extend(field.type for field in msgspec.structs.fields(part))
        return found

    documented = {record for record, _ in SECTIONS.values()}
    assert {cls.__name__ for cls in records(Configuration) - documented} == {"Address"}


def test_the_example_loads_without_a_remark_and_reads_back() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S)
    configuration = parse(example)
    assert len(configuration.listeners) == 4
    assert configuration.auth.acl is not None
    assert len(configuration.auth.acl) == 5
    assert list(remarks(configuration)) == []
    assert parse(describe(configuration)) == configuration
    # It is complete: every section of the file occurs.
    written_sections = set(re.findall(r"^(\w+):", example, re.M))
    optional = {"store", "hooks", "default_category"}
    assert written_sections == {f.name for f in msgspec.structs.fields(Configuration)} - optional
