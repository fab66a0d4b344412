"""The link scheduler: which flow sends next, may it send now, and if not, why.

`pump` is called when something changed for a link: a socket drained, an acknowledgement opened a
window, a commit made messages safe to send, time earned tokens. It sends what may be sent, the most
important level first, flows of one level in turn, and leaves every other lane with a named reason.
"""

from __future__ import annotations

from typing import Any

from headgate.core.flows import (
    COMMIT,
    EXPIRED,
    OFFLINE,
    PACING,
    SOCKET,
    WINDOW,
    Delivery,
    Flow,
    Lane,
)
from headgate.core.link import Link
from headgate.core.message import Message
from headgate.core.session import Session

TICK = 50e-6
"""The shortest wait for the pace. Less than the clock resolves, and no time would ever pass."""


def pump(link: Link, now: float) -> float:
    """Send what may be sent; returns when to come back for the pace's sake, 0 if no need."""
    if link.rate != 0.0:
        link.refill(now)
    while link.waiting:
        queue: Any = link.ready[link.next_level()]
        lane = queue[0]
        if link.rate != 0.0 and link.tokens <= 0.0:
            lane.reason = PACING
            return now + max(-link.tokens / link.rate, TICK)
        queue.popleft()
        link.waiting -= 1
        lane.listed = False
        reason = advance(lane, now)
        if reason == 0:
            if lane.items:
                lane.listed = True
                link.enlist(lane, lane.level)
        else:
            lane.reason = reason
            if reason != OFFLINE:
                lane.listed = True
                lane.flow.session.parked.append(lane)
    return 0.0


def advance(lane: Lane, now: float) -> int:
    """Send the first delivery of a lane, or say why not."""
    if not lane.items:
        return 0
    flow = lane.flow
    session = flow.session
    outlet = session.outlet
    if outlet is None:
        return OFFLINE
    if not outlet.clear:
        return SOCKET
    delivery = lane.items[0]
    message = delivery.message
    if overdue(flow, message, now):
        flow.discard(flow.unwait(lane), EXPIRED)
        return 0
    if delivery.qos:
        if not session.takes(message.size):
            return WINDOW
        if delivery.packet_id == 0:
            if len(session.inflight) >= session.window:
                return WINDOW
            reserve(lane)
        elif len(session.inflight) > session.window and outstanding(session) >= session.window:
            return WINDOW  # it had its identifier when the client took more at a time
        if delivery.qos == 2 and delivery.position > session.pool.durable:
            session.pool.uncommitted.append(session)
            return COMMIT
        delivery.sent = now
    flow.unwait(lane)
    sent = flow.emit(message, delivery.qos, delivery.packet_id, delivery.retain, False, outlet, now)
    if delivery.qos:
        if sent:
            session.unacknowledged += message.size
        else:
            session.inflight.pop(delivery.packet_id, None)
            flow.forget(delivery)
    return 0


def overdue(flow: Flow, message: Message, now: float) -> bool:
    """Has the message outlived its own expiry or the flow's lifetime?"""
    if message.expires != 0.0 and now >= message.expires:
        return True
    return flow.lifetime != 0.0 and now - message.arrived > flow.lifetime


def reserve(lane: Lane) -> None:
    """Give packet identifiers to as many of a lane's deliveries as the window takes.

    Many at once, because QoS 2 to a session that survives waits for a commit in between.
    """
    session = lane.flow.session
    journal = session.journal
    for delivery in lane.items:
        if delivery.qos == 0 or delivery.packet_id:
            continue
        if len(session.inflight) >= session.window:
            return
        delivery.packet_id = session.take_packet_id()
        session.inflight[delivery.packet_id] = delivery
        if journal is None:
            return
        journal.assign_packet_id(session.client_id, delivery.sequence, delivery.packet_id)
        delivery.position = journal.position
        if delivery.qos == 1:
            return


def repeat(session: Session, now: float) -> None:
    """Send again what an earlier connection left unacknowledged [MQTT-4.4.0-1].

    No more at a time than the client takes now [MQTT-3.3.4-9], which may be less than it took then.
    """
    outlet = session.outlet
    assert outlet is not None
    room = session.window - outstanding(session)
    while session.owed and room > 0:
        delivery: Delivery = session.owed.pop()
        if delivery.released or session.inflight.get(delivery.packet_id) is not delivery:
            continue  # acknowledged unasked
        flow = delivery.flow
        if flow.emit(
            delivery.message,
            delivery.qos,
            delivery.packet_id,
            delivery.retain,
            True,
            outlet,
            now,
        ):
            room -= 1
        else:
            del session.inflight[delivery.packet_id]
            session.unacknowledged -= delivery.message.size
            flow.forget(delivery)


def outstanding(session: Session) -> int:
    """Deliveries that the client has got on this connection and not yet acknowledged."""
    sent = 0
    for delivery in session.inflight.values():
        if delivery.sent:
            sent += 1
    return sent - len(session.owed)


def wake(session: Session, now: float) -> float:
    """Something changed for this client: let its parked lanes compete again."""
    if session.owed:
        repeat(session, now)
    link = session.link
    if link is None:
        return 0.0
    if session.parked:
        for lane in session.parked:
            link.enlist(lane, lane.level)
        session.parked.clear()
    return pump(link, now) if link.waiting else 0.0
