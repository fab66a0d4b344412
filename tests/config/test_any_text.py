"""Whatever a file holds: a configuration, or a configuration error, and nothing else."""

from __future__ import annotations

import msgspec
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.config import Configuration, describe, parse
from headgate.contract.schema import Record
from headgate.errors import ConfigurationError


def words_of(record: type[Record], seen: set[str]) -> set[str]:
    """Every key that some section knows, found by walking the declarations."""
    for field in msgspec.structs.fields(record):
        seen.add(field.name)
        stack = [field.type]
        while stack:
            part = stack.pop()
            stack.extend(getattr(part, "__args__", ()))
            if isinstance(part, type) and issubclass(part, Record):
                words_of(part, seen)
    return seen


KEYS = sorted(words_of(Configuration, set()))
VALUES = ["tcp", "off", "auto", "10Mbit", "16MiB", "5s", "127.0.0.1:1", "a/#", "%u/#", "admin", "1"]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(VALUES)
    | st.text(max_size=20)
    | st.dates()
    | st.binary(max_size=5)
)
documents = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | scalars, inner, max_size=6)
    ),
    max_leaves=25,
)


def read(text: str) -> None:
    try:
        configuration = parse(text)
    except ConfigurationError as error:
        assert str(error)
    else:
        assert parse(describe(configuration)) == configuration


@given(st.text(max_size=200))
@example("&a [*a]")
@example("&a {listeners: *a}")
@example("listeners: &a [*a]")
@example("limits: {inflight: " + "9" * 5000 + "}")
@example("sys_interval: 0b1010")
@example("? {a: b}\n: c")
@example("%YAML 9.9\n---\na: b")
@example("!!python/object/apply:os.system [ls]")
@example('"\\ud800": 1')
@example('listeners: [{type: unix, address: "/\\ud800"}]')
@example('data_dir: "\\ud800"')
def test_any_text(text: str) -> None:
    read(text)


@settings(max_examples=300)
@given(documents)
def test_any_document(document: object) -> None:
    try:
        text = yaml.safe_dump(document, allow_unicode=True)
    except (yaml.YAMLError, ValueError):
        return
    read(text)


@settings(max_examples=300)
@given(
    st.dictionaries(
        st.sampled_from([f.name for f in msgspec.structs.fields(Configuration)]), documents
    )
)
def test_any_sections(document: dict[str, object]) -> None:
    read(yaml.safe_dump(document, allow_unicode=True))
