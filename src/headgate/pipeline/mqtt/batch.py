"""`read.format("mqtt")`: what the broker has now, looked at and left there.

`what=retained` (the default): the retained messages of the filters, each filter a task of its own.
`what=session`: what the session of `clientId` holds; none of it is acknowledged, so it stays.
Either ends when nothing came for `quiet` seconds, after `limit` seconds, or with `maxMessages`.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from paho.mqtt.subscribeoptions import SubscribeOptions
from pyspark.sql.datasource import DataSourceReader, InputPartition

from headgate.errors import ConfigurationError
from headgate.pipeline.mqtt.connection import Connection
from headgate.pipeline.mqtt.message import Message, batch_of, message_of
from headgate.pipeline.mqtt.options import (
    BATCH,
    LARGEST,
    Given,
    broker_of,
    must_be_known,
    needed,
    reading_of,
)

CHUNK = 10_000
"""Messages that are handed to Spark together."""
EXPIRY = 86_400
"""Seconds that a session that was looked at stays, from then on."""


@dataclass
class Filters(InputPartition):
    topics: tuple[str, ...]


class MqttReader(DataSourceReader):
    def __init__(self, given: Given) -> None:
        must_be_known(given, BATCH, "batches")
        self.broker = broker_of(given)
        self.what = given.get("what", "retained")
        if self.what not in ("retained", "session"):
            raise ConfigurationError(
                f"option what: expected retained or session, found {self.what!r}"
            )
        self.client = ""
        if self.what == "session":
            self.client = needed(given, "clientId", "the session to look at")
            given = {"topics": "#", **given}  # a session has its filters already
        self.reading = reading_of(given)

    def partitions(self) -> Sequence[Filters]:
        if self.what == "session":
            return [Filters(())]
        return [Filters((one,)) for one in self.reading.topics]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Filters)
        arrived: queue.SimpleQueue[Message] = queue.SimpleQueue()
        retained = self.what == "retained"
        connection = Connection(
            self.broker,
            self.client,
            expiry=0 if retained else EXPIRY,
            receive_maximum=LARGEST,
            manual=not retained,
        )
        connection.client.on_message = lambda _client, _data, received: (
            arrived.put(message_of(received)) if received.retain or not retained else None
        )
        try:
            connection.open(partition.topics, SubscribeOptions(qos=self.reading.qos))
            if not retained and not connection.session_present:
                raise ConfigurationError(
                    f"the broker at {self.broker} has no session of {self.client!r}"
                )
            yield from batches(self.until_quiet(arrived, connection))
        finally:
            connection.close()

    def until_quiet(
        self, arrived: queue.SimpleQueue[Message], connection: Connection
    ) -> Iterator[Message]:
        deadline = time.monotonic() + self.reading.limit
        count = 0
        while count != self.reading.maximum:
            left = min(self.reading.quiet, deadline - time.monotonic())
            try:
                yield arrived.get(timeout=max(0.0, left)) if left > 0 else arrived.get_nowait()
            except queue.Empty:
                connection.check()
                return
            count += 1


def batches(messages: Iterator[Message]) -> Iterator[pa.RecordBatch]:
    chunk = []
    for message in messages:
        chunk.append(message)
        if len(chunk) == CHUNK:
            yield batch_of(chunk)
            chunk = []
    if chunk:
        yield batch_of(chunk)
