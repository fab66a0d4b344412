"""Taking up where the last process stopped: sessions, queues and wills from what was kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from headgate.core import bounds, joining, parting
from headgate.core.access import Identity
from headgate.core.flows import Flow
from headgate.core.journal import Saved, StoredDelivery, StoredMessage
from headgate.core.message import Message
from headgate.core.queueing import Delivery
from headgate.core.session import NEVER, Session
from headgate.core.subscribing import install
from headgate.core.wills import PendingWill
from headgate.wire.packets import SubscriptionOptions

if TYPE_CHECKING:
    from headgate.core.broker import Broker


def restore(broker: Broker, saved: Saved, now: float) -> None:
    """Fill a new broker. Sessions that were connected when the process ended no longer are."""
    broker.pool.last_key = saved.last_key
    for stored_session in saved.sessions:
        session = Session(stored_session.client_id, Identity(stored_session.user), broker.pool)
        broker.equip(session)
        session.user = stored_session.user
        session.expiry = stored_session.expiry
        session.ends = stored_session.ends
        if session.ends == 0.0 and session.expiry != NEVER:
            session.ends = now + session.expiry
            # Kept, because the next process must not begin to count anew.
            broker.journal.save_session(replace(stored_session, ends=session.ends))
        session.stand_for(bounds.session_size(session.client_id))
        broker.sessions[session.client_id] = session
    for subscription in saved.subscriptions:
        options = SubscriptionOptions(
            subscription.qos,
            subscription.no_local,
            subscription.retain_as_published,
            subscription.retain_handling,
        )
        session = broker.sessions[subscription.client_id]
        install(
            broker,
            session,
            subscription.filter,
            options,
            subscription.identifier,
            list(subscription.claims),
        )
    for stored_session in saved.sessions:
        if stored_session.connectivity is not None:
            joining.restore(broker.sessions[stored_session.client_id], stored_session, now)
    for retained in saved.retained:
        broker.retained.put(unstored(retained))
    for subscription in saved.subscriptions:
        if subscription.replaying:
            session = broker.sessions[subscription.client_id]
            broker.replays.owe(session.flows[subscription.filter])
    for client_id, packet_id in saved.received:
        broker.sessions[client_id].received.add(packet_id)
    messages = {message.key: unstored(message) for message in saved.messages}
    for delivery in saved.deliveries:
        owe(broker.sessions[delivery.client_id], delivery, messages[delivery.message])
    for will in saved.wills:
        session = broker.sessions[will.client_id]
        session.will = PendingWill(unstored(will.message), will.delay, will.due)
        session.stand_for(session.will.size)
    for message in messages.values():
        if message.holders == 0:
            broker.journal.drop_message(message.key)
    sessions = list(broker.sessions.values())
    for session in sessions:
        session.journal = broker.journal
    for session in sessions:  # a will that is due now may go to any of them
        await_return(broker, session, now)


def owe(session: Session, stored: StoredDelivery, message: Message) -> None:
    """Put a delivery where it was: in flight, or in its flow's queue."""
    flow = session.flows.get(stored.filter)
    session.sequence = max(session.sequence, stored.sequence)
    if flow is None:
        # Its subscription ended while it was in flight; it still has to be completed.
        flow = Flow(session, stored.filter, stored.qos)
    delivery = Delivery(flow, message, stored.qos)
    delivery.sequence = stored.sequence
    delivery.retain = stored.retain
    delivery.released = stored.released
    delivery.packet_id = stored.packet_id
    message.holders += 1
    if flow.replay is not None:
        # It is that state of its topic, or a newer one: the replay must not send that after it.
        flow.replay.ahead.add(message.topic)
    if stored.packet_id:
        # It may have been sent: it is sent again with the same identifier [MQTT-4.4.0-1].
        delivery.sent = message.arrived
        session.inflight[stored.packet_id] = delivery
        session.sent(message.size)
    else:
        flow.wait(delivery)


def await_return(broker: Broker, session: Session, now: float) -> None:
    """Set the clocks of a session whose client is not here."""
    if session.expiry != NEVER:
        session.alarm = broker.schedule(
            session.ends, lambda at: parting.expire(broker, session, at)
        )
    joining.look_again(broker, session, now)
    will = session.will
    if will is None:
        return
    if will.due == 0.0:
        parting.await_will(broker, session, now)
    else:
        will.alarm = broker.schedule(will.due, lambda at: parting.mature(broker, session, will, at))


def unstored(stored: StoredMessage) -> Message:
    """A message from what the journal kept of it."""
    message = Message(stored.topic, stored.payload, stored.properties, stored.qos)
    message.key = stored.key
    message.retain = stored.retain
    message.rank = stored.rank
    message.expires = stored.expires
    message.arrived = stored.arrived
    message.sender = stored.sender
    return message
