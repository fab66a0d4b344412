"""Keys that stand twice in one object of a command's JSON.

A decoder takes the last, and whoever wrote both may have meant the first. Commands can be large:
the walk stops after every item of their lists and mappings, so that messages of others pass.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from typing import Any

from headgate.errors import ConfigurationError

WALKED = 2
"""Levels that are walked item by item; what is deeper is read as a whole."""

_BLANK = re.compile(r"[ \t\n\r]*")


def refuse_repeated_keys(data: bytes) -> Iterator[int]:
    """Look through JSON that could be decoded; yields 1 after each item.

    `ConfigurationError` if a key stands twice.
    """
    text = data.decode()
    try:
        yield from _walk(text, _skip(text, 0), WALKED)
    except RecursionError:
        raise ConfigurationError("the command is nested too deeply") from None


def _walk(text: str, pos: int, levels: int) -> Generator[int, None, int]:
    """Returns where the value that begins at `pos` ends."""
    opening = text[pos]
    if opening not in "{[":
        return _DECODER.raw_decode(text, pos)[1]
    keys: set[str] = set()
    pos = _skip(text, pos + 1)
    while text[pos] not in "}]":
        if opening == "{":
            key, pos = _DECODER.raw_decode(text, pos)
            _note(key, keys)
            pos = _skip(text, _skip(text, pos) + 1)  # the colon
        if levels > 1:
            pos = yield from _walk(text, pos, levels - 1)
        else:
            _, pos = _DECODER.raw_decode(text, pos)
        pos = _skip(text, pos)
        if text[pos] == ",":
            pos = _skip(text, pos + 1)
        yield 1
    return pos + 1


def _skip(text: str, pos: int) -> int:
    blank = _BLANK.match(text, pos)
    assert blank is not None
    return blank.end()


def _note(key: str, keys: set[str]) -> None:
    if key in keys:
        shown = key if len(key) <= 60 else key[:59] + "…"
        raise ConfigurationError(f"the key {shown!r} stands twice in one object")
    keys.add(key)


def _distinct(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        keys: set[str] = set()
        for key, _ in pairs:
            _note(key, keys)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_distinct, parse_int=len, parse_float=len, strict=False
)
"""It makes nothing of the values: those were read before."""
