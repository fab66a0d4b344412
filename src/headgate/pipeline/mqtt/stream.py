"""`readStream.format("mqtt")`: connections at the driver, segments in a spool, tasks that read.

An offset is the number of a segment. When Spark asks how far it may go, all that has arrived
becomes the next segment; the offset that it starts from is the end of the last batch that it
committed, and up to there is acknowledged. So a message is acknowledged when it is in a committed
batch, not before (docs/decisions/0044).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from paho.mqtt.subscribeoptions import SubscribeOptions
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headgate.errors import ConfigurationError
from headgate.pipeline.mqtt.connection import Connection
from headgate.pipeline.mqtt.options import (
    STREAM,
    Given,
    broker_of,
    must_be_known,
    reading_of,
    streaming_of,
)
from headgate.pipeline.mqtt.receiver import Receiver
from headgate.pipeline.mqtt.spool import Spool, read_segment

EVERYTHING = 1 << 31

Offset = dict[str, int]


@dataclass
class SegmentPart(InputPartition):
    """What one reader contributed to one segment: a task."""

    file: str
    content: bytes | None
    """The file itself, for workers that do not reach it."""


class MqttStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a Python process beside the driver; a copy of it goes to the workers to read."""

    def __init__(self, given: Given) -> None:
        must_be_known(given, STREAM, "streams")
        self.broker = broker_of(given)
        self.reading = reading_of(given)
        self.streaming = streaming_of(given, self.reading.topics)
        self._receiving: Receiving | None = None
        self._deadline: float | None = None
        """Until when availableNow goes on, if that is the trigger."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_receiving": None}

    @property
    def receiving(self) -> Receiving:
        """The connections; made when first needed, never where a task runs."""
        if self._receiving is None:
            self._receiving = Receiving(self)
        return self._receiving

    def initialOffset(self) -> Offset:  # noqa: N802 (Spark's names, here and below)
        """A new query begins with what an earlier one has left in the spool."""
        return {"segment": self.receiving.spool.first - 1}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self.reading.maximum
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._deadline = time.monotonic() + self.reading.limit

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        receiving = self.receiving
        receiving.committed(start["segment"])
        if self._deadline is not None:
            receiving.wait(min(self.reading.quiet, self._deadline - time.monotonic()))
            # The engine reads all that is available in batches of the size that was asked for.
            if time.monotonic() >= self._deadline:
                return {"segment": receiving.spool.state.last}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else EVERYTHING
        return {"segment": receiving.cut(min(most, self.reading.maximum or EVERYTHING))}

    def partitions(self, start: Offset, end: Offset) -> Sequence[SegmentPart]:
        return self.receiving.parts(start["segment"], end["segment"], self.streaming.ship)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SegmentPart)
        try:
            yield from read_segment(partition.content or Path(partition.file))
        except FileNotFoundError:
            raise ConfigurationError(
                f"this worker does not reach {partition.file}: put the spool where driver and "
                "workers reach it, or set the option ship to true"
            ) from None

    def commit(self, end: Offset) -> None:
        self.receiving.committed(end["segment"])
        self.receiving.spool.drop(end["segment"])

    def stop(self) -> None:
        if self._receiving is not None:
            self._receiving.close()
            self._receiving = None


class Receiving:
    """The connections of a query, and its spool."""

    def __init__(self, reader: MqttStreamReader) -> None:
        wanted = reader.streaming
        self.spool = Spool(wanted.spool, wanted.client, wanted.readers)
        self.receivers: list[Receiver] = []
        client = self.spool.state.client
        shared = wanted.group or (client if wanted.readers > 1 else None)
        topics = [f"$share/{shared}/{one}" if shared else one for one in reader.reading.topics]
        gone = [one for one in self.spool.state.filters if one not in topics]
        # Retained messages come with a subscription, not again with each restart.
        options = SubscribeOptions(reader.reading.qos, retainAsPublished=True, retainHandling=1)
        try:
            for number in range(wanted.readers):
                connection = Connection(
                    reader.broker,
                    f"{client}-{number}" if wanted.readers > 1 else client,
                    expiry=wanted.session_expiry,
                    receive_maximum=wanted.receive_maximum,
                    manual=True,
                )
                self.receivers.append(Receiver(connection, self.spool.owed(number)))
                connection.open(topics, options, gone)
            self.spool.state.filters = topics
            self.spool.save()
        except BaseException:
            self.close()
            raise

    def wait(self, patience: float) -> None:
        """Until something has arrived, but not longer than this."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and not any(map(len, self.receivers)):
            time.sleep(0.005)

    def cut(self, most: int) -> int:
        """Make a segment of what has arrived; returns the number of the newest one."""
        for receiver in self.receivers:
            receiver.connection.check()
        number = self.spool.state.last + 1
        left = most
        for index, receiver in enumerate(self.receivers):
            # What one does not use is for those after it.
            taken = receiver.take(-(-left // (len(self.receivers) - index)), number)
            left -= len(taken)
            if taken:
                self.spool.write(number, index, taken)
                self.spool.state.last = number
        if self.spool.state.last == number:
            self.spool.save()
        return self.spool.state.last

    def committed(self, segment: int) -> None:
        """Acknowledge what is in segments up to this one."""
        if segment > self.spool.state.last:
            raise ConfigurationError(
                f"the checkpoint has read up to segment {segment}, and the spool "
                f"{self.spool.folder} has only had {self.spool.state.last}: it is another's, or it "
                "was lost; what was not acknowledged is still with the broker, and comes with a "
                "new checkpoint"
            )
        if segment > self.spool.state.settled:
            # Before the broker is told: see `State.settled`.
            self.spool.state.settled = segment
            self.spool.save()
        for receiver in self.receivers:
            receiver.settle(self.spool.state.settled)

    def parts(self, start: int, end: int, ship: bool) -> list[SegmentPart]:
        there = [one for one in self.spool.segments() if start < one[0] <= end]
        missing = set(range(start + 1, end + 1)) - {number for number, _ in there}
        if missing:
            raise ConfigurationError(
                f"the spool {self.spool.folder} does not have segment {min(missing)}, which the "
                "checkpoint wants: it is another's, or it was lost; what was not acknowledged is "
                "still with the broker, and comes with a new checkpoint"
            )
        files = [self.spool.path(*one) for one in there]
        return [SegmentPart(str(file), file.read_bytes() if ship else None) for file in files]

    def close(self) -> None:
        for receiver in self.receivers:
            receiver.close()
        self.spool.close()
