"""From frames to Arrow tables: numbers become names, and every field of the schema is there."""

from __future__ import annotations

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
    flow = pa.array(row["flow"])
    client, topic_filter, application, category, link, priority = zip(*frame.flows, strict=True)
    topics = [topic.decode(errors="replace") for topic in frame.topics]
    return table(
        MESSAGES,
        {
            "broker": repeated(broker, frame.rows),
            "sequence": np.arange(frame.first, frame.first + frame.rows),
            "at": moments(row["at"]),
            "arrived": moments(row["arrived"]),
            "client": pa.array(client).take(flow),
            "filter": pa.array(topic_filter).take(flow),
            "application": pa.array(application).take(flow),
            "category": pa.array(category).take(flow),
            "link": pa.array(link).take(flow),
            "priority": pa.array(priority).take(flow),
            "topic": pa.array(topics).take(pa.array(row["topic"])),
            "class": RANKS.take(pa.array(facets >> 16 & 0xFF)),
            "qos": (facets >> 24 & 3).astype("i8"),
            "retained": (facets & 0x08000000) != 0,
            "outcome": OUTCOMES.take(pa.array(outcome)),
            "reason": REASONS.take(pa.array(reason)),
            "messages": row["count"].astype("i8"),
            "bytes": row["size"].astype("i8"),
            "waited_ms": pa.array((row["at"] - row["arrived"]) * 1e3, mask=acknowledged),
            "acknowledged_ms": pa.array((row["at"] - row["since"]) * 1e3, mask=~acknowledged),
            "weight": repeated(frame.weight, frame.rows),
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
