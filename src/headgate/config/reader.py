"""Walks a YAML document along the declared records and collects every mistake on the way.

It reads PyYAML's node graph, not its Python values: nodes know their line, and they keep the text
as it was written. YAML 1.1 would make `off` a boolean and `1:30` the number 90; here the declared
type decides what a word means.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec
import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from headgate.config.mistakes import Mistake
from headgate.config.scalars import (
    BadValueError,
    Place,
    Scalar,
    is_text,
    nearest,
    scalar,
    shorten,
    suggest,
)
from headgate.contract.schema import (
    ILLEGIBLE,
    Illegible,
    IllegibleError,
    Kind,
    Record,
    rules_of,
)

R = TypeVar("R", bound=Record)

_NULL = "tag:yaml.org,2002:null"
_MERGE = "tag:yaml.org,2002:merge"
_PLAIN_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "timestamp", "value")
)


class Reader:
    """One pass over one document."""

    def __init__(self, place: Place) -> None:
        self.mistakes: list[Mistake] = []
        self._place = place

    def record(self, cls: type[R], node: Node, key: str, **given: Any) -> R | Illegible:
        """Read a record; `given` are the fields that do not stand in its mapping."""
        if not isinstance(node, MappingNode):
            example = ", ".join(field.name for field in msgspec.structs.fields(cls)[:3])
            return self._note(node, key, f"expected a mapping with keys such as {example}", node)
        fields = {
            field.name: field for field in msgspec.structs.fields(cls) if field.name not in given
        }
        values: dict[str, Any] = dict(given)
        misspelt = []
        for name, name_node, child in self._entries(node, key):
            if name in fields:
                value = self.value(fields[name].type, child, _join(key, name))
                values.setdefault(name, value)
            else:
                known = list(fields)
                hint = suggest(name, known) or f"; known are {', '.join(known)}"
                self._note(name_node, _join(key, name), f"unknown key{hint}")
                misspelt.append((name, child))
        for name, child in misspelt:
            # What stands there is read as what was meant, so that its own mistakes show too.
            meant = nearest(name, [field for field in fields if field not in values])
            if meant is not None:
                values[meant] = self.value(fields[meant].type, child, _join(key, name))
        for name, field in fields.items():
            if field.required and name not in values:
                expected = _expectation(field.type)
                self._note(node, _join(key, name), f"is missing: expected {expected}")
                values[name] = ILLEGIBLE
        draft = cls(**values)
        self._check(draft, values, node, key)
        return draft

    def value(self, wanted: Any, node: Node, key: str) -> Any:
        """Read a value of any declared type."""
        base, kind, limits, optional = unfold(wanted)
        if optional and (_is_null(node) or (kind is Kind.RATE and _text_of(node) == "auto")):
            return None
        origin = get_origin(base)
        if origin is tuple:
            item = get_args(base)[0]
            if kind is Kind.KEYED:
                return self._keyed(item, node, key)
            return self._items(item, node, key, kind, limits)
        if origin is not None and issubclass(origin, Mapping):
            return self._mapping(*get_args(base), node=node, key=key)
        if issubclass(base, Record) and _scalar_of(base, kind, limits) is None:
            return self.record(base, node, key)
        return self._scalar(base, kind, limits, node, key)

    def _check(self, draft: Record, values: dict[str, Any], node: Node, key: str) -> None:
        """Hold a record, illegible as parts of it may be, against the rules of its type."""
        for needs, check in rules_of(type(draft)):
            if any(values.get(name) is ILLEGIBLE for name in needs):
                continue
            try:
                for path, message in check(draft):
                    target, full = _locate(node, key, path)
                    self._note(target, full, message)
            except IllegibleError:
                continue

    def _items(
        self, item: Any, node: Node, key: str, kind: Kind | None, limits: msgspec.Meta | None
    ) -> tuple[Any, ...] | Illegible:
        if not isinstance(node, SequenceNode):
            if kind is Kind.ONE_OR_MORE:
                only = self.value(item, node, key)
                return (only,)
            return self._note(
                node, key, f"expected a list of items, each {_expectation(item)}", node
            )
        if limits is not None and len(node.value) < (limits.min_length or 0):
            return self._note(
                node, key, f"is empty: expected at least one item, {_expectation(item)}"
            )
        return tuple(
            self.value(item, child, f"{key}[{number}]") for number, child in enumerate(node.value)
        )

    def _keyed(self, item: type[Record], node: Node, key: str) -> tuple[Any, ...] | Illegible:
        if not isinstance(node, MappingNode):
            return self._note(node, key, "expected a mapping from names to their settings", node)
        values = []
        for name, name_node, child in self._entries(node, key):
            path = _join(key, name)
            checked = self.value(_type_of(item, "name"), name_node, path)
            settings = _empty_mapping(child) if _is_null(child) else child
            values.append(self.record(item, settings, path, name=checked))
        return tuple(values)

    def _mapping(self, of: Any, to: Any, *, node: Node, key: str) -> dict[Any, Any] | Illegible:
        if not isinstance(node, MappingNode):
            return self._note(node, key, "expected a mapping", node)
        values: dict[Any, Any] = {}
        whole = True
        seen = set()
        for name, name_node, child in self._entries(node, key):
            path = _join(key, name)
            left, right = self.value(of, name_node, path), self.value(to, child, path)
            if left is ILLEGIBLE or right is ILLEGIBLE:
                whole = False
            elif left in values and name not in seen:
                self._note(name_node, path, "is given twice")  # in another spelling
            else:
                values[left] = right
            seen.add(name)
        return values if whole else ILLEGIBLE

    def _scalar(
        self, base: type, kind: Kind | None, limits: msgspec.Meta | None, node: Node, key: str
    ) -> Any:
        how = scalar(base, kind, limits)
        text = _text_of(node)
        if text is None:
            return self._note(node, key, f"expected {how.expected}", node)
        if not is_text(text):
            return self._note(node, key, f"{shorten(text)} has a character that text cannot have")
        try:
            return how.read(text, self._place)
        except BadValueError as wrong:
            return self._note(node, key, str(wrong))

    def _entries(self, node: MappingNode, key: str) -> Iterator[tuple[str, Node, Node]]:
        """All that a mapping has under a name, also what it has twice."""
        lines: dict[str, int] = {}
        for name_node, child in node.value:
            line = name_node.start_mark.line + 1
            name = _text_of(name_node)
            if name_node.tag == _MERGE:
                self._note(name_node, key, "merging with << is not supported: write the keys out")
            elif name is None:
                self._note(name_node, key, "expected a name as key", name_node)
            else:
                if name in lines:
                    first = lines[name]
                    self._note(
                        name_node, _join(key, name), f"is given twice, first in line {first}"
                    )
                lines.setdefault(name, line)
                yield name, name_node, child

    def _note(self, node: Node, key: str, message: str, found: Node | None = None) -> Illegible:
        mark = node.start_mark
        if found is not None:
            message += f", found {_what_is(found)}"
        self.mistakes.append(Mistake(mark.line + 1, mark.column + 1, key, message))
        return ILLEGIBLE


def unfold(wanted: Any) -> tuple[Any, Kind | None, msgspec.Meta | None, bool]:
    """Type, kind, limits, and whether it may be absent."""
    optional = False
    if get_origin(wanted) in (Union, types.UnionType):
        optional = True
        (wanted,) = [part for part in get_args(wanted) if part is not types.NoneType]
    kind, limits = None, None
    if get_origin(wanted) is Annotated:
        wanted, *notes = get_args(wanted)
        kind = next((note for note in notes if isinstance(note, Kind)), None)
        limits = next((note for note in notes if isinstance(note, msgspec.Meta)), None)
    return wanted, kind, limits, optional


def _scalar_of(base: type, kind: Kind | None, limits: msgspec.Meta | None) -> Scalar | None:
    try:
        return scalar(base, kind, limits)
    except KeyError:
        return None


def _expectation(wanted: Any) -> str:
    base, kind, limits, _ = unfold(wanted)
    origin = get_origin(base)
    if origin is tuple:
        return "a list"
    if origin is not None:
        return "a mapping"
    how = _scalar_of(base, kind, limits)
    if how is None:
        names = [field.name for field in msgspec.structs.fields(base) if field.required]
        return f"a mapping with {', '.join(names)}" if names else "a mapping"
    return how.expected


def _type_of(cls: type[Record], name: str) -> Any:
    return next(field.type for field in msgspec.structs.fields(cls) if field.name == name)


def _locate(node: Node, key: str, path: tuple[str | int, ...]) -> tuple[Node, str]:
    """The node nearest to `path` that was written, and the full path of the key."""
    for part in path:
        if isinstance(part, int):
            key = f"{key}[{part}]"
            if isinstance(node, SequenceNode):
                node = node.value[part]
        else:
            key = _join(key, part)
            if isinstance(node, MappingNode):
                node = next((child for name, child in node.value if name.value == part), node)
    return node, key


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.tag == _NULL


def _text_of(node: Node) -> str | None:
    if isinstance(node, ScalarNode) and node.tag in _PLAIN_TAGS:
        return str(node.value)
    return None


def _empty_mapping(node: Node) -> MappingNode:
    return yaml.MappingNode("tag:yaml.org,2002:map", [], node.start_mark, node.end_mark)


def _what_is(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    if _is_null(node):
        return "nothing"
    if node.tag not in _PLAIN_TAGS:
        return f"the tag {node.tag}"
    return shorten(str(node.value))
