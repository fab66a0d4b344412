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

from typing import Any

from headgate.core.accounting import numbered
from headgate.core.link import MESSAGE
from headgate.core.message import CRITICAL, NORMAL, Message, run, uint16, varint
from headgate.core.outlet import Outlet
from headgate.core.queueing import Delivery, Queue, make_room
from headgate.core.reasons import (
    COMMIT,
    DISCONNECTED,
    MEMORY,
    OFFLINE,
    RATE,
    SIZE,
    UNAUTHORISED,
    WINDOW,
)
from headgate.core.session import Session
from headgate.core.tape import facets

MASK = 0xFFFFFFFFFFFFFFFF
STIR, MIX = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""The factors of splitmix64's finaliser; literals this large would stay Python's own."""
TWO_TO_64 = float(1 << 64)
UNLIMITED = 0x0FFFFFFF


class Flow(Queue):
    """One subscription of one client; as a queue it lets wait what cannot go at once."""

    def __init__(self, session: Session, filter: str, qos: int) -> None:  # noqa: A002
        Queue.__init__(self, session, filter)
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
        self.drop_rate = 0.0
        self.threshold = 0
        self.salt = 0
        self.threshold_s: float | None = None
        """The mean response that a client which comes and goes is to have."""
        self.join = 1.0
        self.learned = 1.0
        """The join probability that the broker would choose (`core/joining.py`)."""
        self.decided = False
        """The policy chose one."""

        self.fast = False

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
            tape = self.session.pool.tape
            if tape is not None and tape.keeps():
                number = numbered(self, tape)
                looks = 0x20000  # facets(SENT, 0, NORMAL, 0, False)
                tape.note(outlet, number, topic, count, len(encoded), now, looks)
        else:
            self.enqueue(run(outlet.version, topic, encoded, count, now), 0, False, now)

    def deliver(self, message: Message, retain: bool, now: float) -> None:
        """Give the flow a message; `retain` if it is sent because it was retained."""
        session = self.session
        self.offered += 1
        if (
            self.threshold
            and message.rank == NORMAL
            and not message.own  # every command is answered
            and not retain  # the state of its topic, not one message of a stream
            and not (message.retain and self.replay is not None)  # the replay leaves it to us
            and drawn(self.offered, self.salt) < self.threshold
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
        elif (
            session.unacknowledged
            and session.pool.full(message.size + MESSAGE)
            and not make_room(
                session.pool,
                message.size + MESSAGE,
                self.level(message.rank),
                session.drop_oldest,
                now,
            )
        ):
            # What is not acknowledged stays in our memory, and there is no room for it.
            self.lose(message, qos, MEMORY, now)
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
        elif (
            len(session.inflight) >= session.window
            or not session.takes(message.size)
            or (session.inflight and session.pool.full(message.size + MESSAGE))
        ):
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
            tape = self.session.pool.tape
            if tape is not None and tape.keeps():
                tape.note(
                    outlet,
                    numbered(self, tape),
                    message.topic,
                    message.count,
                    len(packet),
                    now if retain else message.arrived,
                    facets(0, 0, message.rank, qos, retain),  # SENT, unless it is cut
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

    def refuse(self, message: Message, now: float) -> None:
        """The client may not receive this, though its filter matches."""
        self.offered += message.count
        self.miss(message, min(message.qos, self.qos), UNAUTHORISED, now)


def thinned(number: int, salt: int) -> int:
    """A 64-bit hash of message and flow (splitmix64's finaliser), even over its whole range.

    The salt makes flows lose different messages; 64 bits make any fraction exact in the long run.
    """
    x = (number ^ salt) & MASK
    x = ((x ^ (x >> 30)) * STIR) & MASK
    x = ((x ^ (x >> 27)) * MIX) & MASK
    return x ^ (x >> 31)


def drawn(number: int, salt: int) -> int:
    """Such a hash of which 256 messages in a row have every first byte once.

    PlanEMQX §IV-D hashes the message's id against the drop rate. By chance alone the rate would
    come out only after tens of thousands of messages; so it does after some hundred
    (docs/decisions/0057-drops-without-replacement.md). The first byte is a permutation, other for
    each flow and turn: a Feistel network of two nibbles, whose functions are tables of 16 nibbles.
    """
    table = thinned(number >> 8, ~salt & MASK)
    left = (number >> 4) & 15
    right = number & 15
    for _ in range(6):
        left, right = right, left ^ ((table >> (4 * right)) & 15)
        table = thinned(table, salt)
    return (left << 60) | (right << 56) | (thinned(number, salt) >> 8)


def identifier_property(identifier: int) -> bytes:
    """The encoded subscription identifier property; empty for 0."""
    return b"\x0b" + varint(identifier) if identifier else b""
