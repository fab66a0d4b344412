"""Segments on disk: a micro-batch's messages, kept until Spark has committed it.

    segment-000000000017-0.arrow    what reader 0 contributed to segment 17
    state.json                      client id, readers, last segment, how far is acknowledged
    lock                            held by the query that uses the spool

A segment is written under another name, made safe on disk and then renamed: it is there whole, or
not at all. The state is replaced in the same way.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from headgate.errors import ConfigurationError
from headgate.pipeline.mqtt.message import ARROW, Message, batch_of
from headgate.pipeline.mqtt.receiver import Held

NAME = re.compile(r"segment-(\d{12})-(\d+)\.arrow")
PACKET = pa.field("packet", pa.int32())
PATIENCE = 30.0
"""Seconds to wait for a predecessor that was killed a moment ago and has not noticed yet."""


class State(msgspec.Struct):
    client: str
    readers: int
    last: int = 0
    """The newest segment that was ever written."""
    settled: int = 0
    """Segments up to this one were, or are about to be, acknowledged: what the broker sends is
    never again taken for a message of these."""
    filters: list[str] = []
    """What the sessions subscribe to."""


class Spool:
    """One query's folder."""

    def __init__(self, folder: Path, client: str | None, readers: int) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("a")
        except OSError as error:
            raise ConfigurationError(f"option spool: {folder}: {error.strerror}") from None
        self._take_lock()
        self.state = self._load(client, readers)
        numbers = [number for number, _ in self.segments()]
        self.state.last = max([self.state.last, *numbers])
        self.first = min(numbers, default=self.state.last + 1)
        """The oldest segment that is there, or would be next."""
        self.save()

    def _take_lock(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise ConfigurationError(
                        f"option spool: {self.folder} is used by another query"
                    ) from None
                time.sleep(0.1)

    def _load(self, client: str | None, readers: int) -> State:
        file = self.folder / "state.json"
        if not file.exists():
            return State(client or f"headgate-spark-{os.urandom(6).hex()}", readers)
        state = msgspec.json.decode(file.read_bytes(), type=State)
        if client not in (None, state.client):
            raise ConfigurationError(
                f"option clientId: the spool {self.folder} belongs to {state.client!r}, not to "
                f"{client!r}: its session at the broker may hold messages"
            )
        if readers < state.readers:
            raise ConfigurationError(
                f"option readers: the spool {self.folder} had {state.readers}, and sessions of "
                "those that are missing may hold messages: give no fewer"
            )
        state.readers = readers
        return state

    def save(self) -> None:
        """Make the state safe on disk."""
        self._publish(self.folder / "state.json", msgspec.json.encode(self.state))

    def segments(self) -> Iterator[tuple[int, int]]:
        """Number and reader of each file that is there."""
        for file in sorted(self.folder.glob("segment-*.arrow")):
            found = NAME.fullmatch(file.name)
            if found:
                yield int(found[1]), int(found[2])

    def path(self, number: int, reader: int) -> Path:
        return self.folder / f"segment-{number:012d}-{reader}.arrow"

    def write(self, number: int, reader: int, messages: list[tuple[Message, int]]) -> None:
        """One reader's part of a segment, safe on disk when it returns."""
        batch = batch_of([message for message, _ in messages])
        packets = pa.array([packet for _, packet in messages], PACKET.type)
        stored = pa.RecordBatch.from_arrays([*batch.columns, packets], schema=ARROW.append(PACKET))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, stored.schema) as writer:
            writer.write_batch(stored)
        self._publish(self.path(number, reader), sink.getvalue())

    def _publish(self, file: Path, content: bytes | pa.Buffer) -> None:
        half = file.with_name(f".{file.name}.half")
        try:
            with half.open("wb") as output:
                output.write(content)
                output.flush()
                os.fsync(output.fileno())
            half.rename(file)
            folder = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise ConfigurationError(f"the spool cannot keep {file}: {error.strerror}") from None

    def owed(self, reader: int) -> list[Held]:
        """Messages in segments of which the broker may not have been told that they are safe."""
        found = []
        for number, whose in self.segments():
            if whose == reader and number > self.state.settled:
                table = pa.ipc.open_file(self.path(number, reader)).read_all()
                rows = table.select(["packet", "topic", "payload"]).to_pylist()
                found += [Held(**row, segment=number) for row in rows if row["packet"]]
        return found

    def drop(self, through: int) -> None:
        """Delete segments up to this one."""
        for number, reader in list(self.segments()):
            if number <= through:
                self.path(number, reader).unlink(missing_ok=True)

    def close(self) -> None:
        self._lock.close()


def read_segment(content: Path | bytes) -> Iterator[pa.RecordBatch]:
    """The messages of a file, or of its bytes, without what is ours alone."""
    source = pa.BufferReader(content) if isinstance(content, bytes) else pa.memory_map(str(content))
    with source, pa.ipc.open_file(source) as file:
        for index in range(file.num_record_batches):
            yield file.get_batch(index).select(ARROW.names)
