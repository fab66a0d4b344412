"""JSON and CBOR, in Arrow batches. Both become the same values, and those the same measurements.

Spark can take JSON apart itself, as variants; nested as payloads are, that was many times slower
than this (docs/decisions/0046).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from headgate.pipeline.lake import cbor
from headgate.pipeline.lake.formats import Format
from headgate.pipeline.lake.undecodable import UndecodableError
from headgate.pipeline.lake.values import ARROW_MEASUREMENTS, Measurement, measurements


def json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        raise UndecodableError(f"JSON: {reason}") from None


READERS = {Format.JSON: json, Format.CBOR: cbor.decode}


def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches with `payload` and `format`; for each row `measurements` or, if need be, `reason`."""
    for batch in batches:
        kinds = batch.column("format").to_pylist()
        found, reasons = [], []
        for payload, kind in zip(batch.column("payload").to_pylist(), kinds, strict=True):
            some, why = attempt(payload, Format(kind))
            found.append(some)
            reasons.append(why)
        yield batch.append_column(
            pa.field("measurements", ARROW_MEASUREMENTS), pa.array(found, ARROW_MEASUREMENTS)
        ).append_column("reason", pa.array(reasons, pa.string()))


def attempt(payload: bytes, kind: Format) -> tuple[list[Measurement] | None, str | None]:
    try:
        return measurements(READERS[kind](payload)), None
    except UndecodableError as error:
        return None, str(error)
