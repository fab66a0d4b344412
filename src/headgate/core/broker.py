"""The broker without I/O: it ties channels, sessions and routing together.

The server calls `open`, `Channel.receive`, `drained`, `lost`, `committed` and `timers.run`; after
each turn it writes what stands on `board` and closes what stands in `closing`. Time comes in as
`now` (epoch seconds that never go back), chance as `rng`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random

from headgate.config import Configuration, Overflow
from headgate.core import connecting, parting, subscribing
from headgate.core.access import Gatekeeper, Peer
from headgate.core.accounting import cut
from headgate.core.acknowledging import Acknowledger
from headgate.core.applications import known_applications
from headgate.core.capturing import Captures
from headgate.core.channel import Channel
from headgate.core.complaints import Complaints
from headgate.core.control import Control
from headgate.core.counters import Counters, Past
from headgate.core.flows import Flow
from headgate.core.hooks import Hooks
from headgate.core.journal import Journal
from headgate.core.link import NORMAL_LEVEL, Link
from headgate.core.links import Links
from headgate.core.message import Message
from headgate.core.observing import Observer, Parting
from headgate.core.outlet import Outlet
from headgate.core.policies import Enforcer
from headgate.core.preparing import Recognition
from headgate.core.publishing import Publisher, topic_text
from headgate.core.queueing import make_room, stored
from headgate.core.replaying import Replays
from headgate.core.retained import Retained
from headgate.core.router import Route, Router
from headgate.core.scheduler import pump, wake
from headgate.core.session import Session
from headgate.core.states import CHECKING, CLOSED, CLOSING, OPEN, OPENING
from headgate.core.station import Station
from headgate.core.timers import Alarm
from headgate.core.urgency import Claims
from headgate.errors import MqttError, ProtocolViolation
from headgate.wire.codec import decode
from headgate.wire.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Properties,
    Puback,
    Pubcomp,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
    Version,
)
from headgate.wire.reasons import Reason

CONTROL = b"$CONTROL/"

RETAINED_PART = 2
"""Retained messages may take one of so many parts of the memory; what waits needs the rest."""

UNSET_PRIORITY = 7
"""That of flows of which no policy says anything, and of what is to be retained."""

TOLD_WHY = 100
"""Connections beyond the limit that still get an answer to their CONNECT."""


FAREWELL = Disconnect()
"""How nearly every client says goodbye."""

VERSIONS = {int(version): version for version in Version}

DEEPEST = 512
"""Levels of a topic beyond which no limit allows it: the trees of topics are walked recursively."""


PARTINGS: dict[int, Parting] = {
    Reason.KEEP_ALIVE_TIMEOUT: Parting.SILENT,
    Reason.SESSION_TAKEN_OVER: Parting.TAKEN_OVER,
    Reason.SERVER_SHUTTING_DOWN: Parting.SHUTDOWN,
}


def described(channel: Channel) -> str:
    """Who is at the other end of a connection, for people to read."""
    where = channel.peer.address or "this machine"
    if channel.session is None:
        return f"a client at {where}"
    return f"client {channel.session.client_id!r} at {where}"


def deepest(config: Configuration) -> int:
    """Levels that a topic may have."""
    return min(config.limits.topic_depth or DEEPEST, DEEPEST)


class Broker(Station):
    def __init__(
        self,
        config: Configuration,
        gatekeeper: Gatekeeper,
        journal: Journal,
        rng: Random,
        hooks: Hooks | None = None,
    ) -> None:
        Station.__init__(self, config.limits.memory or 1 << 62)
        self.config = config
        self.limits = config.limits
        self.depth = deepest(config)
        self.gatekeeper = gatekeeper
        self.journal = journal
        self.rng = rng
        self.hooks = hooks or Hooks()
        self.observer = Observer()

        self.pool.durable = journal.durable
        self.pool.watched = self.hooks.watching
        self.pool.raise_grant = config.urgency.raise_grant
        self.counters = Counters()
        self.past = Past()
        self.complaints = Complaints()
        self.refusals = Complaints("was refused", logging.INFO)
        self.sessions: dict[str, Session] = {}
        self.channels: dict[Channel, None] = {}
        self.addresses: dict[str, int] = {}
        self.router = Router(self._permits, self.pool)
        self.retained = Retained(self.pool)
        self.own_retained = 0
        """Retained messages that the broker itself published."""
        self.replays = Replays(self)
        self.captures = Captures(self)
        self.links = Links(config.links)
        self.applications = known_applications(config, ())
        self.enforcer = Enforcer(config.first_policy)
        self.claims = Claims(self)
        self.control = Control(self)

        # What the server takes up after each turn.
        self.gated: list[Acknowledger] = []
        self.held: list[tuple[int, Outlet]] = []
        """Clients whose CONNACK waits until the journal got so far; the first waits for least."""
        self.refused_route = Route(b"")
        self.refused_route.refused = True
        self.refused_route.plain = False

    # Connections

    def open(self, peer: Peer, now: float) -> Channel:
        """A connection was accepted; it has `connect_timeout` to say CONNECT."""
        channel = Channel(self, peer, now)
        self.channels[channel] = None
        self.addresses[peer.address] = self.addresses.get(peer.address, 0) + 1
        channel.alarm = self.schedule(
            now + self.limits.connect_timeout, lambda at: self._expect(channel, at)
        )
        return channel

    def _expect(self, channel: Channel, now: float) -> None:
        if channel.state == CHECKING:
            # It said CONNECT; the answer is ours to give, however long the logins before it take.
            channel.alarm = self.schedule(
                now + self.limits.connect_timeout, lambda at: self._expect(channel, at)
            )
        elif channel.state == OPENING:
            self.shut(channel)

    def lost(self, channel: Channel, now: float) -> None:
        """The connection ended without DISCONNECT."""
        if channel.waits and not channel.crowded and channel.state == OPEN:
            self.control.hurry(channel, now)  # what it said before it ended counts
        parting.lose(self, channel, Parting.LOST, now)
        cut(channel.outlet, now)
        channel.state = CLOSED
        channel.forget()
        self.timers.cancel(channel.alarm)
        if channel in self.channels:
            del self.channels[channel]
            left = self.addresses[channel.peer.address] - 1
            if left:
                self.addresses[channel.peer.address] = left
            else:
                del self.addresses[channel.peer.address]

    def is_full(self) -> bool:
        """Are there so many connections that another would not even be told why it cannot stay?"""
        limit = self.limits.connections
        return limit > 0 and len(self.channels) >= limit + TOLD_WHY

    def drained(self, session: Session, now: float) -> None:
        """A client's socket takes bytes again."""
        self.wait_for_pace(session.link, wake(session, now))

    def handle(self, channel: Channel, first: int, body: bytes, now: float) -> None:
        """A packet that is not on the hot path."""
        if channel.state == OPENING:
            if channel.awaits_auth and first == 0xE0:  # [MQTT-3.1.2-30] lets a client give up
                self.shut(channel)
                return
            if first >> 4 != (15 if channel.awaits_auth else 1):
                raise ProtocolViolation("the first packet is not CONNECT")  # [MQTT-3.1.0-1]
        elif first == 0xE0 and not body and channel.state == OPEN:
            parting.disconnect(self, channel, FAREWELL, now)
            return
        packet = decode(first, body, VERSIONS[channel.version])
        if isinstance(packet, Connect):
            if channel.state != OPENING:
                raise ProtocolViolation("a second CONNECT")  # [MQTT-3.1.0-2]
            connecting.begin(self, channel, packet, now)
        elif isinstance(packet, Auth):
            connecting.proceed(self, channel, packet, now)
        else:
            self._handle_open(channel, packet, now)

    def _handle_open(self, channel: Channel, packet: Packet, now: float) -> None:
        match packet:
            case Subscribe():
                channel.undertake(subscribing.subscribe(self, channel, packet))
            case Unsubscribe():
                channel.undertake(subscribing.unsubscribe(self, channel, packet))
            case Puback():
                channel.puback(packet.packet_id, now)
            case Pubrec():
                channel.pubrec(packet.packet_id, packet.reason, now)
            case Pubrel():
                channel.pubrel(packet.packet_id, now)
            case Pubcomp():
                channel.pubcomp(packet.packet_id, now)
            case Pingreq():
                channel.outlet.put(b"\xd0\x00")
            case Disconnect():
                parting.disconnect(self, channel, packet, now)
            case _:
                raise ProtocolViolation(f"a client must not send {type(packet).__name__.upper()}")

    def fail(self, channel: Channel, error: MqttError, now: float) -> None:
        """Answer what the peer did wrong, and end the connection [MQTT-4.13.1-1]."""
        self.counters.connections_failed += 1
        if channel.state < CLOSING:
            self.complaints.add(described(channel), str(error), now)
        if channel.state == OPEN:
            self.dismiss(channel, error.reason, str(error), now)
            return
        if channel.state < OPEN and error.reason == Reason.UNSUPPORTED_PROTOCOL_VERSION:
            # The peer's version is unknown: the answer that every version can read.
            channel.outlet.put(b"\x20\x02\x00\x01")
        elif channel.state < OPEN and channel.version == 5:
            properties = Properties(reason_string=str(error))
            parting.last_word(channel, Connack(False, error.reason, properties))
        self.shut(channel)

    def dismiss(self, channel: Channel, reason: int, text: str, now: float) -> None:
        """End an open connection from our side, telling an MQTT 5 client why."""
        if channel.state == OPEN:
            if channel.version == 5:
                properties = Properties()
                if text and channel.tells_problems:  # [MQTT-3.1.2-29] allows it in DISCONNECT
                    properties.reason_string = text
                parting.last_word(channel, Disconnect(reason, properties))
            session = channel.session
            if (
                reason == Reason.SERVER_SHUTTING_DOWN
                and session is not None
                and session.connectivity is not None
            ):
                session.connectivity.interrupt()
            parting.lose(self, channel, PARTINGS.get(reason, Parting.DISMISSED), now)
        self.shut(channel)

    def shut(self, channel: Channel) -> None:
        """Write what is left, then close."""
        if channel.state < CLOSING:
            channel.state = CLOSING
            self.closing.append(channel)

    # Messages

    def admit(self, channel: Publisher, topic: bytes) -> Route:
        """The route of a topic for one publisher, or the one that refuses."""
        text = topic_text(topic)
        session = channel.session
        assert session is not None
        if topic.count(b"/") >= self.depth:
            return self.refused_route
        if not self.gatekeeper.may_publish(session.identity, session.client_id, text):
            return self.refused_route
        return self.router.route(topic)

    def accept(self, channel: Publisher, route: Route, message: Message, now: float) -> int:
        """A message that asks for more than delivery; returns the reason code it is answered."""
        session = channel.session
        if self.hooks.watching and not self.hooks.on_publish(session, message):
            self.counters.messages_refused += 1
            return Reason.SUCCESS
        if (
            message.retain
            and message.qos
            and channel.version == Version.V5
            and not message.topic.startswith(CONTROL)
            and not self.may_retain(message)
        ):
            # Who can be told that a message is not kept may decide what to do about it.
            self.counters.messages_refused += 1
            return Reason.QUOTA_EXCEEDED
        return self.distribute(message, route, session, now)

    def distribute(self, message: Message, route: Route, sender: Session | None, now: float) -> int:
        """Command, or retain and deliver; returns the reason code it is answered."""
        if message.topic.startswith(CONTROL):
            return self.control.obey(message, sender, now)
        if message.retain:
            self.retain(message)
        if route.captured:
            self.captures.take(message, route.captured, sender)
        route.dispatch(message, sender, now)
        if route.flows or route.groups:
            return Reason.SUCCESS
        return Reason.NO_MATCHING_SUBSCRIBERS

    def publish(
        self, topic: str, payload: bytes, retain: bool, now: float, properties: bytes = b""
    ) -> None:
        """A message of the broker's own."""
        message = Message(topic.encode(), payload, properties, 0)
        self.counters.numbered += 1
        message.number = self.counters.numbered
        message.arrived = now
        message.own = True
        message.retain = retain
        if retain:
            if self.retained.get(message.topic) is None:
                self.own_retained += 1
            counted = self.pool.retained
            self.retained.put(message)
            self.pool.retained = counted  # what limits bound is what clients bring
        self.router.route(message.topic).dispatch(message, None, now)

    def withdraw(self, topic: str, now: float) -> None:
        """Take back a retained message of the broker's own; who listens gets an empty one."""
        name = topic.encode()
        if self.retained.get(name) is not None:
            counted = self.pool.retained
            self.retained.remove(name)
            self.pool.retained = counted
            self.own_retained -= 1
        self.publish(topic, b"", False, now)

    def retain(self, message: Message) -> None:
        """Keep as the retained message of its topic; an empty one removes it (§3.3.1.3)."""
        if not message.payload:
            self.forget_retained(message.topic)
            return
        if not self.may_retain(message):
            self.counters.messages_refused += 1
            self.forget_retained(message.topic)  # an older state would be a wrong one
            return
        self.retained.put(message)
        self.counters.messages_retained += 1
        self.journal.save_retained(stored(message))
        self.pool.kept = self.journal.position

    def may_retain(self, message: Message) -> bool:
        """Is there room to keep a message? Removing one needs none (decision 0016)."""
        if not message.payload:
            return True
        before = self.retained.get(message.topic)
        limit = self.limits.retained_messages
        if limit and before is None and self.retained.count - self.own_retained >= limit:
            return False
        more = self.retained.price(message)
        if more <= 0:
            return True
        if self.pool.retained + more > self.pool.limit // RETAINED_PART:
            return False
        # Within its part it takes the place of what waits and is worth no more.
        level = message.rank if message.rank < NORMAL_LEVEL else NORMAL_LEVEL + UNSET_PRIORITY
        return make_room(self.pool, more, level, True, message.arrived)

    def forget_retained(self, topic: bytes) -> None:
        """No message of this topic is retained any more."""
        if self.retained.remove(topic):
            self.journal.drop_retained(topic)
            self.pool.kept = self.journal.position

    def _permits(self, flow: Flow, topic: bytes) -> bool:
        session = flow.session
        return self.gatekeeper.may_receive(session.identity, session.client_id, topic.decode())

    def access_changed(self) -> None:
        """The gatekeeper decides otherwise now: nothing that was found before holds."""
        self.router.forget_routes()
        for channel in self.channels:
            channel.topics.clear()
        for session in self.sessions.values():
            for flow in session.flows.values():
                if flow.replay is not None:
                    flow.replay.judge()

    # Storage

    def committed(self, position: int, now: float) -> None:
        """Everything up to `position` is durable: release what waited for it."""
        self.pool.durable = position
        waiting, self.gated = self.gated, []
        for channel in waiting:
            channel.committed()
            if channel.gate:
                self.gated.append(channel)
        while self.held and self.held[0][0] <= position:
            self.held.pop(0)[1].release()
        sessions, self.pool.uncommitted = self.pool.uncommitted, []
        for session in dict.fromkeys(sessions):
            if session.outlet is not None:
                self.wait_for_pace(session.link, wake(session, now))
        self.captures.resume(now)
        self.control.committed(now)

    # Time

    def schedule(self, when: float, callback: Callable[[float], None]) -> Alarm:
        """Have something done later; whoever may not need it keeps the alarm and cancels it."""
        return self.timers.add(when, callback)

    def wait_for_pace(self, link: Link | None, when: float) -> None:
        """Come back to a link when its pace allows more, and to the replays that rest."""
        self.replays.rouse()
        if when and link is not None and not link.scheduled:
            link.scheduled = True
            self.schedule(when, lambda now: self._resume_link(link, now))

    def _resume_link(self, link: Link, now: float) -> None:
        link.scheduled = False
        self.wait_for_pace(link, pump(link, now))

    # Flows

    def link_of(self, session: Session, address: str) -> Link | None:
        """The link behind which a client is; None if it shares none."""
        return self.links.of(session, address)

    def settle(self, flow: Flow, claims: list[tuple[str, str]]) -> None:
        """Find out whose flow it is, and give it the settings of the policy in force."""
        flow.claims = claims
        self._recognise(flow)
        self.enforcer.settle(flow)
        if flow.backlog and flow.session.link is not None:
            flow.session.link.sort()

    def _recognise(self, flow: Flow) -> None:
        session = flow.session
        flow.membership = self.applications.of(
            session.client_id, session.user, [*session.claims, *flow.claims]
        )
        if flow.membership.threshold_s is None and session.channel is not None:
            flow.learned = 1.0  # while it is away, what it claimed before a restart may be unknown

    def enforce(self, enforcer: Enforcer) -> int:
        """Settle every flow by a policy, between two messages; returns how many there are."""
        self.enforcer = enforcer
        settled = 0
        settle = enforcer.settle
        for session in self.sessions.values():
            for flow in session.flows.values():
                settle(flow)
            settled += len(session.flows)
            own = session.link
            if own is not None and own.waiting and not own.name:
                own.sort()
        for link in self.links:
            link.sort()
        return settled

    def recognise(self, recognition: Recognition) -> int:
        """Other applications are known: each flow is now whose it was found to be; how many."""
        self.applications = recognition.known
        for session in self.sessions.values():
            for flow in session.flows.values():
                self._recognise(flow)
        settled = self.enforce(self.enforcer)
        recognition.known.forget()
        return settled

    def pace(self, now: float) -> None:
        """Look at the links on which something began to wait."""
        waiting, self.pool.paced = self.pool.paced, []
        for link in waiting:
            link.scheduled = False
            self.wait_for_pace(link, pump(link, now))

    # Settings

    def reconfigure(self, config: Configuration, now: float) -> None:
        """Obey a new configuration from now on; connections stay."""
        self.config = config
        self.limits = config.limits
        self.depth = deepest(config)
        self.pool.limit = config.limits.memory or 1 << 62
        self.pool.raise_grant = config.urgency.raise_grant
        self.links.change(config.links)
        for session in self.sessions.values():
            self.equip(session)
            if session.channel is not None:
                connecting.change_link(self, session)
        for channel in self.channels:
            channel.rate = config.limits.publish_rate
            channel.packet_limit = config.limits.packet_size
        self.access_changed()
        self.control.reconfigured(now)

    def equip(self, session: Session) -> None:
        """Give a session its limits."""
        session.message_limit = self.limits.queued_messages or 1 << 62
        session.size_limit = self.limits.queued_bytes or 1 << 62
        session.drop_oldest = self.config.overflow is Overflow.OLDEST
