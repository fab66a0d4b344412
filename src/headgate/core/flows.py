"""Flows: one subscription of one client, with its own priority, drop rate, queue and counters.

This is where PlanEMQX happens (§III-B): two applications on one topic have two flows that are
managed differently, and neither publisher nor subscriber notices.

    deliver ──▶ drop? ──▶ can it go at once? ──▶ emit ──▶ outlet
                              │ no                 ▲
                              ▼                    │ scheduler.pump
                           enqueue ──▶ lane ───────┤
                                       replay ─────┘

A flow that nothing special was asked of is `fast`: a whole run of packets passes through `forward`
as one piece of bytes.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from typing import Any

from headgate.core.histogram import Histogram
from headgate.core.journal import StoredDelivery, StoredMessage
from headgate.core.message import CRITICAL, NORMAL, URGENT, Message, run, split, uint16, varint
from headgate.core.outlet import Outlet
from headgate.core.session import Session
from headgate.core.tape import ACKNOWLEDGED, CUT, DROPPED, SENT, Note, Tape, facets

MASK = 0xFFFFFFFFFFFFFFFF
TWO_TO_64 = float(1 << 64)
UNLIMITED = 0x0FFFFFFF


class Drop(IntEnum):
    """Why a message did not reach a subscriber."""

    RATE = 0
    EXPIRED = 1
    CAPACITY = 2
    DISCONNECTED = 3
    MEMORY = 4
    UNAUTHORISED = 5
    SIZE = 6


class Wait(IntEnum):
    """Why a lane does not send."""

    PACING = 1
    WINDOW = 2
    SOCKET = 3
    OFFLINE = 4
    COMMIT = 5
    TURN = 6
    """A replay of retained messages lets others go first."""
    ORDER = 7
    """What waited before a replay began goes first."""


# The same as plain numbers: an enum member would cost the hot path a comparison of objects.
RATE = 0
EXPIRED = 1
CAPACITY = 2
DISCONNECTED = 3
MEMORY = 4
UNAUTHORISED = 5
SIZE = 6
PACING = 1
WINDOW = 2
SOCKET = 3
OFFLINE = 4
COMMIT = 5
TURN = 6
ORDER = 7


class Delivery:
    """One message owed to one flow: in a lane while it waits, in flight until acknowledged."""

    def __init__(self, flow: Flow, message: Message, qos: int) -> None:
        self.flow = flow
        self.message = message
        self.qos = qos
        self.retain = False
        self.released = False
        self.packet_id = 0
        self.sequence = 0
        self.position = 0
        self.sent = 0.0


class Lane:
    """What waits of one flow at one level; or a replay, which fetches what it sends."""

    def __init__(self, flow: Flow, level: int) -> None:
        self.flow = flow
        self.level = level
        self.items: deque[Delivery] = deque()
        self.listed = False
        self.replay: Any = None
        self.resting = False


class Flow:
    def __init__(self, session: Session, filter: str, qos: int) -> None:  # noqa: A002
        self.session = session
        self.filter = filter
        self.topic_filter = b""
        self.group: str | None = None
        self.qos = qos
        self.no_local = False
        self.retain_as_published = False
        self.retain_handling = 0
        self.identifier = 0
        self.identifier_property = b""

        # Whose it is, and what the policy decides.
        self.membership: Any = None
        self.claims: list[tuple[str, str]] = []
        self.priority = 7
        self.drop_rate = 0.0
        self.threshold = 0
        self.salt = 0
        self.capacity = 0
        self.lifetime = 0.0
        self.threshold_s: float | None = None
        """The mean response that a client which comes and goes is to have."""
        self.join = 1.0
        self.learned = 1.0
        """The join probability that the broker would choose (`core/joining.py`)."""
        self.decided = False
        """The policy chose one."""

        # What waits, by rank; made when something first has to.
        self.lanes: list[Lane | None] = [None, None, None]
        self.backlog = 0
        self.replay: Any = None
        """Retained messages that are still to be sent (`core/replay.py`)."""

        # What happened.
        self.offered = 0
        self.delivered = 0
        self.sent_bytes = 0
        self.drops = [0] * len(Drop)
        self.waited: Histogram | None = None
        self.acknowledged: Histogram | None = None
        self.reported: Any = None

        self.fast = False

        # What the tape calls it, in which block.
        self.block = 0
        self.number = 0

    def refresh(self) -> None:
        """Decide anew whether packets may pass unseen; after any change to flow or connection."""
        outlet = self.session.outlet
        link = self.session.link
        self.block = 0
        self.fast = (
            self.threshold == 0
            and self.replay is None
            and self.lifetime == 0.0
            and self.capacity == 0
            and not self.no_local
            and self.identifier == 0
            and (link is None or link.rate == 0.0)
            and (outlet is None or (outlet.alias_limit == 0 and outlet.packet_limit == UNLIMITED))
        )

    def forward(self, topic: bytes, encoded: bytes, count: int, now: float) -> None:
        """Pass on a run of QoS 0 packets as they are. Only if `fast`."""
        self.offered += count
        outlet = self.session.outlet
        if outlet is None:
            if self.session.pool.tape is None:
                self.drops[DISCONNECTED] += count
            else:
                self.miss(run(4, topic, encoded, count, now), 0, DISCONNECTED, now)
        elif outlet.clear and self.backlog == 0:
            self.delivered += count
            self.sent_bytes += len(encoded)
            outlet.put(encoded)
            outlet.mark(self, count, now)
            if self.session.pool.tape is not None:
                self.note(topic, count, len(encoded), now, 2, 0, False)  # 2: NORMAL
        else:
            self.enqueue(run(outlet.version, topic, encoded, count, now), 0, False, now)

    def deliver(self, message: Message, retain: bool, now: float) -> None:
        """Give the flow a message; `retain` if it is sent because it was retained."""
        session = self.session
        self.offered += 1
        if (
            self.threshold
            and message.rank == NORMAL
            and not retain  # the state of its topic, not one message of a stream
            and not (message.retain and self.replay is not None)  # the replay leaves it to us
            and thinned(message.number, self.salt) < self.threshold
        ):
            self.miss(message, min(message.qos, self.qos), RATE, now)
            return
        if self.replay is not None and not retain:
            self.replay.precede(message, now)
        qos = self.granted(message)
        outlet = session.outlet
        if outlet is None:
            if qos == 0 or (
                # ON/OFF §III: while the client is away a message joins with probability ζ.
                self.join < 1.0
                and message.rank == NORMAL
                and not retain
                and not (message.retain and self.replay is not None)
                and thinned(message.number, ~self.salt) >= self.join * TWO_TO_64
            ):
                self.miss(message, qos, DISCONNECTED, now)
            else:
                self.enqueue(message, qos, retain, now)
            return
        if (
            not outlet.clear
            or (self.backlog and self.follows(message.rank))
            # Of all that arrives for a paced link in one turn the most important goes first, even
            # if the link is idle and another subscriber stands first on the route.
            or (session.link is not None and session.link.rate != 0.0)
        ):
            self.enqueue(message, qos, retain, now)
        elif qos == 0:
            self.emit(message, 0, 0, retain, False, outlet, now)
        elif (
            len(session.inflight) >= session.window
            or session.owed
            or not session.takes(message.size)
        ):
            self.enqueue(message, qos, retain, now)
        elif (
            qos == 2
            and session.journal is not None
            and session.journal.position >= session.pool.durable
        ):
            # Sent before the commit, a crash could make it arrive twice.
            self.enqueue(message, 2, retain, now)
            session.pool.uncommitted.append(session)
        else:
            self.launch(message, qos, retain, outlet, now)

    def offer(self, message: Message, now: float) -> int:
        """Send a retained message at once, or say why not.

        It waits where it is retained, not in a queue: for its sake nothing is dropped, nor is it.
        """
        session = self.session
        outlet = session.outlet
        if outlet is None:
            return OFFLINE
        qos = self.granted(message)
        if qos == 0:
            self.offered += 1
            self.emit(message, 0, 0, True, False, outlet, now)
        elif len(session.inflight) >= session.window or not session.takes(message.size):
            return WINDOW
        elif (
            qos == 2
            and session.journal is not None
            and session.journal.position >= session.pool.durable
        ):
            if not self.has_room(message) and (session.inflight or session.queued_messages):
                return COMMIT  # until something that waits or is in flight is gone
            self.offered += 1
            self.enqueue(message, 2, True, now)
            session.pool.uncommitted.append(session)
        else:
            self.offered += 1
            self.launch(message, qos, True, outlet, now)
        return 0

    def granted(self, message: Message) -> int:
        """The QoS at which the subscriber gets a message."""
        if self.session.pool.raise_grant and message.rank == CRITICAL:
            return message.qos
        return message.qos if message.qos < self.qos else self.qos

    def has_room(self, message: Message) -> bool:
        """Could a message wait without anything else having to go?"""
        session = self.session
        return not (
            (self.capacity and self.backlog + message.count > self.capacity)
            or session.queued_messages + message.count > session.message_limit
            or session.queued_size + message.size > session.size_limit
            or session.pool.full(message.size)
        )

    def launch(self, message: Message, qos: int, retain: bool, outlet: Outlet, now: float) -> None:
        """Send a message of QoS 1 or 2 for which the window has room."""
        session = self.session
        delivery = Delivery(self, message, qos)
        delivery.retain = retain
        delivery.packet_id = session.take_packet_id()
        session.inflight[delivery.packet_id] = delivery
        if session.journal is not None:
            self.keep(delivery)
        delivery.sent = now
        if self.emit(message, qos, delivery.packet_id, retain, False, outlet, now):
            session.sent(message.size)
        else:
            session.inflight.pop(delivery.packet_id, None)
            self.forget(delivery)

    def emit(
        self,
        message: Message,
        qos: int,
        packet_id: int,
        retain: bool,
        dup: bool,
        outlet: Outlet,
        now: float,
    ) -> bool:
        """Encode for this subscriber and hand over to the outlet; False if it is too large."""
        if retain or (self.retain_as_published and message.retain):
            first = 0x31 | (qos << 1)
        else:
            first = 0x30 | (qos << 1)
        if dup:
            first |= 8
        if (
            outlet.version == 5
            and not message.sealed
            and (self.identifier or message.expires != 0.0 or outlet.alias_limit)
        ):
            packet = self.dressed(message, first, packet_id, outlet, now)
        elif first == 0x30:
            packet = message.plain(outlet.version)
        else:
            packet = message.packet(outlet.version, first, packet_id, b"", False)
        if len(packet) > outlet.packet_limit:
            # Dropped as if it had been sent [MQTT-3.1.2-25].
            if not dup:
                self.miss(message, qos, SIZE, now)
            return False
        self.sent_bytes += len(packet)
        outlet.put(packet)
        if not dup:
            self.delivered += message.count
            if not retain:  # how long it was retained says nothing of how long it waited
                outlet.mark(self, message.count, message.arrived)
            if self.session.pool.tape is not None:
                self.note(
                    message.topic,
                    message.count,
                    len(packet),
                    now if retain else message.arrived,
                    message.rank,
                    qos,
                    retain,
                )
        link = self.session.link
        if link is not None and link.rate != 0.0:
            link.charge(self.level(message.rank), len(packet))
        return True

    def dressed(
        self, message: Message, first: int, packet_id: int, outlet: Outlet, now: float
    ) -> bytes:
        """A packet with what MQTT 5 adds for this subscriber alone."""
        extra = self.identifier_property
        if message.expires != 0.0:
            # What is left of the message's life [MQTT-3.3.2-6].
            left = int(message.expires - now + 0.5)
            left = left if left > 0 else 1
            extra += b"\x02" + uint16(left >> 16) + uint16(left & 0xFFFF)
        if outlet.alias_limit:
            alias = outlet.alias(message.topic)
            if alias > 0:
                extra += b"\x23" + uint16(alias)
                return message.packet(5, first, packet_id, extra, True)
            if alias < 0:
                extra += b"\x23" + uint16(-alias)
                packet = message.packet(5, first, packet_id, extra, False)
                if len(packet) > outlet.packet_limit:
                    # It is not going to be sent, so the client does not learn the alias from it.
                    del outlet.aliases[message.topic]
                return packet
        return message.packet(5, first, packet_id, extra, False)

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
        if message.size > pool.limit:
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
        while pool.full(message.size):
            if not evict(pool.least(), level, session.drop_oldest, MEMORY, now):
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
        session.pool.size += message.size
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
        session.pool.size -= message.size
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
            own = session.levels[lane.level] = {}
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
        del own[lane]
        own[lane] = None
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

    def refuse(self, message: Message, now: float) -> None:
        """The client may not receive this, though its filter matches."""
        self.offered += message.count
        self.miss(message, min(message.qos, self.qos), UNAUTHORISED, now)

    def miss(self, message: Message, qos: int, reason: int, now: float) -> None:
        """A message does not reach the subscriber."""
        self.drops[reason] += message.count
        tape = self.session.pool.tape
        if tape is not None and tape.passes() and tape.ready():
            tape.put(
                numbered(self, tape),
                message.topic,
                message.count,
                message.size,
                now,
                message.arrived,
                0.0,
                facets(DROPPED, reason, message.rank, qos, False),
            )

    def note(
        self,
        topic: bytes,
        count: int,
        size: int,
        arrived: float,
        rank: int,
        qos: int,
        retain: bool,
    ) -> None:
        """Remember for the tape what the outlet was given, until the kernel has it."""
        session = self.session
        outlet = session.outlet
        if outlet is None or session.pool.tape is None or not session.pool.tape.passes():
            return
        # Not Note(…): the arguments of a call would cost more than all the rest.
        note = Note.__new__(Note)
        note.flow = self
        note.topic = topic
        note.count = count
        note.size = size
        note.arrived = arrived
        note.facets = facets(0, 0, rank, qos, retain)  # SENT, unless it is cut
        if outlet.notes is None:
            outlet.notes = []
        outlet.notes.append(note)

    def record(self, count: int, seconds: float) -> None:
        """`count` messages were handed to the kernel `seconds` after they arrived."""
        if self.waited is None:
            self.waited = Histogram()
        self.waited.add(seconds, count)

    def record_acknowledged(self, delivery: Delivery, now: float) -> None:
        """A message was acknowledged."""
        if self.acknowledged is None:
            self.acknowledged = Histogram()
        self.acknowledged.add(now - delivery.sent, 1)
        tape = self.session.pool.tape
        if tape is not None and tape.passes() and tape.ready():
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


def settle(outlet: Outlet, now: float) -> None:
    """The kernel has all that the outlet gathered: the waiting of its messages ends here."""
    outlet.size = 0
    outlet.clear = True
    if outlet.marks:
        for mark in outlet.marks:
            flow = mark[0]
            flow.record(mark[1], now - mark[2])
        outlet.marks.clear()
    if outlet.marked is not None:
        flow = outlet.marked
        flow.record(outlet.marked_count, now - outlet.marked_arrival)
        outlet.marked = None
    if outlet.notes is not None:
        write_notes(outlet, SENT, now)


def write_notes(outlet: Outlet, outcome: int, now: float) -> None:
    """What the outlet was given has left, or never will: `outcome` is SENT or CUT."""
    notes = outlet.notes
    outlet.notes = None
    assert notes is not None
    for note in notes:
        flow = note.flow
        tape = flow.session.pool.tape
        if tape is not None and tape.ready():
            tape.put(
                numbered(flow, tape),
                note.topic,
                note.count,
                note.size,
                now,
                note.arrived,
                0.0,
                note.facets | outcome,
            )


def numbered(flow: Flow, tape: Tape) -> int:
    """The number of a flow in the tape's present block."""
    if flow.block != tape.number:
        flow.number = tape.introduce(flow)
        flow.block = tape.number
    return flow.number


def cut(outlet: Outlet, now: float) -> None:
    """The connection is over: what the kernel did not take, the client never gets."""
    if outlet.notes is not None:
        write_notes(outlet, CUT, now)


def thinned(number: int, salt: int) -> int:
    """A 64-bit hash of message and flow (splitmix64's finaliser), even over its whole range.

    PlanEMQX §IV-D hashes the message id against the drop rate. The salt makes flows lose different
    messages; 64 bits make any fraction exact in the long run.
    """
    x = (number ^ salt) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


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


def identifier_property(identifier: int) -> bytes:
    """The encoded subscription identifier property; empty for 0."""
    return b"\x0b" + varint(identifier) if identifier else b""
