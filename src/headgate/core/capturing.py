"""Captured messages: what is published to certain topics goes on record as it was published.

Whether a topic is captured is found once, with its route. Here a message becomes a `Captured` and
goes to the journal; if it is guaranteed, its acknowledgement waits for the commit, as it would for
a persistent session. What the broker itself publishes is not captured.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headgate.core.journal import Captured
from headgate.wire.topics import matches

if TYPE_CHECKING:
    from headgate.config.recorder import CaptureRule
    from headgate.core.broker import Broker
    from headgate.core.message import Message
    from headgate.core.publishing import Publisher
    from headgate.core.session import Session

# What a route says.
NOT = 0
NOTED = 1
GUARANTEED = 2


class Captures:
    """Which topics, and how many messages so far."""

    def __init__(self, broker: Broker) -> None:
        self.taken = 0
        """Messages given to the journal, which numbers them."""
        self._broker = broker
        self._filters: list[tuple[str, int]] = []
        self.held: list[Publisher] = []
        """Those that wait for room."""

    def begin(self, rules: Iterable[CaptureRule]) -> None:
        """Somebody makes segments of what is captured: from now on, capture."""
        self._filters = [
            (topic_filter, GUARANTEED if one.capture == "guaranteed" else NOTED)
            for one in rules
            for topic_filter in one.topics
        ]
        self._broker.router.captured = self.of if self._filters else None
        self._broker.access_changed()  # routes from before do not know

    def of(self, topic: bytes) -> int:
        """How messages of a topic are captured."""
        text = topic.decode()
        return max((how for one, how in self._filters if matches(one, text)), default=NOT)

    def take(self, message: Message, how: int, sender: Session | None) -> None:
        """Put a message on record."""
        if sender is None:
            return
        broker = self._broker
        qos = (message.flags >> 1) & 3
        guaranteed = how == GUARANTEED and qos > 0
        expires = message.expires
        captured = Captured(
            self.taken,
            message.arrived,
            sender.client_id,
            sender.identity.user or "",
            message.topic,
            message.rank,
            qos,
            message.retain,
            message.flags & 8 == 8,
            message.payload,
            message.properties,
            round(expires - message.arrived) if expires else -1,
        )
        self.taken += 1
        journal = broker.journal
        journal.capture(captured, guaranteed)
        if guaranteed:
            broker.pool.kept = journal.position

    def hold(self, channel: Publisher) -> None:
        """There is no room for what a client publishes: nothing is read from it for a while."""
        channel.crowded = True
        self.held.append(channel)

    def resume(self, now: float) -> None:
        """Who was held may go on, if there is room again."""
        if self.held and not self._broker.journal.crowded:
            waiting, self.held = self.held, []
            for channel in waiting:
                channel.crowded = False
                channel.go_on(now)
