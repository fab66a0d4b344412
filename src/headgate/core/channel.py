"""A channel: one network connection, as the core sees it. Bytes in, bytes out, no I/O.

`receive` takes everything of one read in one pass. PUBLISH and the acknowledgements are read where
they lie; every other packet is decoded by `headgate.wire` and handled by the broker.

    receive = take ──▶ preview: what is urgent is routed at once
               └─────▶ process ──▶ consume: all the rest, in its order

What a PUBLISH leads to is in `core/publishing.py`, how it is answered in `core/acknowledging.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headgate.core.access import Peer
from headgate.core.acknowledging import packet_identifier
from headgate.core.message import CRITICAL, NORMAL, URGENT
from headgate.core.publication import remaining_length
from headgate.core.publishing import EARLY, IN_TURN, NOT_ROUTED, UNREADY, Publisher
from headgate.core.scheduler import wake
from headgate.core.states import CLOSING, OPEN, OPENING
from headgate.errors import MqttError, ProtocolViolation

if TYPE_CHECKING:
    from headgate.core.broker import Broker

ENDLESS = 1 << 62

CLASS_NAME = b"\x26\x00\x05class"
"""The user property by which an MQTT 5 message says that it is urgent or critical."""

RUN = 16 * 1024
"""Bytes that travel as one piece at most, so that an urgent message has little to wait for."""

GREETING = 512 * 1024
"""Bytes of a packet before the session is open: nobody can fill our memory as a stranger."""

SLOW = 32
"""Packets off the hot path (SUBSCRIBE, UNSUBSCRIBE…) that are handled in one go: others wait."""

EFFORT = 5_000
"""The same for levels of filters that are looked at and copies that are made: milliseconds."""

LARGE = 64 * 1024
"""Bytes from which on what has come of an unfinished packet counts as memory."""


class Channel(Publisher):
    """One connection's reading: what came, what of it is handled, what is urgent in it."""

    def __init__(self, broker: Broker, peer: Peer, opened: float) -> None:
        Publisher.__init__(self, broker, opened)
        # For life.
        self.peer = peer
        self.heard = opened
        self.connection: Any = None
        self.alarm: Any = None

        # Reading.
        self.chunks: list[bytes] = []
        self.gathered = 0
        self.needed = 0
        self.packet_limit = broker.limits.packet_size
        self.inbox = b""
        self.routed: dict[int, int] = {}
        self.unfinished = False
        """More was taken than may be handled in one go: `take` nothing, and `process` again."""
        self.task: Iterator[None] | None = None
        """What is left to do of a packet that takes long; nothing after it is handled before."""
        self.weight = 0
        """Bytes of an unfinished packet that count as memory."""
        self.overweight = False

        # Since CONNECT.
        self.keep_alive = 0.0
        self.tells_problems = True
        self.login: object = None
        self.awaits_auth = False
        self.said_goodbye = False

    def receive(self, data: bytes, now: float) -> None:
        """Take the bytes of one read and handle them."""
        if self.take(data, now):
            self.process(now)
        while self.unfinished and self.take(b"", now):
            self.process(now)

    def take(self, data: bytes, now: float) -> bool:
        """Take the bytes of one read, and route what is urgent in them before anything else.

        The server takes from every connection that has something before it lets any of them
        `process`: so an urgent message overtakes all normal ones that arrived earlier (p-MQTT §2).
        False if there is nothing to process yet.
        """
        self.heard = now
        if self.inbox:
            data = self.inbox + data  # what was taken before is not processed yet
        elif self.chunks:
            self.chunks.append(data)
            self.gathered += len(data)
            if self.gathered < self.needed:
                self.overweight = self.weigh()
                if not self.overweight:
                    return False
            data = b"".join(self.chunks)
            self.chunks.clear()
        self.inbox = data
        if self.state == OPEN and self.task is None:
            try:
                self.preview(data, now)
            except MqttError:
                return True  # it is answered in its turn
        return True

    def process(self, now: float) -> None:
        """Handle what was taken. Whatever the peer did wrong is answered, never raised."""
        self.unfinished = False
        try:
            if self.task is not None:
                if self.state == OPEN and self.goes_on(self.task):
                    self.unfinished = True
                    return
                self.task = None
            data = self.inbox
            if not data:
                return
            self.inbox = b""
            if self.overweight:
                raise ProtocolViolation("large packets fill the broker's memory", 0x97)
            rest = self.consume(data, now)
        except MqttError as error:
            self.weigh()
            self.broker.fail(self, error, now)
            return
        if self.routed:
            early = self.routed
            self.routed = {}
            if self.waits or self.unfinished:
                for start, reason in early.items():
                    if start >= rest:
                        self.routed[start - rest] = reason
        if rest < len(data) and self.state < CLOSING:
            if rest:
                data = data[rest:]
            self.chunks.append(data)
            self.gathered = len(data)
        if self.weight or self.gathered > LARGE:
            self.weigh()
        if self.rate and self.allowance < 0.0:
            self.resume_at = now - self.allowance / self.rate

    def forget(self) -> None:
        """The connection is over: what came of a packet that is not complete is nothing."""
        self.chunks.clear()
        self.task = None
        self.weigh()

    def undertake(self, task: Iterator[None]) -> None:
        """Do the first part of what a packet asks for; the rest in turns of its own."""
        if self.goes_on(task):
            self.task = task

    def goes_on(self, task: Iterator[None]) -> bool:
        """Do a part of it; is there more?"""
        for _ in task:
            return True
        return False

    def weigh(self) -> bool:
        """Count what has come of an unfinished packet; True if there is no room for more of it."""
        size = self.gathered if self.chunks and self.gathered > LARGE else 0
        more = size - self.weight
        self.weight = size
        self.pool.arriving += more
        return more > 0 and self.pool.arriving > self.pool.limit // 2

    def go_on(self, now: float) -> None:
        """What this connection waited for is there, a verdict or a command: read on."""
        self.waits = False
        self.needed = 0
        if self.connection is None:
            self.receive(b"", now)
        elif self.take(b"", now):
            self.connection.process(now)  # it also sees to what has to wait

    def preview(self, data: bytes, now: float) -> None:
        """Route the urgent and critical messages among whole packets; the rest comes later."""
        size = len(data)
        pos = 0
        version = self.version
        renamed = False
        while pos + 2 < size:
            first = data[pos]
            body = pos + 2
            length = data[pos + 1]
            if length > 127:
                if 0 < data[body] < 128:
                    length = (length & 127) | (data[body] << 7)
                    body += 1
                else:
                    length, body = remaining_length(data, pos + 1, size, self.version)
                    if body == 0:
                        return
            end = body + length
            if end > size:
                return
            kind = first >> 4
            if kind == 3 and length > 2:
                named = (data[body] << 8) | data[body + 1]
                middle = body + 2 + named + (2 if first & 6 else 0)
                with_properties = version == 5 and middle < end and data[middle] != 0
                if named and data[body + 2] == 36 and data.startswith(b"$urgent/", body + 2):
                    self.route_early(first, data, pos, body, end, URGENT, now)
                elif named and data[body + 2] == 36 and data.startswith(b"$critical/", body + 2):
                    self.route_early(first, data, pos, body, end, CRITICAL, now)
                elif (
                    with_properties
                    # What an alias means may stand in a packet that is not processed yet.
                    and (named or not renamed)
                    and data.find(CLASS_NAME, middle, end) > 0
                ):
                    self.route_early(first, data, pos, body, end, NORMAL, now)
                if with_properties and named:
                    renamed = True
            elif version < 5 and kind in (0, 15):
                rank = URGENT if kind == 0 else CRITICAL
                self.route_early(first, data, pos, body, end, rank, now)
            elif kind not in (3, 4, 5, 6, 7, 12):
                return  # a subscription, an end: nothing overtakes what changes its meaning
            pos = end

    def route_early(
        self, first: int, data: bytes, start: int, body: int, end: int, rank: int, now: float
    ) -> None:
        """Route one message out of turn; its acknowledgement comes in turn [MQTT-4.6.0-2]."""
        if start in self.routed:
            return
        reason = self.publish(0x30 | (first & 15), data, body, end, rank, EARLY, now)
        if reason != NOT_ROUTED:
            self.routed[start] = reason
            self.pool.hurry = True

    def consume(self, data: bytes, now: float) -> int:
        """Handle every whole packet; returns where the first incomplete one begins."""
        size = len(data)
        pos = 0
        version = self.version
        # The run of packets under way: contiguous, one topic, QoS 0, nothing to look at.
        route: Any = None
        prefix = b""
        prefix_start = 0
        prefix_end = 0
        run_start = 0
        run_end = 0
        run_count = 0
        acknowledged = False
        slow = 0
        self.effort = 0
        self.needed = 0

        while pos < size and self.state == OPEN:
            if self.effort >= EFFORT:
                self.unfinished = True
                break
            first = data[pos]
            body = pos + 2
            if body > size:
                break
            length = data[pos + 1]
            if length > 127:
                length, body = remaining_length(data, pos + 1, size, self.version)
                if body == 0:
                    break
            end = body + length
            if end - pos > self.packet_limit:  # [MQTT-3.2.2-15]
                raise ProtocolViolation("the packet is larger than the broker takes", 0x95)
            if end > size:
                self.needed = end - pos
                break

            if run_count and first == 0x30 and pos == run_end:
                if not prefix:
                    prefix = data[prefix_start:prefix_end]
                if body + len(prefix) <= end and data.startswith(prefix, body):
                    if end - run_start > RUN:
                        self.forward(route, data, run_start, run_end, run_count, now)
                        run_start = pos
                        run_count = 0
                    run_end = end
                    run_count += 1
                    pos = end
                    continue

            kind = first >> 4
            if kind == 3:
                if run_count:
                    self.forward(route, data, run_start, run_end, run_count, now)
                    run_count = 0
                if (
                    first == 0x30
                    and self.rate == 0.0
                    and length > 2
                    and data[body + 2] != 36
                    and not self.pool.watched
                ):
                    middle = body + 2 + ((data[body] << 8) | data[body + 1])
                    if middle <= end and (version < 5 or (middle < end and data[middle] == 0)):
                        topic = data[body + 2 : middle]
                        route = self.topics.get(topic)
                        if route is None or route.stale:
                            route = self.route_for(topic) if topic else None
                        if route is not None and route.plain:
                            # Cut out if another packet follows: at rest none does. A prefix
                            # includes MQTT 5's empty properties.
                            prefix = b""
                            prefix_start = body
                            prefix_end = middle + 1 if version == 5 else middle
                            run_start = pos
                            run_end = end
                            run_count = 1
                            pos = end
                            continue
                timing = self.routed.get(pos, IN_TURN) if self.routed else IN_TURN
                if self.publish(first, data, body, end, NORMAL, timing, now) == UNREADY:
                    break
            elif kind in (0, 15) and version < 5:
                # p-MQTT §2: packet types that MQTT 3.1.1 leaves free, with the fields of PUBLISH.
                if run_count:
                    self.forward(route, data, run_start, run_end, run_count, now)
                    run_count = 0
                rank = URGENT if kind == 0 else CRITICAL
                timing = self.routed.get(pos, IN_TURN) if self.routed else IN_TURN
                emergency = 0x30 | (first & 15)
                if self.publish(emergency, data, body, end, rank, timing, now) == UNREADY:
                    break
            elif kind == 4 and length == 2 and first == 0x40:
                self.puback(packet_identifier(data, body), now)
                acknowledged = True
            elif kind == 5 and length == 2 and first == 0x50:
                self.pubrec(packet_identifier(data, body), 0, now)
            elif kind == 6 and length == 2 and first == 0x62:
                self.pubrel(packet_identifier(data, body), now)
            elif kind == 7 and length == 2 and first == 0x70:
                self.pubcomp(packet_identifier(data, body), now)
                acknowledged = True
            elif first == 0xC0 and length == 0:
                if run_count:
                    # The answer says that everything before the ping was dealt with.
                    self.forward(route, data, run_start, run_end, run_count, now)
                    run_count = 0
                self.outlet.put(b"\xd0\x00")
            else:
                if run_count:
                    self.forward(route, data, run_start, run_end, run_count, now)
                    run_count = 0
                self.broker.handle(self, first, data[body:end], now)
                acknowledged = True
                version = self.version
                slow += 1
            pos = end
            if self.task is not None or (slow >= SLOW and pos < size):
                self.unfinished = True
                break

        if run_count:
            self.forward(route, data, run_start, run_end, run_count, now)
        if self.state != OPEN:
            return self.consume_unopened(data, pos, now)
        if self.waits:
            self.needed = ENDLESS
        if acknowledged and self.session is not None:
            self.broker.wait_for_pace(self.session.link, wake(self.session, now))
        return pos

    def consume_unopened(self, data: bytes, pos: int, now: float) -> int:
        """Before CONNECT was answered: one packet at a time, while the state allows it."""
        size = len(data)
        while pos + 2 <= size and self.state == OPENING:
            length = data[pos + 1]
            body = pos + 2
            if length > 127:
                length, body = remaining_length(data, pos + 1, size, self.version)
                if body == 0:
                    break
            end = body + length
            if end - pos > self.packet_limit or end - pos > GREETING:  # [MQTT-3.2.2-15]
                raise ProtocolViolation("the packet is larger than the broker takes", 0x95)
            if end > size:
                self.needed = end - pos
                break
            self.broker.handle(self, data[pos], data[body:end], now)
            pos = end
        if self.state == OPEN and pos < size:
            return pos + self.consume(data[pos:], now)
        return pos
