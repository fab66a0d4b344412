"""The recorder: what it keeps, where, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from headgate.contract.schema import (
    MOST,
    Duration,
    Fraction,
    Kind,
    Problem,
    Record,
    Size,
    TopicFilter,
    rule,
)

DEFAULT_FOLDER = Path("records")

STORES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "file")
"""What Arrow can write to by a URL."""

ROUNDED = 0.02
"""A fraction such as 0.33 stands for a third."""


class Capture(StrEnum):
    """What becomes of a message that the disk has no room for."""

    BEST_EFFORT = "best-effort"
    """It is published all the same, not recorded, and counted."""
    GUARANTEED = "guaranteed"
    """It is acknowledged only once it is safely recorded; QoS 1 and 2."""


class CaptureRule(Record, frozen=True):
    """Topics whose messages are recorded as they were published."""

    topics: Annotated[tuple[TopicFilter, ...], Kind.ONE_OR_MORE, Meta(min_length=1)]
    capture: Capture = Capture.BEST_EFFORT

    @rule("topics")
    def _topics_are_of_clients(self) -> Iterator[Problem]:
        for number, topic in enumerate(self.topics):
            if topic.startswith("$"):
                yield Problem(
                    ("topics", number),
                    "topics that begin with $ are not captured; urgent and critical messages are"
                    " captured under their plain topic",
                )


class RecorderConfig(Record, frozen=True):
    """Records of messages, connections and policies (docs/records.md)."""

    folder: Annotated[Path, Kind.FOLDER] | None = None
    """By default `records`, beside the configuration file."""
    url: str | None = None
    """An object store instead of a folder, such as s3://bucket/records."""
    messages: Fraction = 1.0
    """Fraction of the message records that are kept, as one of a whole number; 0 records none."""
    segment_size: Annotated[int, Kind.SIZE, Meta(ge=1024, le=MOST)] = 64 * 1024 * 1024
    segment_age: Annotated[float, Kind.DURATION, Meta(gt=0, le=MOST)] = 60.0
    """Seconds after which a segment is published though it is smaller."""
    keep: Duration = 7 * 86400.0
    """Seconds after which a segment is removed; 0 keeps all."""
    keep_size: Size = 10 * 1024 * 1024 * 1024
    """Bytes of all segments, beyond which the oldest go; 0 is no limit."""
    captures: tuple[CaptureRule, ...] = ()
    """If several match a topic, one that guarantees goes before."""
    capture_size: Size = 4 * 1024 * 1024 * 1024
    """Bytes of captured messages in `data_dir` that may wait for the encoder; 0 is no limit."""

    @property
    def guarantees(self) -> bool:
        return any(one.capture is Capture.GUARANTEED for one in self.captures)

    @property
    def place(self) -> str:
        """Where the segments go."""
        return self.url or str((self.folder or DEFAULT_FOLDER).absolute())

    @rule("url")
    def _url_is_one(self) -> Iterator[Problem]:
        if self.url is None:
            return
        scheme, found, rest = self.url.partition("://")
        if not found:
            yield Problem(("url",), "expected a URL such as s3://bucket/records; or use folder")
        elif scheme not in STORES:
            known = ", ".join(f"{name}://" for name in STORES)
            yield Problem(
                ("url",), f"nothing can be written to {scheme}://; known are {known}; or use folder"
            )
        elif not rest.strip("/"):
            yield Problem(
                ("url",), f"names no place: expected a URL such as {scheme}://bucket/records"
            )

    @rule("url", "folder")
    def _place_is_one(self) -> Iterator[Problem]:
        if self.url is not None and self.folder is not None:
            yield Problem(
                ("folder",), "records go to one place: leave out folder, or leave out url"
            )

    @rule("messages")
    def _one_of_a_whole_number(self) -> Iterator[Problem]:
        if not 0.0 < self.messages < 1.0:
            return
        every = max(2, round(1.0 / self.messages))
        if abs(self.messages * every - 1.0) > ROUNDED:
            below, above = (f"{1.0 / number:.3g}" for number in (every + 1, max(1, every - 1)))
            near = f"{1.0 / every:.3g}"
            yield Problem(
                ("messages",),
                f"one of every so many is kept: expected 1, 0.5, 0.333, 0.25 and so on, or 0 for"
                f" none; near {self.messages:g} are {below}, {near} and {above}",
            )
