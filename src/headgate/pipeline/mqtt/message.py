"""A message as a row: its schema, and how it comes out of paho's hands and into Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import paho.mqtt.client as mqtt
import pyarrow as pa

SCHEMA = (
    "topic string, payload binary, qos int, retain boolean, time timestamp, content_type string, "
    "response_topic string, correlation binary, "
    "properties array<struct<key: string, value: string>>"
)
"""User properties are a list: MQTT keeps their order, and a name may come several times."""

ARROW = pa.schema(
    [
        ("topic", pa.string()),
        ("payload", pa.binary()),
        ("qos", pa.int32()),
        ("retain", pa.bool_()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("content_type", pa.string()),
        ("response_topic", pa.string()),
        ("correlation", pa.binary()),
        ("properties", pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))),
    ]
)


class Message(NamedTuple):
    """The columns, in their order."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    time: datetime
    content_type: str | None
    response_topic: str | None
    correlation: bytes | None
    properties: list[tuple[str, str]]


def message_of(received: mqtt.MQTTMessage) -> Message:
    """What paho received, now."""
    given: Any = received.properties
    return Message(
        received.topic,
        bytes(received.payload),
        received.qos,
        received.retain,
        datetime.now(UTC),
        getattr(given, "ContentType", None),
        getattr(given, "ResponseTopic", None),
        getattr(given, "CorrelationData", None),
        list(getattr(given, "UserProperty", ())),
    )


def batch_of(messages: Sequence[Message]) -> pa.RecordBatch:
    """Messages as one Arrow batch of `SCHEMA`."""
    columns: list[Sequence[Any]] = list(zip(*messages, strict=True)) or [()] * len(ARROW)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)
