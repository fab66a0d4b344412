"""How connections and sessions end, and what is said in the client's name then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.core import bounds, joining
from headgate.core.channel import Channel
from headgate.core.journal import StoredSession, StoredWill
from headgate.core.observing import Parting
from headgate.core.queueing import Delivery, Lane, stored
from headgate.core.reasons import Drop
from headgate.core.session import NEVER, Session
from headgate.core.states import OPEN
from headgate.core.wills import PendingWill
from headgate.errors import ProtocolViolation
from headgate.wire.codec import encode
from headgate.wire.packets import Connack, Disconnect, Version
from headgate.wire.reasons import Reason

if TYPE_CHECKING:
    from headgate.core.broker import Broker


def disconnect(broker: Broker, channel: Channel, packet: Disconnect, now: float) -> None:
    """The client says goodbye: its will is forgotten if it goes in peace (§3.14)."""
    session = channel.session
    assert session is not None
    expiry = packet.properties.session_expiry
    if channel.version == Version.V5 and expiry is not None:
        if session.expiry == 0 and expiry != 0:  # [MQTT-3.1.2-23]
            raise ProtocolViolation("a session that ends with its connection cannot be prolonged")
        limit = int(broker.limits.session_expiry_max)
        session.expiry = min(expiry, limit) if limit else expiry
    if packet.reason == Reason.SUCCESS:  # [MQTT-3.1.2-10], [MQTT-3.14.4-3]
        forget_will(broker, session)
    lose(broker, channel, Parting.DISCONNECT, now)
    channel.said_goodbye = True
    broker.shut(channel)


def last_word(channel: Channel, packet: Connack | Disconnect) -> None:
    """Say why a connection ends; without the text if the client takes no packet of that size."""
    encoded = encode(packet, Version(channel.version))
    if len(encoded) > channel.outlet.packet_limit:  # [MQTT-3.2.2-19], [MQTT-3.14.2-3]
        packet.properties.reason_string = None
        encoded = encode(packet, Version(channel.version))
    if len(encoded) <= channel.outlet.packet_limit:
        channel.outlet.put(encoded)


def lose(broker: Broker, channel: Channel, why: Parting, now: float) -> None:
    """The connection is over: part channel and session."""
    session = channel.session
    if session is None or channel.state != OPEN:
        return
    channel.session = None
    session.channel = None
    session.outlet = None
    session.owed.clear()
    leave_link(session)
    for lane in list(session.waiting):
        drop_fleeting(lane, now)
    for flow in session.flows.values():
        if flow.replay is not None:
            flow.replay.interrupt()
    broker.hooks.on_disconnect(session)
    broker.observer.parted(session, why, now)
    if session.expiry == 0:
        end_session(broker, session, now)
        return
    if session.will is not None:
        await_will(broker, session, now)
    if session.expiry != NEVER:
        session.ends = now + session.expiry
        session.alarm = broker.schedule(session.ends, lambda at: expire(broker, session, at))
    joining.leave(broker, session, now)
    if session.journal is not None:
        session.journal.save_session(record_of(session))


def record_of(session: Session) -> StoredSession:
    """A session as the journal keeps it."""
    known = session.connectivity
    return StoredSession(
        session.client_id,
        session.identity.user,
        session.expiry,
        session.ends,
        None if known is None else known.stored(session.flows),
    )


def leave_link(session: Session) -> None:
    """What waits for this client no longer competes."""
    link = session.link
    session.parked.clear()
    for flow in session.flows.values():
        for lane in flow.lanes:  # also one that is listed though nothing waits in it any more
            if lane is not None:
                lane.listed = False
        if flow.replay is not None:
            flow.replay.lane.listed = False
            flow.replay.lane.resting = False
    if link is not None:
        session.link = None
        link.members.pop(session, None)
        link.queued -= session.queued_size
        if link.name:
            link.delist(session)


def drop_fleeting(lane: Lane, now: float) -> None:
    """Of what waits, QoS 0 does not outlive the connection."""
    flow = lane.flow
    kept = []
    while lane.items:
        delivery = flow.unwait(lane)
        if delivery.qos:
            kept.append(delivery)
        else:
            flow.discard(delivery, Drop.DISCONNECTED, now)
    for delivery in kept:
        flow.wait(delivery)


def expire(broker: Broker, session: Session, now: float) -> None:
    """The session expiry interval passed, unless the client came back."""
    if session.channel is None and session.ends and now >= session.ends:
        end_session(broker, session, now)


def end_session(broker: Broker, session: Session, now: float) -> None:
    """Forget a session with all it had."""
    if broker.sessions.get(session.client_id) is session:
        del broker.sessions[session.client_id]
        broker.observer.session_ended(session, now)
    session.ends = 0.0
    if session.alarm is not None:
        broker.timers.cancel(session.alarm)
        session.alarm = None
    joining.forget(broker, session)
    if session.will is not None:  # [MQTT-3.1.2-8]: at the latest when the session ends
        publish_will(broker, session, now)
    for topic_filter in list(session.flows):
        remove_flow(broker, session, topic_filter)
    for delivery in session.inflight.values():
        delivery.flow.forget(delivery)
    session.inflight.clear()
    session.abandon()
    session.stand_for(-session.standing)
    session.received.clear()
    if session.journal is not None:
        session.journal.drop_session(session.client_id)
        session.journal = None


def deliveries_of(session: Session) -> list[Delivery]:
    """Everything that is owed to a client: what is in flight, and what waits."""
    waiting = [delivery for lane in session.waiting for delivery in lane.items]
    return list(dict.fromkeys([*session.inflight.values(), *waiting]))


def remove_flow(broker: Broker, session: Session, topic_filter: str) -> None:
    """End a subscription; what waits in its queue goes, what is in flight stays (§3.10.4)."""
    flow = session.flows.pop(topic_filter)
    session.stand_for(-bounds.flow_size(topic_filter))
    broker.past.add(flow)
    broker.router.remove(flow.topic_filter, flow.group, flow)
    for lane in flow.lanes:
        if lane is None:
            continue
        while lane.items:
            delivery = flow.unwait(lane)
            if delivery.packet_id:
                session.release(delivery.packet_id)
            flow.forget(delivery)
    flow.lanes = [None, None, None]
    if flow.replay is not None:
        flow.replay.end()


def await_will(broker: Broker, session: Session, now: float) -> None:
    """Publish the will now or after its delay."""
    will = session.will
    assert will is not None
    if will.delay == 0:
        publish_will(broker, session, now)
        return
    will.due = now + will.delay
    if session.journal is not None:
        session.journal.save_will(
            StoredWill(session.client_id, will.due, stored(will.message), will.delay)
        )
    will.alarm = broker.schedule(will.due, lambda at: mature(broker, session, will, at))


def mature(broker: Broker, session: Session, will: PendingWill, now: float) -> None:
    """The will delay passed, unless the client came back [MQTT-3.1.3-9]."""
    if session.will is will and session.channel is None:
        publish_will(broker, session, now)


def publish_will(broker: Broker, session: Session, now: float) -> None:
    will = session.will
    assert will is not None
    message = will.message
    forget_will(broker, session)
    if message.expires:
        message.expires += now
    message.arrived = now
    broker.counters.numbered += 1
    message.number = broker.counters.numbered
    granted = broker.claims.judge_will(session, message)
    topic = message.topic.decode()
    if (
        granted
        and topic
        and broker.gatekeeper.may_publish(session.identity, session.client_id, topic)
    ):
        broker.distribute(message, broker.router.route(message.topic), session, now)
    else:
        broker.counters.messages_refused += 1


def forget_will(broker: Broker, session: Session) -> None:
    if session.will is not None:
        session.stand_for(-session.will.size)
        if session.will.alarm is not None:
            broker.timers.cancel(session.will.alarm)
    session.will = None
    if session.journal is not None:
        session.journal.drop_will(session.client_id)
