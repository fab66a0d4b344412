"""What waits of one flow: in lanes by rank, with room made by rules when there is none.

enqueue ──▶ room? ──▶ wait ──▶ lane ──▶ unwait ──▶ sent by the scheduler
              │ no                        └──────▶ discard
              ▼
            evict what is worth least
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

from headgate.core.accounting import Account, numbered
from headgate.core.histogram import Histogram
from headgate.core.journal import StoredDelivery, StoredMessage
from headgate.core.link import MESSAGE, Contender, Pool
from headgate.core.message import CRITICAL, NORMAL, URGENT, Message, split
from headgate.core.reasons import CAPACITY, EXPIRED, MEMORY
from headgate.core.session import Session
from headgate.core.tape import ACKNOWLEDGED, facets

if TYPE_CHECKING:
    from headgate.core.flows import Flow


class Delivery:
    """One message owed to one flow: in a lane while it waits, in flight until acknowledged."""

    def __init__(self, flow: Queue, message: Message, qos: int) -> None:
        self.flow: Flow = flow  # type: ignore[assignment]  # every queue is a flow's
        self.message = message
        self.qos = qos
        self.retain = False
        self.released = False
        self.packet_id = 0
        self.sequence = 0
        self.position = 0
        self.sent = 0.0


class Lane(Contender):
    """What waits of one flow at one level; or a replay, which fetches what it sends."""

    def __init__(self, flow: Queue, level: int) -> None:
        Contender.__init__(self)
        self.flow: Flow = flow  # type: ignore[assignment]  # as above
        self.level = level
        self.items: deque[Delivery] = deque()
        self.listed = False
        self.replay: Any = None
        self.resting = False


class Queue(Account):
    """What waits of one flow, and the limits to that."""

    def __init__(self, session: Session, filter: str) -> None:  # noqa: A002
        Account.__init__(self, session)
        self.filter = filter
        self.priority = 7
        self.capacity = 0
        self.lifetime = 0.0

        # By rank; made when something first has to wait.
        self.lanes: list[Lane | None] = [None, None, None]
        self.backlog = 0
        self.replay: Any = None
        """Retained messages that are still to be sent (`core/replay.py`)."""

    def enqueue(self, message: Message, qos: int, retain: bool, now: float) -> None:
        """Let a message wait, making room by what the session's overflow rule says."""
        session = self.session
        pool = session.pool
        count = message.count
        level = self.level(message.rank)
        if count > 1 and not self.has_room(message):
            for part in split(message):  # as much of a run as the limits allow
                self.enqueue(part, 0, retain, now)
            return
        if count > session.message_limit or message.size > session.size_limit:
            self.miss(message, qos, CAPACITY, now)
            return
        if message.size + MESSAGE * count > pool.limit:
            self.miss(message, qos, MEMORY, now)
            return
        while self.capacity and self.backlog + count > self.capacity:
            # Among equals the newest goes, as in the queue that the model knows (M/M/1/K).
            if not evict(self.last_lane(), level, False, CAPACITY, now):
                self.lose(message, qos, CAPACITY, now)
                return
        while (
            session.queued_messages + count > session.message_limit
            or session.queued_size + message.size > session.size_limit
        ):
            if not evict(self.worst_lane(), level, session.drop_oldest, CAPACITY, now):
                self.lose(message, qos, CAPACITY, now)
                return
        if not make_room(pool, message.size + MESSAGE * count, level, session.drop_oldest, now):
            self.lose(message, qos, MEMORY, now)
            return
        delivery = Delivery(self, message, qos)
        delivery.retain = retain
        if qos and session.journal is not None:
            if qos == 2 and session.outlet is not None and self.may_number(message.rank):
                delivery.packet_id = session.take_packet_id()
                session.inflight[delivery.packet_id] = delivery
            self.keep(delivery)
        self.wait(delivery)

    def has_room(self, message: Message) -> bool:
        """Could a message wait without anything else having to go?"""
        session = self.session
        return not (
            (self.capacity and self.backlog + message.count > self.capacity)
            or session.queued_messages + message.count > session.message_limit
            or session.queued_size + message.size > session.size_limit
            or session.pool.full(message.size + MESSAGE * message.count)
        )

    def may_number(self, rank: int) -> bool:
        """May the next delivery of a lane get its packet identifier already, to save a commit?

        Only if everything before it has one: it would take the window from what must be sent first,
        and after a crash it would be resent before that.
        """
        if len(self.session.inflight) >= self.session.window:
            return False
        lane = self.lanes[rank]
        if lane is None or not lane.items:
            return True
        # Not [-1]: compiled, the hot path has no negative indices (setup.py).
        last: Delivery = lane.items[len(lane.items) - 1]
        return last.packet_id != 0

    def wait(self, delivery: Delivery) -> None:
        """Put a delivery at the end of its lane."""
        session = self.session
        message = delivery.message
        lane = self.lanes[message.rank]
        if lane is None:
            lane = self.lanes[message.rank] = Lane(self, self.level(message.rank))
        if not lane.items:
            session.waiting[lane] = None
            self.line_up(lane)
        link = None if session.outlet is None else session.own_link()
        lane.items.append(delivery)
        self.backlog += message.count
        session.queued_messages += message.count
        session.queued_size += message.size
        session.pool.size += message.size + MESSAGE * message.count
        session.pool.messages += message.count
        if link is not None:
            link.queued += message.size
            if not lane.listed:
                lane.listed = True
                link.enlist(lane, lane.level)
                if link.rate != 0.0 and not link.scheduled:
                    link.scheduled = True
                    session.pool.paced.append(link)

    def unwait(self, lane: Lane) -> Delivery:
        """Take the first delivery of a lane."""
        session = self.session
        delivery = lane.items.popleft()
        message = delivery.message
        self.backlog -= message.count
        session.queued_messages -= message.count
        session.queued_size -= message.size
        session.pool.size -= message.size + MESSAGE * message.count
        session.pool.messages -= message.count
        if session.link is not None:
            session.link.queued -= message.size
        if not lane.items:
            session.waiting.pop(lane, None)
            self.step_out(lane)
        return delivery

    def line_up(self, lane: Lane) -> None:
        """Something waits in a lane: whoever needs room finds it by its level."""
        session = self.session
        session.pool.lanes[lane.level][lane] = None
        own = session.levels.get(lane.level)
        if own is None:
            own = session.levels[lane.level] = OrderedDict()
        own[lane] = None

    def step_out(self, lane: Lane) -> None:
        """Nothing waits in a lane any more, or it changes its level."""
        session = self.session
        session.pool.lanes[lane.level].pop(lane, None)
        own = session.levels[lane.level]
        del own[lane]
        if not own:
            del session.levels[lane.level]

    def promote(self, priority: int) -> None:
        """Compete at another level from now on. The link has to be sorted afterwards."""
        self.priority = priority
        lane = self.lanes[NORMAL]
        if lane is not None:
            if lane.items:
                self.step_out(lane)
            lane.level = self.level(NORMAL)
            if lane.items:
                self.line_up(lane)
        if self.replay is not None:
            self.replay.lane.level = self.level(NORMAL)

    def level(self, rank: int) -> int:
        """The level at which messages of a rank compete: urgent, critical, then the priorities."""
        return rank if rank < NORMAL else NORMAL + self.priority

    def follows(self, rank: int) -> bool:
        """Does anything of this flow wait that a message of `rank` must not overtake?"""
        if rank == NORMAL:
            return self.backlog > 0
        for before in range(rank + 1):
            lane = self.lanes[before]
            if lane is not None and lane.items:
                return True
        return False

    def last_lane(self) -> Lane | None:
        """The least important lane in which anything of this flow waits."""
        for rank in (NORMAL, CRITICAL, URGENT):
            lane = self.lanes[rank]
            if lane is not None and lane.items:
                return lane
        return None

    def worst_lane(self) -> Lane | None:
        """A lane of the least important level at which anything of this client waits.

        Lanes of a level take turns, so that no flow pays for all. However many there are, it takes
        no longer.
        """
        levels = self.session.levels
        if not levels:
            return None
        own = levels[max(levels)]
        lane: Lane = next(iter(own))
        own.move_to_end(lane)
        return lane

    def keep(self, delivery: Delivery) -> None:
        """Have the journal keep a delivery and, once, its message."""
        session = self.session
        journal = session.journal
        assert journal is not None
        message = delivery.message
        if message.key == 0:
            session.pool.last_key += 1
            message.key = session.pool.last_key
        if message.holders == 0:
            journal.save_message(stored(message))
        message.holders += 1
        session.sequence += 1
        delivery.sequence = session.sequence
        journal.save_delivery(
            StoredDelivery(
                session.client_id,
                delivery.sequence,
                message.key,
                self.filter,
                delivery.qos,
                delivery.packet_id,
                False,
                delivery.retain,
            )
        )
        delivery.position = journal.position
        session.pool.kept = journal.position

    def forget(self, delivery: Delivery) -> None:
        """The delivery is over, one way or another: the journal need not keep it."""
        journal = self.session.journal
        if journal is not None and delivery.sequence:
            journal.drop_delivery(self.session.client_id, delivery.sequence)
            message = delivery.message
            message.holders -= 1
            if message.holders == 0:
                journal.drop_message(message.key)

    def discard(self, delivery: Delivery, reason: int, now: float) -> None:
        """Drop what was waiting, count it, and free its packet identifier if it had one."""
        self.lose(delivery.message, delivery.qos, reason, now)
        if delivery.packet_id or self.replay is not None:  # a replay may have waited for it
            self.session.release(delivery.packet_id)
        self.forget(delivery)

    def lose(self, message: Message, qos: int, reason: int, now: float) -> None:
        """A message does not reach the subscriber by this way; by a replay it still may."""
        self.miss(message, qos, reason, now)
        if self.replay is not None:
            self.replay.miss(message)

    def record_acknowledged(self, delivery: Delivery, now: float) -> None:
        """A message was acknowledged."""
        if self.acknowledged is None:
            self.acknowledged = Histogram()
        self.acknowledged.add(now - delivery.sent, 1)
        tape = self.session.pool.tape
        if tape is not None and tape.keeps():
            message = delivery.message
            tape.put(
                numbered(self, tape),
                message.topic,
                1,
                message.size,
                now,
                message.arrived,
                delivery.sent,
                facets(ACKNOWLEDGED, 0, message.rank, delivery.qos, delivery.retain),
            )


def make_room(pool: Pool, size: int, level: int, oldest: bool, now: float) -> bool:
    """Drop what is worth less than a message of `level` until so many bytes more may be held."""
    while pool.full(size):
        if not evict(pool.least(), level, oldest, MEMORY, now):
            return False
    return True


def evict(lane: Lane | None, level: int, oldest: bool, reason: int, now: float) -> bool:
    """Drop the oldest of `lane` to make room for a message of `level`, if that is worth more."""
    if lane is None:
        return False
    flow = lane.flow
    if overdue(lane.items[0], now):
        reason = EXPIRED
    elif lane.level < level or (lane.level == level and not oldest):
        return False
    first = lane.items[0]
    if first.message.count > 1:
        # Of a run no more goes than has to. Bytes and messages that wait stay the same.
        lane.items.popleft()
        for part in reversed(split(first.message)):
            lane.items.appendleft(Delivery(flow, part, 0))
    flow.discard(flow.unwait(lane), reason, now)
    return True


def overdue(delivery: Delivery, now: float) -> bool:
    """Has a waiting message outlived its own expiry or the flow's lifetime?"""
    message = delivery.message
    if message.expires != 0.0 and now >= message.expires:
        return True
    lifetime = delivery.flow.lifetime
    # What was retained may be old already when it begins to wait.
    return lifetime != 0.0 and not delivery.retain and now - message.arrived > lifetime


def stored(message: Message) -> StoredMessage:
    """A message as the journal keeps it."""
    return StoredMessage(
        message.key,
        message.topic,
        message.payload,
        message.properties,
        message.qos,
        message.retain,
        message.rank,
        message.expires,
        message.arrived,
        message.sender,
    )
