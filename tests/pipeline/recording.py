"""Message records as a broker would have made them, in frames and in segments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from headgate.contract.records import MESSAGES
from headgate.pipeline.records import spark_schema
from headgate.server.recorder.tables import ARROW_SCHEMAS

NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)

USUAL: dict[str, Any] = {
    "broker": "run-1",
    "sequence": 0,
    "client": "app-1",
    "filter": "t/#",
    "application": "app",
    "category": "RT",
    "link": "floor",
    "priority": 7,
    "topic": "t/a",
    "class": "normal",
    "qos": 0,
    "retained": False,
    "outcome": "sent",
    "reason": "",
    "messages": 1,
    "bytes": 100,
    "waited_ms": 1.0,
    "acknowledged_ms": None,
    "weight": 1.0,
}

Record = dict[str, Any]


def record(at: float = 0.0, **values: Any) -> Record:
    """A record of `at` seconds past noon."""
    moment = NOON + timedelta(seconds=at)
    return {**USUAL, "at": moment, "arrived": moment, **values}


def frame(spark: SparkSession, records: list[Record]) -> DataFrame:
    schema = spark_schema(MESSAGES)
    rows = [tuple(one[name] for name in schema.fieldNames()) for one in records]
    return spark.createDataFrame(rows, schema)


def segment(folder: Path, name: str, records: list[Record], day: str = "2026-11-17") -> Path:
    """A segment, as the recorder publishes it."""
    file = folder / "messages" / f"date={day}" / f"{name}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_name(f".{file.name}")
    pq.write_table(pa.Table.from_pylist(records, schema=ARROW_SCHEMAS["messages"]), half)
    half.rename(file)
    return file
