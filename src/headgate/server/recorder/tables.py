"""From frames to Arrow tables: numbers become names, and every field of the schema is there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headgate.contract.records import MESSAGES, SCHEMAS, Outcome, Rank, Schema, Type
from headgate.core.flows import Drop
from headgate.server.recorder.frames import COLUMNS, Frame

ARROW = {
    Type.TEXT: pa.string(),
    Type.WHOLE: pa.int64(),
    Type.REAL: pa.float64(),
    Type.FLAG: pa.bool_(),
    Type.TIME: pa.timestamp("us", tz="UTC"),
    Type.BYTES: pa.binary(),
}

NAME = pa.dictionary(pa.int32(), pa.string())
"""Text of which there are few: Parquet keeps it as a dictionary, and so it can be handed over."""

OUTCOMES = pa.array([outcome.value for outcome in Outcome])
RANKS = pa.array([rank.value for rank in Rank])
REASONS = pa.array(["", *(reason.name.lower() for reason in Drop)])
SENT, ACKNOWLEDGED, DROPPED = range(3)


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


def encoded(schema: pa.Schema) -> pa.Schema:
    """A schema whose texts are dictionaries: encoding them one by one is most of the work."""
    return pa.schema(
        [field.with_type(NAME) if field.type == pa.string() else field for field in schema]
    )


TABLES = {**ARROW_SCHEMAS, MESSAGES.kind: encoded(ARROW_SCHEMAS[MESSAGES.kind])}
"""What tables are made of; a file says that it has the schema above."""


def table_of(frame: Frame, columns: bytearray, broker: str) -> pa.Table:
    """The records of a frame."""
    if frame.kind == MESSAGES.kind:
        return messages(frame, columns, broker)
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


def messages(frame: Frame, columns: bytearray, broker: str) -> pa.Table:
    """Message records, from the columns of a block."""
    row: dict[str, np.ndarray] = {}
    start = 0
    for name, code in COLUMNS:
        row[name] = np.frombuffer(columns, dtype="<" + code, count=frame.rows, offset=start)
        start += row[name].nbytes
    facets = row["facets"]
    outcome = facets & 0xFF
    acknowledged = outcome == ACKNOWLEDGED
    reason = np.where(outcome == DROPPED, (facets >> 8 & 0xFF) + 1, 0)
    flow = row["flow"]
    client, topic_filter, application, category, link, priority = zip(*frame.flows, strict=True)
    # Topics were looked at when they came: they are UTF-8.
    topics = pa.array(frame.topics, type=pa.binary()).cast(pa.string())
    return table(
        MESSAGES,
        {
            "broker": named([broker], np.zeros(frame.rows, dtype="u4")),
            "sequence": np.arange(frame.first, frame.first + frame.rows),
            "at": moments(row["at"]),
            "arrived": moments(row["arrived"]),
            "client": named(client, flow),
            "filter": named(topic_filter, flow),
            "application": named(application, flow),
            "category": named(category, flow),
            "link": named(link, flow),
            "priority": np.array(priority, dtype="i8")[flow],
            "topic": named(topics, row["topic"]),
            "class": named(RANKS, facets >> 16 & 0xFF),
            "qos": (facets >> 24 & 3).astype("i8"),
            "retained": (facets & 0x08000000) != 0,
            "outcome": named(OUTCOMES, outcome),
            "reason": named(REASONS, reason),
            "messages": row["count"].astype("i8"),
            "bytes": row["size"].astype("i8"),
            "waited_ms": pa.array((row["at"] - row["arrived"]) * 1e3, mask=acknowledged),
            "acknowledged_ms": pa.array((row["at"] - row["since"]) * 1e3, mask=~acknowledged),
            "weight": repeated(frame.weight, frame.rows),
        },
    )


def table(schema: Schema, values: dict[str, object]) -> pa.Table:
    """A table with every field of the schema, in its order."""
    arrow = TABLES[schema.kind]
    return pa.table(
        [pa.array(values[field.name], type=field.type) for field in arrow], schema=arrow
    )


def named(names: Sequence[str] | pa.Array, numbers: np.ndarray) -> pa.DictionaryArray:
    """Numbers, and what each stands for."""
    values = names if isinstance(names, pa.Array) else pa.array(names, type=pa.string())
    return pa.DictionaryArray.from_arrays(numbers.astype("i4"), values)


def repeated(value: object, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value), rows)


def moments(seconds: np.ndarray) -> pa.Array:
    """Times of the broker's clock as timestamps."""
    return pa.array((seconds * 1e6).astype("i8")).cast(ARROW[Type.TIME])
