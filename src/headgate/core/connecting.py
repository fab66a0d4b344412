"""From CONNECT to an open session (MQTT 5 §3.1.4), by password or by exchange (§4.12)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headgate.core import bounds, joining, parting
from headgate.core.access import Exchange, Identity, Login, Verdict
from headgate.core.channel import Channel
from headgate.core.flows import UNLIMITED
from headgate.core.journal import StoredWill
from headgate.core.message import Message
from headgate.core.outlet import Outlet
from headgate.core.queueing import Lane, stored
from headgate.core.scheduler import wake
from headgate.core.session import NEVER, Session
from headgate.core.states import CHECKING, CLOSING, OPEN, OPENING
from headgate.core.wills import PendingWill
from headgate.errors import ProtocolViolation
from headgate.wire.codec import encode
from headgate.wire.fields import MAXIMUM_LENGTH, read_varint
from headgate.wire.packets import (
    Auth,
    Connack,
    Connect,
    PacketType,
    Properties,
    Version,
    Will,
)
from headgate.wire.properties import encode_properties
from headgate.wire.reasons import Reason
from headgate.wire.topics import validate_topic

if TYPE_CHECKING:
    from headgate.core.broker import Broker

CLAIMS = ("application", "category", "max-response-ms", "max-loss", "threshold-s")
"""User properties by which a client names its application (docs/flows.md)."""

LONGEST_CLAIM = 128
"""Characters, as many as a name has in a rule; longer ones count as not said. Each is kept for as
long as its flow is."""

NO_CLAIMS: list[tuple[str, str]] = []
"""Shared by all clients that claim nothing; nobody writes to it."""

ALIASES = 1000
"""Topic aliases that we use towards a client, however many it takes: we have to remember them."""

NOT_OF_A_LEVEL = str.maketrans({sign: f"%{ord(sign):02X}" for sign in "%+#/"})

GREETING, LONGER_GREETING = 16, 48
"""Bytes of a CONNACK of MQTT 5 with our limits, and with a client id that we chose."""

WELCOME_V3 = b"\x20\x02\x00\x00"
"""CONNACK of a new session, as every version before 5 has it."""

GRACE = 1.5
"""A client may be silent for one and a half keep-alive periods [MQTT-3.1.2-22]."""


@dataclass(slots=True)
class Greeting:
    """A CONNECT that is being judged."""

    packet: Connect
    login: Login
    assigned: bool
    """The client id was chosen by us."""
    exchange: Exchange | None = None
    last_data: bytes | None = None
    """What enhanced authentication has to say with its success."""


def begin(broker: Broker, channel: Channel, packet: Connect, now: float) -> None:
    """Look at a CONNECT and ask the gatekeeper."""
    channel.version = int(packet.version)
    channel.outlet.version = channel.version
    properties = packet.properties
    channel.outlet.packet_limit = properties.maximum_packet_size or UNLIMITED
    channel.tells_problems = properties.request_problem_information is not False
    if channel.outlet.packet_limit < (GREETING if packet.client_id else LONGER_GREETING):
        # We must not send what it does not take [MQTT-3.1.2-24], and CONNACK has to be sent.
        refuse(broker, channel, Reason.PACKET_TOO_LARGE, "")
        return
    limit = broker.limits.connections
    if limit and len(broker.channels) > limit:
        refuse(broker, channel, Reason.SERVER_BUSY, "the broker has no room for more connections")
        return
    limit = broker.limits.connections_per_address
    if limit and channel.peer.address and broker.addresses[channel.peer.address] > limit:
        refuse(broker, channel, Reason.QUOTA_EXCEEDED, "too many connections from this address")
        return
    refusal = bounds.judge_connect(broker, packet)
    if refusal is not None:
        refuse(broker, channel, *refusal)
        return
    assigned = not packet.client_id
    if assigned:
        if packet.version < Version.V5 and not packet.clean_start:
            # [MQTT-3.1.3-8] of 3.1.1: a session that is to be found again needs a name.
            refuse(
                broker,
                channel,
                Reason.CLIENT_IDENTIFIER_NOT_VALID,
                "a session that outlives its connection needs a client id",
            )
            return
        packet.client_id = f"headgate-{broker.rng.getrandbits(80):020x}"
    if packet.will is not None:
        validate_topic(packet.will.topic)
    login = Login(channel.peer, packet.client_id, packet.username, packet.password)
    greeting = Greeting(packet, login, assigned)
    channel.login = greeting
    channel.state = CHECKING
    if properties.auth_method is None:
        broker.gatekeeper.authenticate(login, lambda verdict: conclude(broker, channel, verdict))
        return
    greeting.exchange = broker.gatekeeper.exchange(properties.auth_method, login)
    if greeting.exchange is None:
        refuse(
            broker,
            channel,
            Reason.BAD_AUTHENTICATION_METHOD,
            f"the authentication method {properties.auth_method!r} is not offered",
        )
        return
    advance(broker, channel, properties.auth_data or b"", now)


def proceed(broker: Broker, channel: Channel, packet: Auth, now: float) -> None:
    """An AUTH packet: the next step, or a re-authentication of an open session (§4.12.1)."""
    greeting = channel.login
    if not isinstance(greeting, Greeting) or greeting.packet.properties.auth_method is None:
        raise ProtocolViolation("an AUTH packet without an authentication method in CONNECT")
    method = greeting.packet.properties.auth_method
    if packet.properties.auth_method != method:  # [MQTT-4.12.0-5]
        raise ProtocolViolation("the authentication method changed")
    if packet.reason == Reason.REAUTHENTICATE:
        if channel.state != OPEN:
            raise ProtocolViolation("re-authentication before the session is open")
        greeting.exchange = broker.gatekeeper.exchange(method, greeting.login)
    elif packet.reason != Reason.CONTINUE_AUTHENTICATION:
        raise ProtocolViolation(f"an AUTH packet with reason 0x{packet.reason:02x}")
    if greeting.exchange is None:
        raise ProtocolViolation("no authentication is under way")
    advance(broker, channel, packet.properties.auth_data or b"", now)


def advance(broker: Broker, channel: Channel, data: bytes, now: float) -> None:
    """One step of an enhanced authentication."""
    greeting = channel.login
    assert isinstance(greeting, Greeting)
    assert greeting.exchange is not None
    step = greeting.exchange.step(data)
    method = greeting.packet.properties.auth_method
    if step.verdict is None:
        properties = Properties(auth_method=method, auth_data=step.data)
        channel.outlet.put(encode(Auth(Reason.CONTINUE_AUTHENTICATION, properties), Version.V5))
        if channel.state == CHECKING:
            channel.state = OPENING  # its next packet is an AUTH
            channel.awaits_auth = True
        return
    greeting.exchange = None
    greeting.last_data = step.data
    if channel.state != OPEN:
        channel.state = CHECKING
        conclude(broker, channel, step.verdict)
    elif step.verdict.identity is None or (
        channel.session is not None and step.verdict.identity.user != channel.session.identity.user
    ):
        raise ProtocolViolation("re-authentication failed", Reason.NOT_AUTHORIZED)
    else:
        assert channel.session is not None
        channel.session.identity = step.verdict.identity
        broker.access_changed()
        properties = Properties(auth_method=method, auth_data=step.data)
        channel.outlet.put(encode(Auth(Reason.SUCCESS, properties), Version.V5))


def refuse(broker: Broker, channel: Channel, reason: Reason, text: str) -> None:
    """Answer CONNECT with a refusal and close [MQTT-3.2.2-7]."""
    broker.counters.connections_refused += 1
    where = channel.peer.address or "this machine"
    why = Reason(reason).name.lower().replace("_", " ")
    broker.refusals.add(f"a client at {where}", text or why, channel.heard)
    properties = Properties()
    if text and channel.version == 5:
        properties.reason_string = text
    parting.last_word(channel, Connack(False, reason, properties))
    broker.shut(channel)


def conclude(broker: Broker, channel: Channel, verdict: Verdict) -> None:
    """The gatekeeper has judged."""
    if channel.state >= CLOSING:
        return  # gone in the meantime
    now = channel.heard
    greeting = channel.login
    assert isinstance(greeting, Greeting)
    if verdict.identity is None:
        refuse(broker, channel, verdict.reason, verdict.text)
        return
    refusal = bounds.judge_session(broker, greeting.packet)
    if refusal is not None:
        refuse(broker, channel, *refusal)
        return
    welcome(broker, channel, greeting, verdict.identity, now)
    if channel.chunks:
        # The client need not wait for CONNACK before it goes on (§3.1.4).
        channel.go_on(now)


def welcome(
    broker: Broker, channel: Channel, greeting: Greeting, identity: Identity, now: float
) -> None:
    """Find or make the session, and say so when it is certain."""
    recorded = broker.journal.position
    packet = greeting.packet
    client_id = packet.client_id
    session = broker.sessions.get(client_id)
    if session is not None and session.identity.user != identity.user:
        # Nobody inherits what another user subscribed to.
        if session.channel is not None:
            broker.dismiss(session.channel, Reason.SESSION_TAKEN_OVER, "", now)
        parting.end_session(broker, session, now)
        session = None
    elif session is not None and session.channel is not None:  # [MQTT-3.1.4-3]
        broker.dismiss(
            session.channel, Reason.SESSION_TAKEN_OVER, "the client connected again", now
        )
        session = broker.sessions.get(client_id)
    if session is not None and packet.clean_start:  # [MQTT-3.1.2-4]
        parting.end_session(broker, session, now)
        session = None
    present = session is not None
    if session is None:
        session = Session(client_id, identity, broker.pool)
        broker.equip(session)
        session.stand_for(bounds.session_size(client_id))
        broker.sessions[client_id] = session
    elif session.identity != identity:
        session.identity = identity
        broker.router.forget_routes()  # who has other roles may receive other topics
    session.expiry = expiry_interval(broker, packet)
    session.ends = 0.0
    joining.arrive(broker, session, now)
    if session.alarm is not None:
        broker.timers.cancel(session.alarm)
        session.alarm = None
    if session.will is not None:
        parting.forget_will(broker, session)
    if packet.will is not None:
        session.will = will_of(packet.will, client_id, now)
        session.stand_for(session.will.size)
    keep(broker, session)
    attach(broker, channel, session, packet)
    promise(broker, channel.outlet, recorded)
    if packet.version == Version.V5 or present:
        channel.outlet.put(encode(connack(broker, channel, greeting, present), packet.version))
    else:
        channel.outlet.put(WELCOME_V3)
    if packet.properties.auth_method is None:
        channel.login = None  # there is nothing to prove again
    broker.counters.connections_opened += 1
    broker.hooks.on_connect(session)
    broker.observer.connected(session, present, now)
    if present:
        resume(broker, session, now)
    broker.timers.cancel(channel.alarm)
    if channel.keep_alive:
        expect_life(broker, channel, now + channel.keep_alive)


def expiry_interval(broker: Broker, packet: Connect) -> int:
    """How long the session outlives its connection, in seconds."""
    if packet.version == Version.V5:
        wanted = packet.properties.session_expiry or 0
    else:
        wanted = 0 if packet.clean_start else NEVER
    limit = int(broker.limits.session_expiry_max)
    return min(wanted, limit) if limit else wanted


def will_of(will: Will, client_id: str, now: float) -> PendingWill:
    """The will as a message to be published later."""
    forwarded = replace(will.properties, will_delay=None, message_expiry=None)
    encoded = encode_properties(forwarded, PacketType.PUBLISH)
    _, start = read_varint(encoded, 0)
    message = Message(will.topic.encode(), will.payload, encoded[start:], will.qos)
    message.retain = will.retain
    message.sender = client_id
    message.arrived = now
    if will.properties.message_expiry is not None:
        # Counted from its publication; 0 would mean never, a moment means at once.
        message.expires = will.properties.message_expiry or 1e-6
    return PendingWill(message, will.properties.will_delay or 0)


def keep(broker: Broker, session: Session) -> None:
    """Have the journal keep a session that outlives its connection, and only such a one."""
    if not session.expiry:
        if session.journal is not None:
            for delivery in parting.deliveries_of(session):
                delivery.flow.forget(delivery)
                delivery.sequence = 0
            session.journal.drop_session(session.client_id)
            session.journal = None
        return
    session.journal = broker.journal
    broker.journal.save_session(parting.record_of(session))
    if session.will is not None:
        message = session.will.message
        broker.journal.save_will(
            StoredWill(session.client_id, session.will.due, stored(message), session.will.delay)
        )
    broker.pool.kept = broker.journal.position


def promise(broker: Broker, outlet: Outlet, recorded: int) -> None:
    """Whatever CONNECT changed in the journal since `recorded` is certain before CONNACK says so.

    Packets that follow meanwhile are handled as they come: their answers wait behind CONNACK.
    """
    position = broker.journal.position
    if position != recorded and position > broker.pool.durable:
        outlet.hold()
        broker.held.append((position, outlet))


def attach(broker: Broker, channel: Channel, session: Session, packet: Connect) -> None:
    """Join a channel and its session."""
    properties = packet.properties
    limits = broker.limits
    outlet = channel.outlet
    outlet.alias_limit = min(properties.topic_alias_maximum or 0, ALIASES)
    session.window = min(properties.receive_maximum or 65535, limits.inflight)
    session.outlet = outlet
    session.channel = channel
    session.user = session.identity.user
    session.claims = claims_of(broker, session, properties)
    session.link = broker.link_of(session, channel.peer.address)
    if session.link is not None:
        session.link.members[session] = None
        session.link.queued += session.queued_size
    channel.session = session
    channel.alias_limit = limits.topic_alias
    wanted = float(packet.keep_alive)
    longest = limits.keep_alive_max
    if longest and (wanted == 0.0 or wanted > longest):
        wanted = longest
    channel.keep_alive = wanted * GRACE
    channel.state = OPEN
    for flow in session.flows.values():
        broker.settle(flow, flow.claims)


def claims_of(broker: Broker, session: Session, properties: Properties) -> list[tuple[str, str]]:
    """What a client says of its application, if it is allowed to."""
    if not properties.user_properties:
        return NO_CLAIMS
    claims = {
        name: value
        for name, value in properties.user_properties
        if name in CLAIMS and len(value) <= LONGEST_CLAIM
    }
    if claims and broker.gatekeeper.may_claim(session.identity, session.client_id, "claim"):
        return list(claims.items())
    return NO_CLAIMS


def connack(broker: Broker, channel: Channel, greeting: Greeting, present: bool) -> Connack:
    """What the client needs to know of us (§3.2.2.3)."""
    packet = greeting.packet
    session = channel.session
    assert session is not None
    if packet.version < Version.V5:
        return Connack(present, Reason.SUCCESS)
    limits = broker.limits
    properties = Properties(
        receive_maximum=limits.receive_maximum,
        maximum_packet_size=limits.packet_size,
        topic_alias_maximum=limits.topic_alias or None,
    )
    if session.expiry != (packet.properties.session_expiry or 0):
        properties.session_expiry = session.expiry
    if channel.keep_alive != packet.keep_alive * GRACE:  # [MQTT-3.1.2-21]
        properties.server_keep_alive = int(channel.keep_alive / GRACE)
    if greeting.assigned:
        properties.assigned_client_id = session.client_id
    if packet.properties.request_response_information:
        properties.response_information = response_information(session.client_id)
    if packet.properties.auth_method is not None:  # [MQTT-4.12.0-5]
        properties.auth_method = packet.properties.auth_method
        properties.auth_data = greeting.last_data or None
    return Connack(present, Reason.SUCCESS, properties)


def response_information(client_id: str) -> str | None:
    """A topic of the client's own to be answered on (§3.2.2.3.14); None if it would be too long.

    A client id may have wildcards and slashes in it: they are percent-encoded, so that it stays one
    level of a topic that anybody can publish to, and no two clients share it.
    """
    topic = "response/" + client_id.translate(NOT_OF_A_LEVEL)
    return topic if len(topic.encode()) <= MAXIMUM_LENGTH else None


def resume(broker: Broker, session: Session, now: float) -> None:
    """Send again what was not acknowledged, then what waited (§4.4)."""
    channel = session.channel
    if session.connectivity is not None:
        session.connectivity.drain_from(session, now)
    for delivery in session.inflight.values():
        if delivery.released:
            # PUBREC may have come by the connection before, and its commit be under way.
            pubrel = b"\x62\x02" + delivery.packet_id.to_bytes(2, "big")
            channel.acknowledge(pubrel, channel.recorded(session))
        elif delivery.sent:
            session.owed.append(delivery)
    session.owed.reverse()  # the first is taken from the end
    compete(session)
    broker.wait_for_pace(session.link, wake(session, now))


def compete(session: Session) -> None:
    """Put what waits for a client into the turns of its link."""
    lanes = list(session.waiting)
    if session.owed:
        first = session.owed[-1]
        lanes.append(Lane(first.flow, first.flow.level(first.message.rank)))
    for lane in lanes:
        if not lane.listed:
            lane.listed = True
            session.own_link().enlist(lane, lane.level)


def change_link(broker: Broker, session: Session) -> None:
    """Put a connected client behind the link where it belongs now."""
    link = broker.link_of(session, session.channel.peer.address)
    before = session.link
    if link is before or (link is None and before is not None and not before.name):
        return
    parting.leave_link(session)
    session.link = link
    if link is not None:
        link.members[session] = None
        link.queued += session.queued_size
    compete(session)
    link = session.link
    if link is not None and link.waiting and not link.scheduled:
        link.scheduled = True
        broker.pool.paced.append(link)


def check_alive(broker: Broker, channel: Channel, now: float) -> None:
    """Has the client been silent for too long? If not, look again when it could be."""
    if channel.state != OPEN:
        return
    if channel.crowded or channel.waits or channel.resume_at:
        channel.heard = now  # it is we who do not listen
    due = channel.heard + channel.keep_alive
    if now >= due:
        broker.dismiss(channel, Reason.KEEP_ALIVE_TIMEOUT, "the client was silent too long", now)
    else:
        expect_life(broker, channel, due)


def expect_life(broker: Broker, channel: Channel, due: float) -> None:
    """Look at `due` whether the client was heard since."""
    channel.alarm = broker.schedule(due, lambda at: check_alive(broker, channel, at))
