"""Publishers that adapt: how often they publish by themselves, and how seldom they may."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from headgate.contract.schema import MOST, Kind, Problem, Record, TopicFilter, rule

ANNOUNCED = "$SYS/headgate/period/"
"""Before a topic, this is where its publishers are told their period."""

LONGEST_TOPIC = 65_535 - len(ANNOUNCED)
"""Bytes of a topic that can be announced: together they are a topic too [MQTT-4.7.3-3]."""


class PeriodRange(Record, frozen=True):
    """Seconds between two messages of one publisher."""

    min: Annotated[float, Kind.DURATION, Meta(gt=0, le=MOST)]
    """What it does unless it is told otherwise."""
    max: Annotated[float, Kind.DURATION, Meta(gt=0, le=MOST)]
    """The longest that its messages are still worth something."""

    @rule("min", "max")
    def _ascends(self) -> Iterator[Problem]:
        if self.max < self.min:
            yield Problem(("max",), f"must not be below min, {self.min:g} s")


class AdaptingTopic(PeriodRange, frozen=True):
    """Topics whose publishers listen on `$SYS/headgate/period/<topic>`, and obey."""

    topic: TopicFilter
    """A filter; each topic of it that is subscribed to by its own name is slowed by itself."""

    @rule("topic")
    def _topic_has_publishers(self) -> Iterator[Problem]:
        if self.topic.startswith("$"):
            yield Problem(
                ("topic",),
                "topics that begin with $ are the broker's, and no publisher of theirs can be told"
                " to slow down: expected a filter such as weather/#",
            )

    @rule("topic")
    def _topic_can_be_announced(self) -> Iterator[Problem]:
        size = len(self.topic.encode())
        if size > LONGEST_TOPIC:
            yield Problem(
                ("topic",),
                f"is {size} bytes, and {ANNOUNCED} comes before it:"
                f" expected at most {LONGEST_TOPIC}",
            )
