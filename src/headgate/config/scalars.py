"""Single values: from the text in the file to the typed value, or to what is wrong with it."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from headgate.config import units
from headgate.config.addresses import Address, address
from headgate.contract.schema import Kind
from headgate.errors import MqttError
from headgate.wire.topics import validate_filter

LONGEST_SOCKET_PATH = 107
"""What Linux has room for; its own message would come only at start, and say less."""

_TRUE = {"true", "yes", "on"}
_FALSE = {"false", "no", "off"}
_INTEGER = re.compile(r"[-+]?[0-9][0-9_]{0,17}", re.ASCII)
_NUMBER = re.compile(
    r"[-+]?(?:[0-9][0-9_]{0,17})?(?:\.[0-9]{0,17})?(?:[eE][-+]?[0-9]{1,2})?", re.ASCII
)
_FACTORY = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class BadValueError(ValueError):
    """What is wrong with a value, as a sentence for the operator."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the configuration stands, which relative paths start from."""

    folder: Path
    check_files: bool


@dataclass(frozen=True, slots=True)
class Scalar:
    """How values of a type are read, and how an expected one is described."""

    expected: str
    read: Callable[[str, Place], Any]


def scalar(base: type, kind: Kind | None, limits: msgspec.Meta | None) -> Scalar:
    """The way to read a scalar of the given type."""
    if kind in _BY_KIND:
        found = _BY_KIND[kind]
    elif issubclass(base, Enum):
        found = _enumeration(base)
    else:
        found = _BY_TYPE[base]
    return found if limits is None else _limited(found, base, limits)


def suggest(word: str, known: list[str]) -> str:
    """`; did you mean …?`, or nothing if nothing known is near."""
    near = nearest(word, known)
    return "" if near is None else f"; did you mean {near}?"


def nearest(word: str, known: list[str]) -> str | None:
    """What somebody may have meant who wrote `word`."""
    lower = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return lower[near[0]] if near else None


def is_text(text: str) -> bool:
    """Can it be written to a file, a path or an MQTT packet?"""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def shorten(text: str) -> str:
    """What was found, quoted, on one line and not too long."""
    return repr(text if len(text) <= 60 else text[:57] + "…")


def _limited(inner: Scalar, base: type, limits: msgspec.Meta) -> Scalar:
    bounds = _bounds(limits, base)

    def read(text: str, place: Place) -> Any:
        try:
            value = inner.read(text, place)
        except BadValueError:
            if base not in (int, float):
                raise
            # Perhaps it was only too large to be read as a number.
            raise BadValueError(f"expected {inner.expected}{bounds}, found {shorten(text)}") from (
                None
            )
        size = len(value) if isinstance(value, str) else value
        low = limits.min_length if isinstance(value, str) else limits.ge
        high = limits.max_length if isinstance(value, str) else limits.le
        if (
            (low is not None and size < low)
            or (high is not None and size > high)
            or (limits.gt is not None and size <= limits.gt)
        ):
            raise BadValueError(f"expected {inner.expected}{bounds}, found {shorten(text)}")
        if limits.pattern is not None and not re.search(limits.pattern, str(value)):
            raise BadValueError(
                f"expected text that matches {limits.pattern}, found {shorten(text)}"
            )
        return value

    return Scalar(inner.expected + bounds, read)


def _bounds(limits: msgspec.Meta, base: type) -> str:
    if base is str:
        if limits.max_length is not None:
            return f" of {limits.min_length or 0} to {limits.max_length} characters"
        return " that is not empty" if limits.min_length else ""
    if limits.gt is not None:
        return f" above {limits.gt:g}" + ("" if limits.le is None else f", at most {limits.le}")
    if limits.ge is not None and limits.le is not None:
        return f" from {limits.ge} to {limits.le}"
    return "" if limits.ge is None else f" of at least {limits.ge}"


def _text(text: str, place: Place) -> str:
    return text


def _boolean(text: str, place: Place) -> bool:
    word = text.lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise BadValueError(f"expected true or false, found {shorten(text)}")


def _integer(text: str, place: Place) -> int:
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", ""))
    raise BadValueError(f"expected a whole number, found {shorten(text)}")


def _number(text: str, place: Place) -> float:
    if _NUMBER.fullmatch(text):
        try:
            return float(text.replace("_", ""))
        except ValueError:
            pass  # "+", "." or "e5": the pattern lets each part be absent
    raise BadValueError(f"expected a number, found {shorten(text)}")


def _enumeration(base: type[Enum]) -> Scalar:
    words = [str(member.value) for member in base]
    expected = f"one of {', '.join(words)}"

    def read(text: str, place: Place) -> Enum:
        try:
            return base(text)
        except ValueError:
            raise BadValueError(
                f"expected {expected}, found {shorten(text)}{suggest(text, words)}"
            ) from None

    return Scalar(expected, read)


def _quantity(expected: str, parse: Callable[[str], float]) -> Scalar:
    def read(text: str, place: Place) -> float:
        try:
            return parse(text)
        except ValueError:
            raise BadValueError(f"expected {expected}, found {shorten(text)}") from None

    return Scalar(expected, read)


def _topic_filter(text: str, place: Place) -> str:
    try:
        validate_filter(text)
    except MqttError as error:
        raise BadValueError(
            f"{error}; a topic filter looks like sensors/+/temperature or sensors/#"
        ) from (None)
    return text


def _topic_pattern(text: str, place: Place) -> str:
    for escape in re.findall(r"%.?", text):
        if escape not in ("%u", "%c"):
            raise BadValueError(
                f"{escape} stands for nothing: use %u for the user or %c for the client id"
            )
    _topic_filter(text.replace("%u", "u").replace("%c", "c"), place)
    return text


def _network(text: str, place: Place) -> str:
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        raise BadValueError(
            f"expected a network such as 10.1.0.0/16, found {shorten(text)}"
        ) from None


def _path(text: str, place: Place) -> Path:
    if not text:
        raise BadValueError("expected a path that is not empty")
    return place.folder / text


def _folder(text: str, place: Place) -> Path:
    path = _path(text, place)
    obstacle = obstructed(path) if place.check_files else None
    if obstacle is not None:
        raise BadValueError(not_a_folder(obstacle))
    return path


def obstructed(folder: Path) -> Path | None:
    """What stands where a folder is, or would have to be made, and is none."""
    for part in (folder, *folder.parents):
        try:
            if part.is_dir():
                return None
            if part.exists() or part.is_symlink():
                return part
        except OSError:
            return None  # who may not look will hear of it when it is needed
    return None


def not_a_folder(obstacle: Path) -> str:
    """What is wrong with a path in which a file stands for a folder."""
    return f"{obstacle} is not a folder: move it away, or name another path"


def _file(text: str, place: Place) -> Path:
    path = _path(text, place)
    if place.check_files:
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            raise BadValueError(f"cannot read {path}: {error.strerror}") from None
    return path


def _factory(text: str, place: Place) -> str:
    if _FACTORY.fullmatch(text):
        return text
    raise BadValueError(f"expected package.module:name, found {shorten(text)}")


def _address(text: str, place: Place) -> Address:
    try:
        where = address(text)
    except ValueError as error:
        raise BadValueError(f"{error}, found {shorten(text)}") from None
    if not where.path:
        return where
    path = str(place.folder / where.path)
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        raise BadValueError(
            f"the path of a Unix socket has at most {LONGEST_SOCKET_PATH} bytes, {path} has more"
        )
    return Address(path=path)


_BY_TYPE: Mapping[type, Scalar] = {
    str: Scalar("text", _text),
    bool: Scalar("true or false", _boolean),
    int: Scalar("a whole number", _integer),
    float: Scalar("a number", _number),
    Address: Scalar('an address such as "127.0.0.1:1883"', _address),
}
_BY_KIND: Mapping[Kind | None, Scalar] = {
    Kind.SIZE: _quantity("a size such as 16MiB, 64KB or 4096", units.size),
    Kind.RATE: _quantity("a rate such as 10Mbit, 1.5Gbit or 800kbit", units.rate),
    Kind.DURATION: _quantity("a duration such as 10s, 5min or 250ms", units.duration),
    Kind.TOPIC_FILTER: Scalar("a topic filter", _topic_filter),
    Kind.TOPIC_PATTERN: Scalar("a topic filter, perhaps with %u or %c", _topic_pattern),
    Kind.NETWORK: Scalar("a network such as 10.1.0.0/16", _network),
    Kind.FILE: Scalar("the path of a file", _file),
    Kind.FOLDER: Scalar("the path of a folder", _folder),
    Kind.FACTORY: Scalar("package.module:name", _factory),
}
