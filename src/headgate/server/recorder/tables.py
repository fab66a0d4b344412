"""Schemas as Arrow knows them, and tables of the records that come one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headgate.contract.records import SCHEMAS, Schema, Type
from headgate.server.recorder.frames import Frame

ARROW = {
    Type.TEXT: pa.string(),
    Type.WHOLE: pa.int64(),
    Type.REAL: pa.float64(),
    Type.FLAG: pa.bool_(),
    Type.TIME: pa.timestamp("us", tz="UTC"),
    Type.BYTES: pa.binary(),
}


def arrow_schema(schema: Schema) -> pa.Schema:
    """A schema as Arrow knows it; what it means travels along in the fields' metadata."""
    return pa.schema(
        [
            pa.field(field.name, ARROW[field.type], metadata={"meaning": field.meaning})
            for field in schema.fields
        ],
        metadata={"headgate.kind": schema.kind, "headgate.version": str(schema.version)},
    )


ARROW_SCHEMAS = {kind: arrow_schema(schema) for kind, schema in SCHEMAS.items()}
"""What a reader finds."""


def events(frame: Frame, broker: str) -> pa.Table:
    """Records that came one by one."""
    schema = SCHEMAS[frame.kind]
    by_field = dict(
        zip(
            (field.name for field in schema.fields[2:]),
            zip(*frame.events, strict=True),
            strict=True,
        )
    )
    return table(
        schema,
        {
            "broker": repeated(broker, frame.rows),
            "sequence": np.arange(frame.first, frame.first + frame.rows),
            **by_field,
            "at": moments(np.array(by_field["at"], dtype="f8")),
        },
    )


def table(schema: Schema, values: dict[str, object]) -> pa.Table:
    """A table with every field of the schema, in its order."""
    arrow = ARROW_SCHEMAS[schema.kind]
    return pa.table(
        [pa.array(values[field.name], type=field.type) for field in arrow], schema=arrow
    )


def repeated(value: object, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value), rows)


def moments(seconds: np.ndarray) -> pa.Array:
    """Times of the broker's clock as timestamps."""
    return pa.array((seconds * 1e6).astype("i8")).cast(ARROW[Type.TIME])
