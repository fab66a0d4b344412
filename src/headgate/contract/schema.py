"""The words with which frozen data says what its values may be.

One declaration serves every way in: the configuration's reader walks it over YAML and names each
mistake with its line, msgspec walks it over JSON at the speed that 10,000 policy rules need.
A bound is a `msgspec.Meta`, because both understand it; what only a person writes (`16MiB`, `5min`)
is a `Kind`, which JSON ignores: there a size is bytes and a duration is seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from functools import cache
from typing import Annotated, Any, Final, NamedTuple, NoReturn, TypeVar

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all configuration and contract data: immutable, compared by value."""


class Kind(Enum):
    """How a person writes a value, where its type alone does not say."""

    SIZE = auto()
    RATE = auto()
    DURATION = auto()
    TOPIC_FILTER = auto()
    TOPIC_PATTERN = auto()
    """A topic filter in which `%u` and `%c` stand for the user name and the client id."""
    NETWORK = auto()
    FILE = auto()
    """A file that must exist; relative to the folder of the configuration file."""
    FOLDER = auto()
    FACTORY = auto()
    """`package.module:name`"""
    KEYED = auto()
    """A list of records, written as a mapping from each record's `name`."""
    ONE_OR_MORE = auto()
    """A list of which a single item may stand alone."""


MOST: Final = 10**15
"""The largest number of anything: beyond all use, and well within C's integers and JSON's."""

Size = Annotated[int, Kind.SIZE, msgspec.Meta(ge=0, le=MOST)]
"""Bytes."""
Rate = Annotated[int, Kind.RATE, msgspec.Meta(ge=1, le=MOST)]
"""Bits per second, decimal."""
Duration = Annotated[float, Kind.DURATION, msgspec.Meta(ge=0, le=MOST)]
"""Seconds."""
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=MOST)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
TopicFilter = Annotated[str, Kind.TOPIC_FILTER]
TopicPattern = Annotated[str, Kind.TOPIC_PATTERN]
Network = Annotated[str, Kind.NETWORK]

PRIORITY_LEVELS = 16
"""0 is the highest."""
Priority = Annotated[int, msgspec.Meta(ge=0, le=PRIORITY_LEVELS - 1)]


class IllegibleError(Exception):
    """A rule came to a value that could not be read: there is nothing it can say."""


class Illegible:
    """Stands for a value whose mistake was noted when it was read. Whoever uses it has to give up.

    So rules see records as far as they could be read, and one pass finds as much as it can.
    """

    __slots__ = ()

    def _give_up(self, *_: object) -> NoReturn:
        raise IllegibleError

    __bool__ = __iter__ = __len__ = __contains__ = _give_up
    __str__ = __format__ = __hash__ = __eq__ = __getattr__ = _give_up


ILLEGIBLE: Final = Illegible()

T = TypeVar("T")


def legible(items: Iterable[T], *fields: str) -> Iterator[tuple[int, T]]:
    """Those items of a list, with their numbers, that could be read with all of `fields`."""
    for number, item in enumerate(items):
        if _is_legible(item) and all(_is_legible(getattr(item, name)) for name in fields):
            yield number, item


def _is_legible(value: object) -> bool:
    if isinstance(value, tuple):
        return all(item is not ILLEGIBLE for item in value)
    return value is not ILLEGIBLE


class Problem(NamedTuple):
    """What a rule found: where, as keys and indices below the record, and what would be right."""

    path: tuple[str | int, ...]
    message: str


Check = Callable[[Any], Iterator[Problem]]


def rule(*fields: str) -> Callable[[Check], Check]:
    """Mark a method that checks several fields against each other.

    It runs when each of `fields` could be read, whatever became of the others, so that one pass
    over a file finds as much as it can. Within them something may still be illegible: whoever goes
    through a list uses `legible`, so that one wrong item does not hide what others have wrong.
    """

    def mark(check: Check) -> Check:
        check.needs = fields  # type: ignore[attr-defined]
        return check

    return mark


@cache
def rules_of(cls: type[Record]) -> tuple[tuple[tuple[str, ...], Check], ...]:
    """The rules of a record type and of those it extends, each with the fields it needs."""
    return tuple(
        (member.needs, member)
        for kind in reversed(cls.__mro__)
        for member in vars(kind).values()
        if callable(member) and hasattr(member, "needs")
    )


def problems(record: Record) -> Iterator[Problem]:
    """Everything that a complete record's own rules find."""
    for _, check in rules_of(type(record)):
        yield from check(record)
