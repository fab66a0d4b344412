"""What a client publishes: from the bytes of a PUBLISH to the flows that get the message.

A run of plain QoS 0 packets passes as one piece of bytes (`forward`); every other message is read,
judged, and dispatched by itself (`publish`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.core.acknowledging import Acknowledger, packet_identifier
from headgate.core.message import CRITICAL, NORMAL, URGENT, Message, uint16
from headgate.core.publication import Properties, check_text, remaining_length
from headgate.core.router import Route
from headgate.errors import MalformedPacket, ProtocolViolation

if TYPE_CHECKING:
    from headgate.core.broker import Broker

# When a message is routed: as it comes, or before its turn. In its turn, what was routed early has
# the reason code instead with which that was answered.
IN_TURN = -1
EARLY = -2

NOT_ROUTED = -1

UNREADY = -2
"""A command that is being prepared: its connection goes on with it when it can be obeyed."""

COMMANDS = b"$CONTROL/"

KNOWN_TOPICS = 4096
"""Topics whose routes a channel keeps for its publisher."""

LONG = 256
"""Bytes beyond which a topic is not kept there: so many of the longest would fill the memory."""

ALIASED = 256 * 1024
"""Bytes of topics for which a connection may have aliases."""


class Publisher(Acknowledger):
    """One connection's publishing: topics it may use, aliases, and how fast."""

    def __init__(self, broker: Broker, opened: float) -> None:
        Acknowledger.__init__(self, broker)
        self.counters = broker.counters
        self.waits = False
        """The first packet is a command that is being prepared: nothing is read until it is."""
        self.crowded = False
        """What it waits for is room to capture what it publishes (`core/capturing.py`)."""
        self.effort = 0
        """What was done in this go: levels of filters looked at, and copies made."""
        self.receive_maximum = broker.limits.receive_maximum
        self.topics: dict[bytes, Route] = {}
        self.aliases: dict[int, bytes] = {}
        self.alias_limit = 0

        # Publish rate; 0 is no limit.
        self.rate = broker.limits.publish_rate
        self.allowance = self.rate
        self.charged = opened
        self.resume_at = 0.0

        # Urgent and critical messages, per second.
        self.claim_allowance = 0.0
        self.claimed = 0.0

    def route_for(self, topic: bytes) -> Route:
        """The route of a topic this client publishes to, after looking whether it may."""
        route = self.broker.admit(self, topic)
        self.effort += route.effort
        if len(self.topics) >= KNOWN_TOPICS:
            self.topics.clear()
        if len(topic) <= LONG:
            self.topics[topic] = route
        return route

    def forward(
        self, route: Route, data: bytes, start: int, end: int, count: int, now: float
    ) -> None:
        """Pass a run of packets to every flow of its route."""
        self.counters.messages_received += count
        self.counters.numbered += count
        if not (route.flows or route.captured):
            self.counters.messages_unmatched += count
            return
        self.effort += len(route.flows)
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
                length, body = remaining_length(data, pos + 1, size, self.version)
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
            self.effort += len(route.flows)
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
            if len(topic) > LONG and sum(map(len, self.aliases.values())) > ALIASED:
                raise ProtocolViolation("topic aliases for too many bytes of topics", 0x97)
            return topic
        known = self.aliases.get(alias)
        if known is None:
            raise ProtocolViolation(f"topic alias {alias} was never given a topic", 0x82)
        return known

    def go_on(self, now: float) -> None:
        """What this connection waited for is there: read on."""
        raise NotImplementedError

    def charge(self, now: float) -> None:
        """One message more against the publish rate; a debt pauses reading, nothing is lost."""
        self.allowance = (
            min(self.rate, self.allowance + (now - self.charged) * self.rate)
            if now > self.charged
            else self.allowance
        )
        self.charged = now
        self.allowance -= 1.0


def topic_text(topic: bytes) -> str:
    """A topic name as text, or the error that answers what is not one [MQTT-3.3.2-1]."""
    check_text(topic)
    if b"+" in topic or b"#" in topic:  # [MQTT-3.3.2-2]
        raise ProtocolViolation("a topic name contains a wildcard", 0x90)
    return topic.decode()
