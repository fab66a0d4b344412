"""From spool files to segments: what was captured, as it was published.

One file of the spool (server/store/spool.py) becomes one segment of the same name. The file goes
when the segment is safe, so that whoever is killed in between leaves it to the next encoder, which
publishes the same again, or finds that it is there.
"""

from __future__ import annotations

import fcntl
import json
import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from headgate.contract.records import CAPTURES, Rank
from headgate.core.journal import Captured
from headgate.errors import MqttError, StorageError
from headgate.server.recorder.segments import Segment, Segments
from headgate.server.recorder.tables import moments, repeated, table
from headgate.server.store.spool import batches
from headgate.wire.fields import encode_varint
from headgate.wire.kinds import PacketType
from headgate.wire.properties import Properties, decode_properties

log = logging.getLogger("headgate.recorder")

NAMES = tuple(rank.value for rank in Rank)
NO_PROPERTIES = Properties()

MESSAGES_AT_ONCE = 8192
BYTES_AT_ONCE = 16 * 1024 * 1024


class Unloader:
    """A thread that makes segments of the complete files in the spool, oldest first.

    A thread, because records of other kinds are lost while nobody reads the stream.
    """

    def __init__(self, folder: str, segments: Segments) -> None:
        self._folder = Path(folder)
        self._segments = segments
        self._asked = threading.Event()
        self._closing = False
        self._told = ""
        self._thread: threading.Thread | None = None
        if folder:
            self._thread = threading.Thread(target=self._run, name="unloader")
            self._thread.start()

    def look(self) -> None:
        """There may be something in the spool."""
        self._asked.set()

    def close(self) -> None:
        """Wait until all that is complete has been tried once more."""
        self._closing = True
        self._asked.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._asked.clear()
            closing = self._closing
            try:
                self.unload()
            except Exception:
                log.exception("captured messages wait in %s", self._folder)
            if closing:
                return
            self._asked.wait()

    def unload(self) -> None:
        """Publish all that is complete; what fails stays, and is tried again when asked to."""
        for path in sorted(self._folder.glob("*.spool")):
            try:
                self._unload(path)
            except StorageError as error:
                aside = path.with_suffix(".damaged")
                log.error("%s: it is left as %s", error, aside)
                path.rename(aside)
            except FileNotFoundError:
                continue  # another encoder had it
            except OSError as error:
                if str(error) != self._told:
                    log.error("captured messages wait in %s: %s", path, error)
                    self._told = str(error)
                return
            else:
                self._told = ""

    def _unload(self, path: Path) -> None:
        with path.open("rb") as held:
            try:
                # That of a broker that was killed may still be at work.
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            name = segment_name(path.stem)
            if not self._segments.has(name):
                self._segments.publish(name, lambda segment: fill(segment, path))
            path.unlink()


def segment_name(stem: str) -> str:
    """Where the segment of a spool file lies: its name begins with its time."""
    return f"{CAPTURES.kind}/date={stem[:4]}-{stem[4:6]}-{stem[6:8]}/{stem}.parquet"


def fill(segment: Segment[pa.Table], path: Path) -> None:
    # TIME-DAY-CHANCE-NUMBER: the run of the broker is in the middle.
    run = path.stem.partition("-")[2].rpartition("-")[0]
    gathered: list[Captured] = []
    size = 0
    for messages in batches(path):
        # At rest a commit has one message: a table for each would be most of the work.
        gathered += messages
        size += sum(len(message.payload) for message in messages)
        if len(gathered) >= MESSAGES_AT_ONCE or size >= BYTES_AT_ONCE:
            segment.add(captured(gathered, run))
            gathered = []
            size = 0
    if gathered:
        segment.add(captured(gathered, run))


def captured(messages: Sequence[Captured], run: str) -> pa.Table:
    """Messages as records."""
    properties = [properties_of(message.properties) for message in messages]
    return table(
        CAPTURES,
        {
            "broker": repeated(run, len(messages)),
            "sequence": [message.sequence for message in messages],
            "at": moments(np.array([message.at for message in messages])),
            "client": [message.client for message in messages],
            "user": [message.user for message in messages],
            "topic": [message.topic.decode(errors="replace") for message in messages],
            "class": [NAMES[message.rank] for message in messages],
            "qos": [message.qos for message in messages],
            "retain": [message.retain for message in messages],
            "duplicate": [message.duplicate for message in messages],
            "payload": [message.payload for message in messages],
            "payload_format": [one.payload_format for one in properties],
            "content_type": [one.content_type for one in properties],
            "response_topic": [one.response_topic for one in properties],
            "correlation": [one.correlation_data for one in properties],
            "expiry_s": [None if message.expiry < 0 else message.expiry for message in messages],
            "properties": list(map(pairs_of, properties, messages)),
        },
    )


def properties_of(encoded: bytes) -> Properties:
    """What MQTT 5 said of a message. It was looked at when it came; a will is not that certain."""
    if not encoded:
        return NO_PROPERTIES
    try:
        return decode_properties(encode_varint(len(encoded)) + encoded, 0, PacketType.PUBLISH)[0]
    except MqttError as error:
        log.warning("properties of a captured message cannot be read: %s", error)
        return NO_PROPERTIES


def pairs_of(properties: Properties, message: Captured) -> str | None:
    """User properties, without the one that says the class: that is a column of its own."""
    said = ("class", NAMES[message.rank])
    pairs = [pair for pair in properties.user_properties if pair != said]
    return json.dumps(pairs, ensure_ascii=False) if pairs else None
