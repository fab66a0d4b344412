"""`write.format("mqtt")` and `writeStream`: one PUBLISH for each row.

A task connects, publishes its rows and ends when the broker has acknowledged all of them; a
refusal or a break fails the task, and Spark runs it again. So each row arrives at least once, and
twice if a task is repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import paho.mqtt.client as mqtt
import pyarrow as pa
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructType,
)

from headgate.errors import ConfigurationError, MqttError
from headgate.pipeline.mqtt.connection import REFUSED, Connection
from headgate.pipeline.mqtt.options import (
    LARGEST,
    WRITING,
    Given,
    broker_of,
    flag,
    must_be_known,
    whole,
)
from headgate.wire.topics import validate_topic

COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "topic": (StringType,),
    "payload": (BinaryType, StringType),
    "qos": (IntegralType,),
    "retain": (BooleanType,),
    "content_type": (StringType,),
    "response_topic": (StringType,),
    "correlation": (BinaryType, StringType),
    "expiry": (IntegralType,),
    "properties": (MapType, ArrayType),
}

PASSED_OVER = frozenset({"time"})
"""What a message that was read has, and one that is published has not."""


@dataclass
class Published(WriterCommitMessage):
    """What a task did."""

    rows: int


class Writing:
    """Options and columns; a copy of it goes to each task."""

    def __init__(self, given: Given, schema: StructType) -> None:
        must_be_known(given, WRITING, "writing")
        self.broker = broker_of(given)
        self.topic = given.get("topic")
        self.qos = whole(given, "qos", 1, 0, 1)
        self.retain = flag(given, "retain", default=False)
        self.in_flight = whole(given, "inFlight", 1000, 1, LARGEST)
        self._check(schema)

    def _check(self, schema: StructType) -> None:
        for field in schema.fields:
            if field.name in PASSED_OVER:
                continue
            allowed = COLUMNS.get(field.name)
            if allowed is None:
                raise ConfigurationError(
                    f"format mqtt cannot publish a column {field.name!r}: known are "
                    f"{', '.join(COLUMNS)}; put what you have into payload, with to_json for one"
                )
            if not isinstance(field.dataType, allowed):
                names = " or ".join(one.typeName() for one in allowed)
                raise ConfigurationError(
                    f"column {field.name}: expected {names}, found {field.dataType.simpleString()}"
                )
        if "payload" not in schema.fieldNames():
            raise ConfigurationError("format mqtt needs a column payload, binary or string")
        if self.topic is None and "topic" not in schema.fieldNames():
            raise ConfigurationError("format mqtt needs a column topic, or the option topic")
        if self.topic is not None:
            legal(self.topic)

    def publish(self, batches: Iterator[pa.RecordBatch]) -> Published:
        """All rows of a task; returns when the broker has them."""
        connection = Connection(self.broker, "")
        publishing = Publishing(connection, self.in_flight)
        connection.open()
        rows = 0
        try:
            for batch in batches:
                names = [name for name in batch.schema.names if name not in PASSED_OVER]
                for row in batch.select(names).to_pylist():
                    self._publish(publishing, row)
                    rows += 1
            publishing.finish()
        finally:
            connection.close()
        return Published(rows)

    def _publish(self, publishing: Publishing, row: dict[str, Any]) -> None:
        topic = row.get("topic") or self.topic
        if topic is None:
            raise ConfigurationError("a row has no topic, and there is no option topic")
        legal(topic)
        qos = row.get("qos")
        retain = row.get("retain")
        qos = self.qos if qos is None else qos
        if qos not in (0, 1):
            raise ConfigurationError(f"column qos: expected 0 or 1, found {qos}")
        publishing.publish(
            topic,
            row["payload"] or b"",
            qos,
            self.retain if retain is None else retain,
            properties_of(row),
        )


class Publishing:
    """Publishes with so many in flight, and knows when all are acknowledged."""

    def __init__(self, connection: Connection, in_flight: int) -> None:
        self._connection = connection
        self._most = in_flight
        self._changed = threading.Condition()
        self._unanswered = 0
        connection.client.on_publish = self._answered
        connection.client.on_disconnect = self._lost

    def publish(
        self, topic: str, payload: bytes | str, qos: int, retain: bool, properties: Properties
    ) -> None:
        # The broker says how many it takes at once [MQTT-3.3.4-9].
        self._await(min(self._most, self._connection.quota) - 1)
        with self._changed:
            self._unanswered += 1
        sent = self._connection.client.publish(topic, payload, qos, retain, properties)
        if sent.rc != mqtt.MQTT_ERR_SUCCESS:
            self._fail(mqtt.error_string(sent.rc))
            self._connection.check()

    def finish(self) -> None:
        """Wait until nothing is without an answer; messages of QoS 0 are answered when sent."""
        self._await(0)

    def _await(self, most: int) -> None:
        with self._changed:
            while self._unanswered > most:
                before = self._unanswered
                self._connection.check()
                if not self._changed.wait(self._connection.broker.timeout) and (
                    self._unanswered == before
                ):
                    self._fail(f"no acknowledgement for {self._connection.broker.timeout:g} s")
            self._connection.check()

    def _answered(
        self, _client: mqtt.Client, _data: Any, _packet: int, reason: ReasonCode, _given: Properties
    ) -> None:
        with self._changed:
            self._unanswered -= 1
            if reason.value >= REFUSED:
                self._fail(f"the broker refuses a message: {reason}")
            self._changed.notify_all()

    def _lost(
        self, _client: mqtt.Client, _data: Any, _flags: Any, reason: ReasonCode, _given: Any
    ) -> None:
        # A session of its own ends with the connection: what was under way is not known.
        if self._unanswered:
            with self._changed:
                self._fail(f"the connection is lost: {reason}")
                self._changed.notify_all()

    def _fail(self, why: str) -> None:
        self._connection.failure = ConfigurationError(
            f"publishing to {self._connection.broker} failed: {why}"
        )


def legal(topic: str) -> None:
    try:
        validate_topic(topic)
    except MqttError as error:
        raise ConfigurationError(str(error)) from None


def properties_of(row: dict[str, Any]) -> Properties:
    made = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    if row.get("content_type") is not None:
        made.ContentType = row["content_type"]
    if row.get("response_topic") is not None:
        made.ResponseTopic = row["response_topic"]
    if row.get("correlation") is not None:
        data = row["correlation"]
        made.CorrelationData = data.encode() if isinstance(data, str) else data
    if row.get("expiry") is not None:
        made.MessageExpiryInterval = row["expiry"]
    # Arrow gives a map as pairs, an array of structs as dicts.
    for one in row.get("properties") or ():
        made.UserProperty = (one["key"], one["value"]) if isinstance(one, dict) else tuple(one)
    return made


class MqttWriter(DataSourceArrowWriter):
    def __init__(self, given: Given, schema: StructType) -> None:
        self.writing = Writing(given, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.writing.publish(iterator)


class MqttStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, given: Given, schema: StructType) -> None:
        self.writing = Writing(given, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.writing.publish(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is left to do: the broker has all of it."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was published cannot be taken back."""
