"""Replay: the retained messages that a new subscription gets, as fast as its client takes them.

A replay is a cursor in the tree of retained messages (docs/decisions/0015-paced-replay.md). It
competes as a lane of its own, at the level of its flow, and fetches a message when that can be
sent: nothing is queued, so a replay takes no memory and loses nothing, however much is retained.
After a slice of work it rests, so that nobody else waits for it.

Live messages do not wait for a replay. What follows from that:

- A message that was retained after the subscription has been delivered as a live one; the cursor
  leaves it out. Message numbers tell (`since`).
- A live message that is not retained itself must not come before the older state of its topic:
  that is sent first (`precede`), and left out later (`ahead`). If it would have to wait in another
  lane, it is not sent at all.
- A message that is retained and had to go from a queue is fetched when the cursor is through
  (`missed`), unless something newer of its topic is on its way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.core.flows import Flow
from headgate.core.message import NORMAL, Message
from headgate.core.queueing import Lane
from headgate.core.reasons import OFFLINE, ORDER, SOCKET, TURN
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
        self.cursor = Cursor(self.retained, flow.topic_filter)
        self.through = False
        """The cursor has been everywhere."""
        self.since = broker.counters.numbered
        """The number of the last message before the subscription."""
        self.ahead: set[bytes] = set()
        """Topics of which the client gets something at least as new as what is retained."""
        self.missed: dict[bytes, None] = {}
        """Topics whose retained message was dropped before it reached the client."""
        self.lasting = False
        """The connection for which it began is over: QoS 0 is no longer owed."""
        self.recorded = False
        """The journal knows of it."""
        self.lane = Lane(flow, flow.level(NORMAL))
        self.trusted: Any = None
        """Who may receive all that the filter matches; nobody, if that is not known."""
        self.judge()

    def judge(self) -> None:
        """Ask once about the whole filter, so as not to ask about each topic."""
        session = self.flow.session
        every = self.broker.gatekeeper.may_receive_all(
            session.identity, session.client_id, self.flow.topic_filter.decode()
        )
        self.trusted = session.identity if every else None

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
        if self.flow.backlog and self.follows():
            return ORDER
        while pool.may_step(now):
            pool.steps -= 1.0
            message = self.current()
            if message is not None and self.owes(message) and self.may_have(message, now):
                reason = self.flow.offer(message, now)
                if reason:
                    return reason
                self.go_on()
                return 0
            if not self.go_on():
                return 0
        return TURN

    def follows(self) -> bool:
        """Does anything wait in the flow's lanes that came before the subscription?"""
        for lane in self.flow.lanes:
            if lane is not None and lane.items:
                first = lane.items[0]
                if not first.retain and first.message.number <= self.since:
                    return True
        return False

    def current(self) -> Message | None:
        """The retained message whose turn it is, if there is one."""
        if not self.through:
            return self.cursor.message()
        return self.retained.get(next(iter(self.missed))) if self.missed else None

    def go_on(self) -> bool:
        """Turn to what comes next; False if nothing does."""
        if not self.through:
            if self.cursor.step():
                return True
            self.through = True
        elif self.missed:
            del self.missed[next(iter(self.missed))]  # no room for it again, and it is lost
        if self.missed:
            return True
        self.end()
        return False

    def owes(self, message: Message) -> bool:
        """Has the client not got a retained message in another way?"""
        if self.through:
            return message.topic in self.missed
        return message.number <= self.since and message.topic not in self.ahead

    def may_have(self, message: Message, now: float) -> bool:
        """May the client have a retained message that it has not got?"""
        flow = self.flow
        if self.lasting and flow.granted(message) == 0:
            return False
        if message.expires != 0.0 and now >= message.expires:
            self.broker.forget_retained(message.topic)
            return False
        session = flow.session
        if flow.no_local and message.sender == session.client_id:  # [MQTT-3.8.3-3]
            return False
        if self.trusted is session.identity:
            return True
        allowed: bool = self.broker.gatekeeper.may_receive(
            session.identity, session.client_id, message.topic.decode()
        )
        return allowed

    def miss(self, message: Message) -> None:
        """A message was dropped: if it is the state of its topic, the client still needs that."""
        topic = message.topic  # a run has none
        if topic and topic not in self.ahead and self.retained.get(topic) is message:
            self.missed[topic] = None

    def precede(self, live: Message, now: float) -> None:
        """Before a live message, send the state of its topic if that has not been sent yet."""
        topic = live.topic
        leaf = self.retained.leaf(topic)
        kept = None if leaf is None else leaf.message
        if leaf is None or kept is None:
            return
        if kept is live:
            self.ahead.discard(topic)
            self.missed.pop(topic, None)
            return
        owed = topic in self.missed or (
            not self.through
            and self.owes(kept)
            and not self.cursor.passed(leaf, topic.count(b"/") + 1)
        )
        if owed and self.may_have(kept, now) and not self.lead(kept, live, now):
            return
        self.ahead.add(topic)
        self.missed.pop(topic, None)

    def lead(self, kept: Message, live: Message, now: float) -> bool:
        """Send the state of a topic before a live message, or leave it out.

        False if neither finds room, so that the state is still owed.
        """
        flow = self.flow
        session = flow.session
        outlet = session.outlet
        qos = flow.granted(kept)
        if outlet is None and qos == 0:
            return True
        if (
            outlet is not None
            and outlet.clear
            and flow.backlog == 0
            and not session.owed
            and (session.link is None or session.link.rate == 0.0)
            and (qos < 2 or session.journal is None)
            and flow.offer(kept, now) == 0
        ):
            return True
        if kept.rank != live.rank:
            return True  # it would wait in another lane, and might come after what is newer
        if session.drop_oldest or flow.has_room(kept):
            flow.deliver(kept, True, now)
            return True
        return flow.has_room(live) or (outlet is not None and outlet.clear and flow.backlog == 0)

    def interrupt(self) -> None:
        """The connection is over; to a session that lasts, QoS 1 and 2 are still owed."""
        self.lasting = True
        self.lane.listed = False
        self.lane.resting = False
        if self.flow.qos == 0 or not self.flow.session.persistent:
            self.end()

    def end(self) -> None:
        """Everything was sent, or nothing more is owed."""
        self.cursor.leave()
        self.flow.replay = None
        self.lane.replay = None
        self.lane.resting = False
        self.flow.session.waiting.pop(self.lane, None)
        self.flow.refresh()
        if self.recorded:
            self.broker.replays.record(self.flow)
