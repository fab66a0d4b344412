"""A configuration told back: in one line, in full, and with what deserves a second look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import yaml

from headgate.config.addresses import Address
from headgate.config.reader import unfold
from headgate.config.root import Configuration
from headgate.config.units import format_duration, format_rate, format_size
from headgate.contract.schema import Kind, Record

CATEGORIES = ("RT", "TS", "AN", "ST", "EM")
"""Those of PlanEMQX; the operator's own need no declaration."""

FORMATS = {Kind.SIZE: format_size, Kind.RATE: format_rate, Kind.DURATION: format_duration}


def summarise(configuration: Configuration) -> str:
    """One line: `2 listeners (tcp://…, wss://…), 3 applications, 1 link`."""
    labels = ", ".join(listener.label for listener in configuration.listeners)
    parts = [f"{_counted(len(configuration.listeners), 'listener')} ({labels})"]
    for noun, things in (
        ("application", configuration.applications),
        ("link", configuration.links),
        ("policy rule", configuration.policy),
        ("access rule", configuration.auth.acl or ()),
    ):
        if things:
            parts.append(_counted(len(things), noun))
    return ", ".join(parts)


def describe(configuration: Configuration) -> str:
    """The configuration in force as YAML, with every default written out; it can be read back."""
    return yaml.safe_dump(_plain_record(configuration), sort_keys=False, allow_unicode=True)


def remarks(configuration: Configuration) -> Iterator[str]:
    """What is allowed, but perhaps not meant."""
    if configuration.auth.verifies_users:
        for listener in configuration.listeners:
            if not listener.type.is_secure and not listener.address.is_local:
                yield f"{listener.label}: passwords and tokens cross the network unencrypted"
    categories = {*CATEGORIES, configuration.default_category}
    categories.update(category.name for category in configuration.categories)
    categories.update(entry.category for entry in configuration.applications if entry.category)
    applications = {application.name for application in configuration.applications}
    for number, entry in enumerate(configuration.policy):
        for key, name, known in (
            ("category", entry.category, categories),
            ("application", entry.application, applications),
        ):
            if name is not None and name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                yield f"policy[{number}].{key}: nothing else here is called {name}{hint}"


def _plain_record(record: Record, *, without: str | None = None) -> dict[str, Any]:
    plain = {
        field.name: _plain(field.type, getattr(record, field.name))
        for field in msgspec.structs.fields(type(record))
        if field.name != without
    }
    return {name: value for name, value in plain.items() if value is not None}


def _plain(declared: Any, value: Any) -> Any:
    _, kind, _, _ = unfold(declared)
    if value is None:
        return "auto" if kind is Kind.RATE else None
    if kind in FORMATS:
        return FORMATS[kind](value)
    if kind is Kind.KEYED:
        return {record.name: _plain_record(record, without="name") for record in value}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path | Address):
        return str(value)
    if isinstance(value, Record):
        return _plain_record(value)
    if isinstance(value, Mapping):
        return {key: _plain(None, item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(None, item) for item in value]
    return value


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
