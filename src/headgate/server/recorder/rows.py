"""From rows of the arena to the columns of message records, a row group at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate import __version__
from headgate.contract.records import MESSAGES, Outcome, Rank
from headgate.core.reasons import Drop
from headgate.core.tape import ROW_SIZE, ROWS
from headgate.server.recorder.columns import Column, constant, flags, reals, texts, wholes
from headgate.server.recorder.frames import ROW, Frame
from headgate.server.recorder.parquet import ParquetFile, Sink
from headgate.server.recorder.tables import ARROW_SCHEMAS

GROUP = 128 * 1024
"""Rows of a row group: what Spark reads at a time."""

OUTCOMES = pa.array([outcome.value for outcome in Outcome])
RANKS = pa.array([rank.value for rank in Rank])
REASONS = pa.array(["", *(reason.name.lower() for reason in Drop)])
ACKNOWLEDGED, DROPPED = 1, 2
RETAINED = 0x08000000

FLOW_NAMES = ("client", "filter", "application", "category", "link")
SOUGHT = ("client", "topic")
"""Names by which readers pass over row groups."""


@dataclass(frozen=True)
class Part:
    """Rows of one block; they name flows and topics by that block's numbers."""

    frame: Frame
    rows: np.ndarray


class Room:
    """Memory for the rows of one group, used again and again: fresh memory costs more."""

    def __init__(self) -> None:
        self.rows = np.empty(GROUP + ROWS, dtype=ROW)
        self._raw = raw(self.rows)

    def take(self, rows: np.ndarray, start: int) -> np.ndarray:
        """A copy of rows, without those that stand for nothing, from the row `start` on.

        One that was never settled has no time, one that was moved no messages (`core/tape.py`).
        """
        valid = (rows["at"] != 0.0) & (rows["count"] != 0)
        size = int(np.count_nonzero(valid))
        self._raw[start : start + size] = raw(rows if size == len(rows) else rows[valid])
        return self.rows[start : start + size]


class MessageWriter:
    """The messages of one segment."""

    def __init__(self, sink: Sink, broker: str, room: Room) -> None:
        self._broker = broker
        self._room = room
        self._parts: list[Part] = []
        self._gathered = 0
        author = f"headgate version {__version__}"
        self._file = ParquetFile(sink, ARROW_SCHEMAS[MESSAGES.kind], author)

    def add(self, part: Part) -> None:
        """Copies the rows: whoever owns them can use them again."""
        rows = self._room.take(part.rows, self._gathered)
        if not len(rows):
            return
        self._parts.append(Part(part.frame, rows))
        self._gathered += len(rows)
        if self._gathered >= GROUP:
            self._write_group()

    def close(self) -> None:
        if self._parts:
            self._write_group()
        self._file.close()

    def _write_group(self) -> None:
        parts, rows = self._parts, self._room.rows[: self._gathered]
        self._parts, self._gathered = [], 0
        columns = columns_of(parts, rows, self._broker)
        fields = ARROW_SCHEMAS[MESSAGES.kind].names
        self._file.write_group([columns[name] for name in fields], len(rows))


def raw(rows: np.ndarray) -> np.ndarray:
    """Rows as plain numbers, which NumPy copies faster."""
    return rows.view("f8").reshape(-1, ROW_SIZE // 8)


def columns_of(parts: Sequence[Part], row: np.ndarray, broker: str) -> dict[str, Column]:
    """Every field of the schema; `row` has the rows of all parts."""
    rows = len(row)
    at, arrived = np.ascontiguousarray(row["at"]), np.ascontiguousarray(row["arrived"])
    facets = np.ascontiguousarray(row["facets"])
    columns = {
        "broker": texts(pa.array([broker]), None, rows),
        "sequence": wholes(numbers_of(parts), bounds=True),
        "at": wholes(moments(at), bounds=True),
        "arrived": wholes(moments(arrived), bounds=True),
        "topic": topics_of(parts),
        "messages": whole_or_one(row["count"]),
        "bytes": whole_or_one(row["size"]),
        # All of a run of the broker have the same.
        "weight": constant(float(parts[0].frame.weight), rows),
        **flows_of(parts),
        **facets_of(facets),
    }
    acknowledged = facets & 0xFF == ACKNOWLEDGED
    some = bool(acknowledged.any())
    columns["waited_ms"] = reals((at - arrived) * 1e3, ~acknowledged if some else None)
    columns["acknowledged_ms"] = reals((at - row["since"]) * 1e3 if some else at, acknowledged)
    return columns


def moments(seconds: np.ndarray) -> np.ndarray:
    """Times of the broker's clock as Parquet counts them, in microseconds."""
    return (seconds * 1e6).astype("i8")


def numbers_of(parts: Sequence[Part]) -> np.ndarray:
    ranges = [np.arange(one.frame.first, one.frame.first + len(one.rows)) for one in parts]
    return np.concatenate(ranges)


def whole_or_one(values: np.ndarray) -> Column:
    """Integers, or one of them if all are equal."""
    if (values == values[0]).all():
        return constant(int(values[0]), len(values))
    return wholes(values.astype("i8"))


def topics_of(parts: Sequence[Part]) -> Column:
    # Topics were looked at when they came: they are UTF-8.
    named = [
        pa.DictionaryArray.from_arrays(
            part.rows["topic"].astype("i4"),
            pa.array(part.frame.topics, type=pa.binary()).cast(pa.string()),
        )
        for part in parts
    ]
    chunks = pa.chunked_array(named).unify_dictionaries().chunks
    names = chunks[-1].dictionary  # those of the others are its beginning
    numbers = np.concatenate([chunk.indices.to_numpy() for chunk in chunks])
    return texts(names, numbers if len(names) > 1 else None, len(numbers), bounds=True)


def flows_of(parts: Sequence[Part]) -> dict[str, Column]:
    """What is said of a flow, column by column."""
    rows = sum(len(part.rows) for part in parts)
    # The flows of all parts in one list, and each row's number in it.
    flows = [flow for part in parts for flow in part.frame.flows]
    starts = np.cumsum([0, *(len(part.frame.flows) for part in parts)])
    number = np.concatenate(
        [part.rows["flow"] + start for part, start in zip(parts, starts, strict=False)]
    )
    columns = {}
    for place, name in enumerate(FLOW_NAMES):
        names, numbers = distinct([str(flow[place]) for flow in flows])
        columns[name] = texts(
            pa.array(names, type=pa.string()),
            numbers[number] if len(names) > 1 else None,
            rows,
            bounds=name in SOUGHT,
        )
    priorities = np.array([flow[5] for flow in flows], dtype="i8")
    if (priorities == priorities[0]).all():
        columns["priority"] = constant(int(priorities[0]), rows)
    else:
        columns["priority"] = whole_or_one(priorities[number])
    return columns


def distinct(values: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Each value once, and for each the number of its own."""
    known: dict[str, int] = {}
    numbers = [known.setdefault(value, len(known)) for value in values]
    return list(known), np.array(numbers, dtype="u4")


def facets_of(facets: np.ndarray) -> dict[str, Column]:
    """What a row says in few bits; mostly all rows say the same."""
    rows = len(facets)
    alike = bool((facets == facets[0]).all())
    few = facets[:1] if alike else facets
    outcome = few & 0xFF
    reason = np.where(outcome == DROPPED, (few >> 8 & 0xFF) + 1, 0)

    def named(names: pa.Array, numbers: np.ndarray) -> Column:
        if alike:
            return texts(names.slice(int(numbers[0]), 1), None, rows)
        return texts(names, numbers, rows)

    return {
        "class": named(RANKS, few >> 16 & 0xFF),
        "qos": constant(int(few[0] >> 24 & 3), rows) if alike else whole_or_one(few >> 24 & 3),
        "retained": flags((facets & RETAINED) != 0),
        "outcome": named(OUTCOMES, outcome),
        "reason": named(REASONS, reason),
    }
