"""A channel: one network connection, as the core sees it. Bytes in, bytes out, no I/O.

`receive` takes everything of one read in one pass. PUBLISH and the acknowledgements are read where
they lie; every other packet is decoded by `headgate.wire` and handled by the broker.

    OPENING ──CONNECT──▶ CHECKING ──verdict──▶ OPEN ──▶ CLOSING ──flushed──▶ CLOSED
                            ▲  │ AUTH
                            └──┘
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.core.access import Peer
from headgate.core.flows import Delivery
from headgate.core.message import CRITICAL, NORMAL, URGENT, Message, uint16
from headgate.core.outlet import Outlet
from headgate.core.publication import Properties, check_text
from headgate.core.router import Route
from headgate.core.scheduler import wake
from headgate.core.session import Session
from headgate.errors import MalformedPacket, MqttError, ProtocolViolation

if TYPE_CHECKING:
    from headgate.core.broker import Broker

OPENING = 0
CHECKING = 1
OPEN = 2
CLOSING = 3
CLOSED = 4

# When a message is routed: as it comes, or before its turn. In its turn, what was routed early has
# the reason code instead with which that was answered.
IN_TURN = -1
EARLY = -2

NOT_ROUTED = -1

UNREADY = -2
"""A command that is being prepared: its connection goes on with it when it can be obeyed."""

COMMANDS = b"$CONTROL/"

ENDLESS = 1 << 62

CLASS_NAME = b"\x26\x00\x05class"
"""The user property by which an MQTT 5 message says that it is urgent or critical."""

RUN = 16 * 1024
"""Bytes that travel as one piece at most, so that an urgent message has little to wait for."""

GREETING = 512 * 1024
"""Bytes of a packet before the session is open: nobody can fill our memory as a stranger."""

SLOW = 32
"""Packets off the hot path (SUBSCRIBE, UNSUBSCRIBE…) that are handled in one go: others wait."""

KNOWN_TOPICS = 4096
"""Topics whose routes a channel keeps for its publisher."""


class Channel:
    def __init__(self, broker: Broker, peer: Peer, opened: float) -> None:
        # For life.
        self.broker = broker
        self.peer = peer
        self.outlet = Outlet(broker.board, 4)
        self.pool = broker.pool
        self.counters = broker.counters
        self.state = OPENING
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
        self.waits = False
        self.crowded = False
        """What it waits for is room to capture what it publishes (`core/capturing.py`)."""
        self.unfinished = False
        """More was taken than may be handled in one go: `take` nothing, and `process` again."""
        """The first packet is a command that is being prepared: nothing is read until it is."""

        # Since CONNECT.
        self.version = 4
        self.session: Session | None = None
        self.keep_alive = 0.0
        self.tells_problems = True
        self.receive_maximum = broker.limits.receive_maximum
        self.topics: dict[bytes, Route] = {}
        self.aliases: dict[int, bytes] = {}
        self.alias_limit = 0
        self.login: object = None
        self.awaits_auth = False
        self.said_goodbye = False

        # Acknowledgements that wait for a commit, in order, and how many messages of this
        # connection have not had their last one (§4.9).
        self.gate: list[tuple[int, bytes]] = []
        self.unanswered = 0

        # Publish rate; 0 is no limit.
        self.rate = broker.limits.publish_rate
        self.allowance = self.rate
        self.charged = opened
        self.resume_at = 0.0

        # Urgent and critical messages, per second.
        self.claim_allowance = 0.0
        self.claimed = 0.0

    # Reading

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
                return False
            data = b"".join(self.chunks)
            self.chunks.clear()
        self.inbox = data
        if self.state == OPEN:
            try:
                self.preview(data, now)
            except MqttError:
                return True  # it is answered in its turn
        return True

    def process(self, now: float) -> None:
        """Handle what was taken. Whatever the peer did wrong is answered, never raised."""
        self.unfinished = False
        data = self.inbox
        if not data:
            return
        self.inbox = b""
        try:
            rest = self.consume(data, now)
        except MqttError as error:
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
        if self.rate and self.allowance < 0.0:
            self.resume_at = now - self.allowance / self.rate

    def go_on(self, now: float) -> None:
        """The command for which this connection waited can be obeyed."""
        self.waits = False
        self.needed = 0
        if self.take(b"", now):
            if self.connection is None:
                self.process(now)
            else:
                self.connection.process(now)

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
                    length, body = self.long_length(data, pos + 1, size)
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
        run_start = 0
        run_end = 0
        run_count = 0
        acknowledged = False
        slow = 0
        self.needed = 0

        while pos < size and self.state == OPEN:
            first = data[pos]
            body = pos + 2
            if body > size:
                break
            length = data[pos + 1]
            if length > 127:
                length, body = self.long_length(data, pos + 1, size)
                if body == 0:
                    break
            end = body + length
            if end - pos > self.packet_limit:  # [MQTT-3.2.2-15]
                raise ProtocolViolation("the packet is larger than the broker takes", 0x95)
            if end > size:
                self.needed = end - pos
                break

            if (
                first == 0x30
                and run_count
                and pos == run_end
                and body + len(prefix) <= end
                and data.startswith(prefix, body)
            ):
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
                            # A prefix includes MQTT 5's empty properties.
                            prefix = data[body : middle + 1] if version == 5 else data[body:middle]
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
            if slow >= SLOW and pos < size:
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
                length, body = self.long_length(data, pos + 1, size)
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

    def long_length(self, data: bytes, pos: int, size: int) -> tuple[int, int]:
        """A remaining length of several bytes, and where the body begins; 0 if it is incomplete."""
        length = 0
        shift = 0
        while pos < size:
            byte = data[pos]
            pos += 1
            length |= (byte & 127) << shift
            if byte < 128:
                if byte == 0 and self.version == 5:  # [MQTT-1.5.5-1]
                    raise MalformedPacket("the remaining length is longer than its value needs")
                return length, pos
            shift += 7
            if shift > 21:  # at most four bytes (§1.5.5)
                raise MalformedPacket("the remaining length is longer than four bytes")
        return 0, 0

    def route_for(self, topic: bytes) -> Route:
        """The route of a topic this client publishes to, after looking whether it may."""
        route = self.broker.admit(self, topic)
        if len(self.topics) >= KNOWN_TOPICS:
            self.topics.clear()
        self.topics[topic] = route
        return route

    # Publishing

    def forward(
        self, route: Route, data: bytes, start: int, end: int, count: int, now: float
    ) -> None:
        """Pass a run of packets to every flow of its route."""
        self.counters.messages_received += count
        self.counters.numbered += count
        if not (route.flows or route.captured):
            self.counters.messages_unmatched += count
            return
        own = data[start:end] if start or end < len(data) else data
        other: bytes | None = None
        version = self.version
        expanded: list[Message] | None = None
        if route.captured:
            expanded = self.expand(route, own, count, now)
            for message in expanded:
                self.broker.captures.take(message, route.captured, self.session)
            if not route.flows:
                self.counters.messages_unmatched += count
                return
        for flow in route.flows:
            if flow.fast:
                outlet = flow.session.outlet
                if outlet is None or (outlet.version == 5) == (version == 5):
                    flow.forward(route.topic, own, count, now)
                    continue
                if other is None:
                    if expanded is None:
                        expanded = self.expand(route, own, count, now)
                    other = b"".join([message.plain(outlet.version) for message in expanded])
                flow.forward(route.topic, other, count, now)
            else:
                if expanded is None:
                    expanded = self.expand(route, own, count, now)
                if flow.no_local and flow.session is self.session:
                    continue
                for message in expanded:
                    flow.deliver(message, False, now)

    def expand(self, route: Route, data: bytes, count: int, now: float) -> list[Message]:
        """The messages of a run, one by one."""
        messages = []
        pos = 0
        number = self.counters.numbered - count
        session = self.session
        assert session is not None
        skip = 2 + len(route.topic) + (1 if self.version == 5 else 0)
        size = len(data)
        while pos < size:
            length = data[pos + 1]
            body = pos + 2
            if length > 127:
                length, body = self.long_length(data, pos + 1, size)
            end = body + length
            message = Message(route.topic, data[body + skip : end], b"", 0)
            number += 1
            message.number = number
            message.arrived = now
            message.sender = session.client_id
            messages.append(message)
            pos = end
        return messages

    def publish(
        self, first: int, data: bytes, pos: int, end: int, rank: int, timing: int, now: float
    ) -> int:
        """Any PUBLISH: read it, route it, and acknowledge it.

        `EARLY` routes without acknowledging. Returns the reason code it is answered, NOT_ROUTED if
        nobody was given it now, or UNREADY if it has to be looked at again.
        """
        qos = (first >> 1) & 3
        if qos == 3:  # [MQTT-3.3.1-4]
            raise MalformedPacket("a PUBLISH with QoS 3")
        if first & 8 and qos == 0:  # [MQTT-3.3.1-2]
            raise MalformedPacket("a PUBLISH with QoS 0 marked as a duplicate")
        if pos + 2 > end:
            raise MalformedPacket("a PUBLISH without a topic")
        middle = pos + 2 + ((data[pos] << 8) | data[pos + 1])
        if middle > end:
            raise MalformedPacket("the topic runs past the packet's end")
        topic = data[pos + 2 : middle]
        pos = middle
        packet_id = 0
        if qos:
            if pos + 2 > end:
                raise MalformedPacket("a PUBLISH without a packet identifier")
            packet_id = packet_identifier(data, pos)
            pos += 2
        properties: Properties | None = None
        if self.version == 5:
            if pos >= end:
                raise MalformedPacket("a PUBLISH without properties")
            if data[pos] == 0:
                pos += 1
            else:
                properties = Properties()
                properties.scan(data, pos, end)
                pos = properties.end
                rank = min(rank, properties.rank)
                if properties.alias and timing == EARLY:
                    topic = topic or self.aliases.get(properties.alias, b"")
                    if not topic or properties.alias > self.alias_limit:
                        return NOT_ROUTED
                elif properties.alias:
                    topic = self.resolve(topic, properties.alias)
        if not topic:
            raise ProtocolViolation("a PUBLISH with neither topic nor alias", 0x82)
        if topic.startswith(b"$urgent/"):
            topic = topic[8:]
            rank = URGENT
        elif topic.startswith(b"$critical/"):
            topic = topic[10:]
            rank = CRITICAL
        if not topic:  # [MQTT-4.7.3-1]
            raise ProtocolViolation("a PUBLISH with nothing behind its topic's prefix", 0x90)
        route = self.topics.get(topic)
        if route is None or route.stale:
            route = self.route_for(topic)

        session = self.session
        assert session is not None
        if (
            route.captured == 2  # GUARANTEED
            and qos
            and timing < 0
            and not (qos == 2 and packet_id in session.received)
            and self.broker.journal.crowded
        ):
            if timing == EARLY:
                return NOT_ROUTED
            self.waits = True
            self.broker.captures.hold(self)
            return UNREADY
        if timing == EARLY:
            if rank == NORMAL or route.refused or (qos == 2 and packet_id in session.received):
                return NOT_ROUTED  # whether it is a new message shows in its turn
            if route.reserved and topic.startswith(COMMANDS):
                return NOT_ROUTED  # commands are obeyed in their order
            message = self.message(route, data[pos:end], first, properties, now)
            if not self.broker.claims.judge(self, message, rank, properties, True, now):
                return NOT_ROUTED
            if qos == 2:
                # Even if the connection ends before the message's turn, it has come.
                self.remember(session, packet_id)
            return self.hand_over(route, message, now)
        if (
            route.reserved
            and not route.refused
            and topic.startswith(COMMANDS)
            and not (qos == 2 and packet_id in session.received)
            and not self.broker.control.is_ready(self, topic, data[pos:end], now)
        ):
            self.waits = True
            return UNREADY
        self.counters.messages_received += 1
        if self.rate:
            self.charge(now)
        if qos:
            if qos == 2 and timing == IN_TURN and packet_id in session.received:
                # Seen before, not yet released: acknowledge again, do not deliver again (§4.3.3).
                # It may have come by a connection that is lost, and its commit be under way.
                self.acknowledge(b"\x50\x02" + uint16(packet_id), self.recorded(session))
                return NOT_ROUTED
            if self.unanswered >= self.receive_maximum and self.version == 5:  # [MQTT-3.3.4-7]
                raise ProtocolViolation("more messages in flight than the receive maximum", 0x93)
            self.unanswered += 1
        if route.refused:
            self.counters.messages_refused += 1
            if qos:
                self.answer(qos, packet_id, 0x87, 0)
            return NOT_ROUTED

        kept = self.pool.kept
        if timing == IN_TURN:
            message = self.message(route, data[pos:end], first, properties, now)
            if rank < NORMAL and not self.broker.claims.judge(
                self, message, rank, properties, False, now
            ):
                if qos:
                    self.answer(qos, packet_id, 0x87, 0)
                return NOT_ROUTED
            reason = self.hand_over(route, message, now)
        else:
            reason = timing
            kept = 0  # what it left in the journal lies somewhere before
        if qos:
            if qos == 2 and reason < 0x80:
                self.remember(session, packet_id)
            elif packet_id in session.received:
                # Refused after all: the exchange ends here, without PUBREL (§4.3.3).
                self.recall(session, packet_id)
            position = self.pool.kept if self.pool.kept != kept else 0
            self.answer(qos, packet_id, reason, position)
        return reason

    def remember(self, session: Session, packet_id: int) -> None:
        """A message of QoS 2 has come; until PUBREL, another with its identifier is the same."""
        session.received.add(packet_id)
        if session.journal is not None:
            session.journal.save_received(session.client_id, packet_id)
            self.pool.kept = session.journal.position

    def recall(self, session: Session, packet_id: int) -> None:
        """The exchange of a QoS 2 message is over: its identifier may mean another one now."""
        session.received.discard(packet_id)
        if session.journal is not None:
            session.journal.drop_received(session.client_id, packet_id)
            self.pool.kept = session.journal.position

    def message(
        self,
        route: Route,
        payload: bytes,
        first: int,
        properties: Properties | None,
        now: float,
    ) -> Message:
        """A message as it arrived; `first` is its packet's first byte."""
        session = self.session
        assert session is not None
        message = Message(route.topic, payload, b"", (first >> 1) & 3)
        self.counters.numbered += 1
        message.number = self.counters.numbered
        message.arrived = now
        message.sender = session.client_id
        message.retain = (first & 1) == 1
        message.flags = first & 15
        if properties is not None:
            message.properties = properties.forwarded
            message.size += len(properties.forwarded)
            if properties.expiry >= 0:
                message.expires = now + properties.expiry
        return message

    def hand_over(self, route: Route, message: Message, now: float) -> int:
        """Give a message to whoever gets it; returns the reason code it is answered."""
        if message.retain or self.pool.watched or route.reserved or route.captured:
            return self.broker.accept(self, route, message, now)
        route.dispatch(message, self.session, now)
        return 0 if route.flows or route.groups else 0x10

    def resolve(self, topic: bytes, alias: int) -> bytes:
        """Learn or use a topic alias (MQTT 5 §3.3.2.3.4)."""
        if alias > self.alias_limit:  # [MQTT-3.3.2-9]
            raise ProtocolViolation(f"topic alias {alias} is above the maximum", 0x94)
        if topic:
            self.aliases[alias] = topic
            return topic
        known = self.aliases.get(alias)
        if known is None:
            raise ProtocolViolation(f"topic alias {alias} was never given a topic", 0x82)
        return known

    def charge(self, now: float) -> None:
        """One message more against the publish rate; a debt pauses reading, nothing is lost."""
        self.allowance = (
            min(self.rate, self.allowance + (now - self.charged) * self.rate)
            if now > self.charged
            else self.allowance
        )
        self.charged = now
        self.allowance -= 1.0

    # Acknowledging what the client published

    def answer(self, qos: int, packet_id: int, reason: int, position: int) -> None:
        """PUBACK or PUBREC, after the commit at `position`."""
        first = b"\x40" if qos == 1 else b"\x50"
        if reason and self.version == 5:
            packet = first + b"\x03" + uint16(packet_id) + bytes((reason,))
        else:
            packet = first + b"\x02" + uint16(packet_id)
        self.acknowledge(packet, position)

    def acknowledge(self, packet: bytes, position: int) -> None:
        """Send an acknowledgement, never before an earlier one that waits [MQTT-4.6.0-2]."""
        if self.gate or position > self.pool.durable:
            if not self.gate:
                self.broker.gated.append(self)
            self.gate.append((position, packet))
        else:
            self.send_acknowledgement(packet)

    def send_acknowledgement(self, packet: bytes) -> None:
        """The last answer to a message gives its publisher room for another (§4.9)."""
        first = packet[0]
        if self.unanswered and (
            first in (0x40, 0x70) or (first == 0x50 and len(packet) > 4 and packet[4] >= 0x80)
        ):
            self.unanswered -= 1
        self.outlet.put(packet)

    def recorded(self, session: Session) -> int:
        """The position up to which everything that happened to a session so far is recorded."""
        return session.journal.position if session.journal is not None else 0

    def committed(self) -> None:
        """The journal got further: send the acknowledgements that waited for it."""
        gate = self.gate
        passed = 0
        for position, packet in gate:
            if position > self.pool.durable:
                break
            passed += 1
            if self.state == OPEN:
                self.send_acknowledgement(packet)
        del gate[:passed]

    def pubrel(self, packet_id: int, now: float) -> None:
        session = self.session
        assert session is not None
        if packet_id in session.received:
            self.recall(session, packet_id)
            # Not before the commit: the client may reuse the identifier after PUBCOMP, and a crash
            # must not make its next message look like a duplicate.
            self.acknowledge(b"\x70\x02" + uint16(packet_id), self.recorded(session))
        elif self.version == 5:
            self.acknowledge(b"\x70\x03" + uint16(packet_id) + b"\x92", self.recorded(session))
        else:
            self.acknowledge(b"\x70\x02" + uint16(packet_id), self.recorded(session))

    # What the client acknowledges

    def puback(self, packet_id: int, now: float) -> None:
        session = self.session
        assert session is not None
        delivery = session.inflight.get(packet_id)
        if delivery is not None and delivery.qos == 1 and delivery.sent:
            self.finish(delivery, now)

    def pubrec(self, packet_id: int, reason: int, now: float) -> None:
        session = self.session
        assert session is not None
        delivery = session.inflight.get(packet_id)
        if delivery is None or delivery.qos != 2 or not delivery.sent:
            if reason >= 0x80:
                return
            if self.version == 5:
                self.acknowledge(b"\x62\x03" + uint16(packet_id) + b"\x92", 0)
            else:
                self.acknowledge(b"\x62\x02" + uint16(packet_id), 0)
        elif reason >= 0x80:
            # Refused: the exchange ends here, without PUBREL (§4.3.3).
            self.finish(delivery, now)
        else:
            if not delivery.released:
                delivery.released = True
                if session.journal is not None and delivery.sequence:
                    session.journal.release_delivery(session.client_id, delivery.sequence)
            # Not before the commit: after PUBREL the client forgets the identifier, and a crash
            # must not make us send the message again.
            self.acknowledge(b"\x62\x02" + uint16(packet_id), self.recorded(session))

    def pubcomp(self, packet_id: int, now: float) -> None:
        session = self.session
        assert session is not None
        delivery = session.inflight.get(packet_id)
        if delivery is not None and delivery.released:
            self.finish(delivery, now)

    def finish(self, delivery: Delivery, now: float) -> None:
        """A delivery is complete: its identifier is free, the window opens."""
        flow = delivery.flow
        session = flow.session
        del session.inflight[delivery.packet_id]
        session.completed(delivery.message.size)
        flow.record_acknowledged(delivery, now)
        flow.forget(delivery)
        if session.draining and not session.inflight and not session.waiting:
            assert session.connectivity is not None
            session.connectivity.drained(session, now)


def packet_identifier(data: bytes, pos: int) -> int:
    """The packet identifier at `pos`, which is never 0 [MQTT-2.2.1-3], [MQTT-2.2.1-4]."""
    number = (data[pos] << 8) | data[pos + 1]
    if number == 0:
        raise ProtocolViolation("a packet identifier of 0")
    return number


def topic_text(topic: bytes) -> str:
    """A topic name as text, or the error that answers what is not one [MQTT-3.3.2-1]."""
    check_text(topic)
    if b"+" in topic or b"#" in topic:  # [MQTT-3.3.2-2]
        raise ProtocolViolation("a topic name contains a wildcard", 0x90)
    return topic.decode()
