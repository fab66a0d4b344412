"""The link scheduler: which flow sends next, may it send now, and if not, why.

`pump` is called when something changed for a link: a socket drained, an acknowledgement opened a
window, a commit made messages safe to send, time earned tokens. It sends what may be sent, the most
important level first, flows of one level in turn by bytes; a lane that cannot send is parked until
something changes for its client, and `hindrance` tells why. Replays of retained messages compete as
lanes of their own, and rest after a slice of work, so that nobody waits for all that is retained.
"""

from __future__ import annotations

from headgate.core.link import STRIDE, Link
from headgate.core.outlet import Outlet
from headgate.core.queueing import Delivery, Lane, overdue
from headgate.core.reasons import COMMIT, EXPIRED, OFFLINE, PACING, SOCKET, TURN, WINDOW
from headgate.core.replay import Replay
from headgate.core.session import Session

TICK = 50e-6
"""The shortest wait for the pace. Less than the clock resolves, and no time would ever pass."""

REST = 128 / STRIDE
"""Seconds that a replay rests at least: what is less than a quarter of a slice is not worth it."""


def pump(link: Link, now: float) -> float:
    """Send what may be sent; returns when to come back for the pace's sake, 0 if no need."""
    if link.rate != 0.0:
        link.refill(now)
    while link.waiting:
        if link.rate != 0.0 and link.tokens <= 0.0:
            return now + max(-link.tokens / link.rate, TICK)
        level = link.next_level()
        lane: Lane = link.next_lane(level)
        lane.listed = False
        session = lane.flow.session
        outlet = session.outlet
        before = 0 if outlet is None else outlet.size
        reason = advance(lane, now)
        if link.waiting:
            if outlet is not None and outlet.size != before:
                link.progress(lane, level, outlet.size - before)
        else:
            # Alone: nobody is kept waiting, so nothing is counted, and nobody else is next.
            while (
                reason == 0
                and link.waiting == 0
                and (lane.items or session.owed or lane.replay is not None)
                and (link.rate == 0.0 or link.tokens > 0.0)
            ):
                reason = advance(lane, now)
        if reason == 0:
            if lane.items or session.owed or lane.replay is not None:
                lane.listed = True
                if lane.level == level:
                    link.relist(lane, level)
                else:
                    link.enlist(lane, lane.level)
        elif reason == TURN:
            lane.listed = True
            lane.resting = True
            if not session.pool.resting:
                session.pool.rested = now + REST
            session.pool.resting.append(lane)
        elif reason != OFFLINE:
            lane.listed = True
            session.parked.append(lane)
    return 0.0


def advance(lane: Lane, now: float) -> int:
    """Send the first delivery of a lane, or say why not."""
    flow = lane.flow
    session = flow.session
    if not lane.items and not session.owed and lane.replay is None:
        return 0
    outlet = session.outlet
    if outlet is None:
        return OFFLINE
    if not outlet.clear:
        return SOCKET
    if session.owed and not (lane.items and lane.items[0].qos == 0):
        return repeat(session, outlet, now)
    if lane.replay is not None:
        replay: Replay = lane.replay
        return replay.proceed(now)
    delivery = lane.items[0]
    message = delivery.message
    if overdue(delivery, now):
        flow.discard(flow.unwait(lane), EXPIRED, now)
        return 0
    if delivery.qos:
        if not session.takes(message.size):
            return WINDOW
        if delivery.packet_id == 0:
            if len(session.inflight) >= session.window:
                return WINDOW
            reserve(lane)
        elif crowded(session):
            return WINDOW  # it had its identifier when the client took more at a time
        if delivery.qos == 2 and delivery.position > session.pool.durable:
            session.pool.uncommitted.append(session)
            return COMMIT
        delivery.sent = now
    flow.unwait(lane)
    sent = flow.emit(message, delivery.qos, delivery.packet_id, delivery.retain, False, outlet, now)
    if delivery.qos:
        if sent:
            session.sent(message.size)
        else:
            session.release(delivery.packet_id)
            flow.forget(delivery)
    return 0


def repeat(session: Session, outlet: Outlet, now: float) -> int:
    """Send again the first of what an earlier connection left unacknowledged [MQTT-4.4.0-1].

    It goes before anything else of QoS 1 and 2, whichever lane's turn it is, and no more at a time
    than the client takes now [MQTT-3.3.4-9], which may be less than it took then.
    """
    if crowded(session):
        return WINDOW
    delivery: Delivery = session.owed.pop()
    if delivery.released or session.inflight.get(delivery.packet_id) is not delivery:
        return 0  # acknowledged unasked
    flow = delivery.flow
    if not flow.emit(
        delivery.message, delivery.qos, delivery.packet_id, delivery.retain, True, outlet, now
    ):
        session.release(delivery.packet_id)
        session.completed(delivery.message.size)
        flow.forget(delivery)
    return 0


def hindrance(lane: Lane) -> int:
    """Why a lane in which something waits does not send."""
    session = lane.flow.session
    outlet = session.outlet
    if outlet is None:
        return OFFLINE
    if not outlet.clear:
        return SOCKET
    delivery = lane.items[0]
    if delivery.qos:
        if not session.takes(delivery.message.size):
            return WINDOW
        if delivery.packet_id == 0:
            if len(session.inflight) >= session.window:
                return WINDOW
        elif crowded(session):
            return WINDOW
        elif delivery.qos == 2 and delivery.position > session.pool.durable:
            return COMMIT
    return PACING


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


def crowded(session: Session) -> bool:
    """Has the client got as much on this connection as it takes at a time?"""
    return len(session.inflight) > session.window and outstanding(session) >= session.window


def outstanding(session: Session) -> int:
    """Deliveries that the client has got on this connection and not yet acknowledged."""
    sent = 0
    for delivery in session.inflight.values():
        if delivery.sent:
            sent += 1
    return sent - len(session.owed)


def wake(session: Session, now: float) -> float:
    """Something changed for this client: let its parked lanes compete again."""
    link = session.link
    if link is None:
        return 0.0
    if session.parked:
        for lane in session.parked:
            link.enlist(lane, lane.level)
        session.parked.clear()
    return pump(link, now) if link.waiting else 0.0
