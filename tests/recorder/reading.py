"""Records as a reader of the folder finds them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.contract.records import SCHEMAS
from headgate.server.recorder.tables import ARROW_SCHEMAS

PATIENCE = 30.0

Row = dict[str, Any]


def segments(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"{kind}/date=*/[!.]*.parquet"))


def records(folder: Path, kind: str) -> list[Row]:
    """Every record of a kind, in the order of its sequence."""
    tables = [pq.read_table(file, partitioning=None) for file in segments(folder, kind)]
    assert kind in SCHEMAS
    for table in tables:
        assert table.schema.equals(ARROW_SCHEMAS[kind])
    rows: list[Row] = pa.concat_tables(tables).to_pylist() if tables else []
    return sorted(rows, key=lambda row: (row["broker"], row["sequence"]))


def messages_of(rows: list[Row], **wanted: object) -> int:
    """How many messages the records with these values stand for."""
    return sum(
        row["messages"] for row in rows if all(row[key] == value for key, value in wanted.items())
    )


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"in vain waited until {what}"
        time.sleep(0.02)
