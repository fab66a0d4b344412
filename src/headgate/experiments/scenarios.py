"""Scenario files: YAML or JSON, read like the configuration, every mistake named with its line.

`load` takes a path, or the name of a scenario that comes with Headgate (`builtin`).
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TypeVar

import yaml

from headgate.config.mistakes import InvalidConfigurationError, Mistake
from headgate.config.reader import Reader
from headgate.config.scalars import Place
from headgate.contract import Policy, PolicyRule
from headgate.contract.schema import Record
from headgate.errors import ConfigurationError
from headgate.model.scenario import Scenario

_DATA = resources.files("headgate.experiments") / "data"
R = TypeVar("R", bound=Record)


def builtin() -> list[str]:
    """Names of the scenarios that come with Headgate."""
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in _DATA.iterdir()
        if entry.name.endswith(".yaml")
    )


def load(source: str | Path) -> Scenario:
    """From a file, or a scenario that comes with Headgate by its name."""
    if str(source) in builtin():
        return parse((_DATA / f"{source}.yaml").read_text(encoding="utf-8"), str(source))
    path = Path(source)
    if not path.exists():
        raise ConfigurationError(
            f"{source}: no such file, and no scenario of this name comes with Headgate: "
            f"there are {', '.join(builtin())}"
        )
    return parse(_read(path), str(path))


def parse(text: str, source: str = "scenario") -> Scenario:
    """From text; `InvalidConfigurationError` names every mistake."""
    return _record(Scenario, text, source)


def load_record(cls: type[R], path: str | Path) -> R:
    """A record of any kind from a file, read like a scenario."""
    return _record(cls, _read(Path(path)), str(path))


def load_policy(path: str | Path) -> Policy:
    """A policy from a file: JSON as it travels to the broker, or YAML; rules alone will do."""
    text = _read(Path(path))
    node = _compose(text, str(path))
    if isinstance(node, yaml.SequenceNode):
        reader = Reader(Place(Path(), check_files=False))
        rules = reader.value(tuple[PolicyRule, ...], node, "rules")
        if reader.mistakes:
            raise InvalidConfigurationError(str(path), reader.mistakes)
        return Policy(rules=rules)
    return _record(Policy, text, str(path))


def _record(cls: type[R], text: str, source: str) -> R:
    node = _compose(text, source)
    if node is None:
        raise ConfigurationError(f"{source}: is empty")
    reader = Reader(Place(Path(), check_files=False))
    record = reader.record(cls, node, "")
    if reader.mistakes or not isinstance(record, cls):
        raise InvalidConfigurationError(source, reader.mistakes)
    return record


def _compose(text: str, source: str) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
        return node
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (0, 0) if mark is None else (mark.line + 1, mark.column + 1)
        mistake = Mistake(line, column, "", f"not YAML: {error.problem or 'cannot be read'}")
        raise InvalidConfigurationError(source, [mistake]) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigurationError(f"{source}: not YAML: {error}") from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: is not UTF-8 text") from None
