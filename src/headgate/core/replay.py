"""Replay: the retained messages that a new subscription gets, as fast as its client takes them.

A replay is a cursor in the tree of retained messages (docs/decisions/0015-paced-replay.md). It
competes as a lane of its own, at the level of its flow, and fetches a message when that can be
sent: nothing is queued, so a replay takes no memory and loses nothing, however much is retained.
After a slice of work it rests, so that nobody else waits for it.

Live messages do not wait for a replay. What follows from that:

- A message that was retained after the subscription has been delivered as a live one; the cursor
  leaves it out. Message numbers tell (`since`).
- A live message that is not retained itself must not come before the older state of its topic:
  that is sent first (`precede`), and left out later (`ahead`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.core.flows import OFFLINE, SOCKET, TURN, Flow, Lane
from headgate.core.message import NORMAL, Message
from headgate.core.retained import Cursor, Retained

if TYPE_CHECKING:
    from headgate.core.broker import Broker

SHARE = 64 * 1024
"""Bytes in the outlet beyond which a replay waits, so that there is room for what is live."""


class Replay:
    def __init__(self, broker: Broker, flow: Flow) -> None:
        self.flow = flow
        self.broker: Any = broker
        self.retained: Retained = broker.retained
        self.pool = broker.pool
        self.cursor = Cursor(self.retained.root, flow.topic_filter)
        self.since = broker.counters.numbered
        """The number of the last message before the subscription."""
        self.ahead: set[bytes] = set()
        """Topics that were sent before the cursor reached them."""
        self.lasting = False
        """The connection for which it began is over: QoS 0 is no longer owed."""
        self.recorded = False
        """The journal knows of it."""
        self.lane = Lane(flow, flow.level(NORMAL))

    def proceed(self, now: float) -> int:
        """Send the next message, or say why not."""
        outlet = self.flow.session.outlet
        if outlet is None:
            return OFFLINE
        if not outlet.clear or outlet.size >= SHARE:
            return SOCKET
        pool = self.pool
        if pool.resting and not pool.resuming:
            return TURN  # others rest already
        sent = False
        while not sent:
            if not pool.may_step(now):
                return TURN
            pool.steps -= 1.0
            message = self.cursor.message()
            if message is not None and self.owes(message, now):
                reason = self.flow.offer(message, now)
                if reason:
                    return reason
                sent = True
            if not self.cursor.step():
                self.end()
                return 0
        return 0

    def owes(self, message: Message, now: float) -> bool:
        """Does the subscriber get this retained message, by the cursor?"""
        flow = self.flow
        if message.number > self.since or message.topic in self.ahead:
            return False
        if self.lasting and flow.granted(message) == 0:
            return False
        if message.expires != 0.0 and now >= message.expires:
            self.broker.forget_retained(message.topic)
            return False
        session = flow.session
        if flow.no_local and message.sender == session.client_id:  # [MQTT-3.8.3-3]
            return False
        allowed: bool = self.broker.gatekeeper.may_receive(
            session.identity, session.client_id, message.topic.decode()
        )
        return allowed

    def precede(self, live: Message, now: float) -> None:
        """Before a live message, send the state of its topic if that has not been sent yet."""
        leaf = self.retained.leaf(live.topic)
        kept = None if leaf is None else leaf.message
        if (
            leaf is None
            or kept is None
            or kept is live
            or self.cursor.passed(leaf, live.topic.count(b"/") + 1)
            or not self.owes(kept, now)
        ):
            return
        flow = self.flow
        session = flow.session
        if session.outlet is None and flow.granted(kept) == 0:
            return
        if not (session.drop_oldest or flow.has_room(kept)):
            return  # the live message finds no room either
        self.ahead.add(kept.topic)
        flow.deliver(kept, True, now)

    def interrupt(self) -> None:
        """The connection is over; to a session that lasts, QoS 1 and 2 are still owed."""
        self.lasting = True
        self.lane.listed = False
        self.lane.resting = False
        if self.flow.qos == 0 or not self.flow.session.persistent:
            self.end()

    def end(self) -> None:
        """Everything was sent, or nothing more is owed."""
        self.flow.replay = None
        self.lane.replay = None
        self.flow.session.waiting.pop(self.lane, None)
        self.flow.refresh()
        if self.recorded:
            self.broker.replays.record(self.flow)
