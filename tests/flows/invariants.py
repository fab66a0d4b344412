"""What must hold between any two events: nothing is lost sight of, nothing leaks."""

from __future__ import annotations

from collections import Counter

from headgate.core.broker import Broker
from headgate.core.flows import Flow
from headgate.core.link import MESSAGE, Link
from headgate.core.queueing import Lane
from headgate.core.session import Session


def check(broker: Broker) -> None:
    """Every count agrees with what it counts."""
    pool = broker.pool
    lanes: set[Lane] = set()
    size = messages = 0
    for session in broker.sessions.values():
        check_session(session)
        size += session.queued_size + MESSAGE * session.queued_messages
        messages += session.queued_messages
        lanes.update(lane for lane in session.waiting if lane.replay is None)
    assert (pool.size, pool.messages) == (size, messages)
    assert {lane for level in pool.lanes for lane in level} == lanes
    for level, there in enumerate(pool.lanes):
        assert all(lane.level == level for lane in there)
    for link in links_of(broker):
        check_link(link, [s for s in broker.sessions.values() if s.link is link])


def check_session(session: Session) -> None:
    waiting = [lane for flow in session.flows.values() for lane in flow.lanes if lane is not None]
    waiting = [lane for lane in waiting if lane.items]
    assert {lane for lane in session.waiting if lane.replay is None} == set(waiting)
    by_level = [(level, lane) for level, lanes in session.levels.items() for lane in lanes]
    assert sorted(by_level, key=repr) == sorted([(lane.level, lane) for lane in waiting], key=repr)
    queued = [delivery for lane in waiting for delivery in lane.items]
    assert session.queued_messages == sum(delivery.message.count for delivery in queued)
    assert session.queued_size == sum(delivery.message.size for delivery in queued)
    assert session.queued_messages <= session.message_limit
    assert session.queued_size <= session.size_limit
    for packet_id, delivery in session.inflight.items():
        assert delivery.packet_id == packet_id
        assert delivery.sent or delivery in queued, "in flight, but neither sent nor waiting"
        assert delivery.qos > 0
    sent = [delivery for delivery in session.inflight.values() if delivery.sent]
    assert session.unacknowledged == sum(one.message.size + MESSAGE for one in sent)
    for delivery in queued:
        assert not delivery.sent
        if delivery.packet_id:
            assert session.inflight[delivery.packet_id] is delivery
    if session.outlet is None:
        assert session.link is None
        assert not session.parked
        assert not session.owed
        assert not any(delivery.qos == 0 for delivery in queued)
    for flow in session.flows.values():
        check_flow(flow)


def check_flow(flow: Flow) -> None:
    lanes = [lane for lane in flow.lanes if lane is not None]
    assert flow.backlog == sum(item.message.count for lane in lanes for item in lane.items)
    assert flow.offered == flow.delivered + sum(flow.drops) + flow.backlog
    for lane in lanes:
        assert lane.level == flow.level(flow.lanes.index(lane))
    if flow.capacity:
        # A policy may have lowered it below what waits; then it holds from the next message on.
        assert flow.backlog >= 0


def links_of(broker: Broker) -> list[Link]:
    own = [session.link for session in broker.sessions.values() if session.link is not None]
    return list(dict.fromkeys([*broker.links, *own]))


def check_link(link: Link, sessions: list[Session]) -> None:
    ready = [lane for queue in link.ready if queue for _, _, lane in queue]
    parked = [lane for session in sessions for lane in session.parked]
    assert link.waiting == len(ready)
    assert link.queued == sum(session.queued_size for session in sessions)
    stands = Counter(map(id, ready + parked))
    assert not stands or max(stands.values()) == 1, "a lane stands in two places"
    assert all(lane.listed for lane in ready + parked)
    for session in sessions:
        for lane in session.waiting:
            if lane.replay is not None and lane.resting:
                continue  # it goes on by itself
            assert id(lane) in stands, "something waits that nobody will look at"
    for level, queue in enumerate(link.ready):
        assert all(lane.level == level for _, _, lane in queue or ())
        for number, entry in enumerate(queue or ()):
            assert queue is not None
            assert entry >= queue[(number - 1) // 2] or number == 0, "not a heap"


def check_idle(broker: Broker) -> None:
    """Everything was delivered or dropped: nothing is left anywhere."""
    check(broker)
    pool = broker.pool
    assert (pool.size, pool.messages) == (0, 0)
    assert not any(pool.lanes)
    for session in broker.sessions.values():
        assert not session.inflight
        assert not session.waiting
        assert not session.owed
    for link in links_of(broker):
        # A lane from which everything was dropped leaves when its turn comes.
        assert link.queued == 0
        assert not any(lane.items for queue in link.ready if queue for _, _, lane in queue)
