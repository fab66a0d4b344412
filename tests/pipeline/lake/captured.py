"""Captured messages as a broker would have made them, in frames and in segments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from headgate.contract.records import CAPTURES
from headgate.pipeline.records import spark_schema
from headgate.server.recorder.tables import ARROW_SCHEMAS

NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)

Capture = dict[str, Any]

USUAL: Capture = {
    "broker": "run-1",
    "sequence": 0,
    "client": "sensor-1",
    "user": "",
    "topic": "hall/temperature",
    "class": "normal",
    "qos": 1,
    "retain": False,
    "duplicate": False,
    "payload_format": None,
    "content_type": None,
    "response_topic": None,
    "correlation": None,
    "expiry_s": None,
    "properties": None,
}


def capture(sequence: int, payload: bytes | str, at: float = 0.0, **values: Any) -> Capture:
    """A message that arrived `at` seconds past noon."""
    return {
        **USUAL,
        "sequence": sequence,
        "payload": payload.encode() if isinstance(payload, str) else payload,
        "at": NOON + timedelta(seconds=at),
        **values,
    }


def frame(spark: SparkSession, captures: list[Capture]) -> DataFrame:
    schema = spark_schema(CAPTURES)
    rows = [tuple(one[name] for name in schema.fieldNames()) for one in captures]
    return spark.createDataFrame(rows, schema)


def segment(folder: Path, name: str, captures: list[Capture], day: str = "2026-11-17") -> Path:
    """A segment, as the recorder publishes it."""
    file = folder / "captures" / f"date={day}" / f"{name}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_name(f".{file.name}")
    pq.write_table(pa.Table.from_pylist(captures, schema=ARROW_SCHEMAS["captures"]), half)
    half.rename(file)
    return file


# Sparkplug, written by the field numbers of its specification


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, content: int | bytes | str) -> bytes:
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def metric(
    name: str | None = None,
    alias: int | None = None,
    datatype: int | None = None,
    value: bytes = b"",
    stamp: int | None = None,
) -> bytes:
    """`value` is a whole field, such as field(10, 7)."""
    parts = [(1, name), (2, alias), (3, stamp), (4, datatype)]
    return b"".join(field(number, part) for number, part in parts if part is not None) + value


def payload(*metrics: bytes, stamp: int = 1_700_000_000_000) -> bytes:
    return field(1, stamp) + b"".join(field(2, one) for one in metrics) + field(3, 0)
