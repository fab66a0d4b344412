"""Snapshots: what each flow experienced since the last one, for whoever plans (DESIGN.md).

They are made only while somebody subscribes to `$SYS/headgate/snapshot`, so that a broker without a
controller does not pay for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headgate.contract import FlowSnapshot, LinkSnapshot, Snapshot
from headgate.core.connectivity import NOTHING
from headgate.core.flows import Drop, Flow, Wait
from headgate.core.histogram import Histogram
from headgate.core.scheduler import hindrance
from headgate.core.session import Session

if TYPE_CHECKING:
    from headgate.core.broker import Broker

TOPIC = "$SYS/headgate/snapshot"

SLICE = 500
"""Flows looked at in one turn: some milliseconds."""
PAUSE = 0.001

REASONS = [reason.name.lower() for reason in Drop]
UNSEEN = (0, 0, 0, (0,) * len(Drop))
EMPTY = Histogram()


class Snapshots:
    def __init__(self, broker: Broker, interval: float, now: float) -> None:
        self.broker = broker
        self.interval = interval
        self._last = now
        self._received = 0
        broker.schedule(now + interval, self._begin)

    def _begin(self, now: float) -> None:
        route = self.broker.router.route(TOPIC.encode())
        if route.flows or route.groups:
            self._sweep(iter(list(self.broker.sessions.values())), [], now, now)
        else:
            self.broker.schedule(now + self.interval, self._begin)

    def _sweep(
        self, sessions: Iterator[Session], shown: list[FlowSnapshot], begun: float, now: float
    ) -> None:
        """Look at some flows, then at the others in later turns: messages do not wait for all."""
        looked = 0
        for session in sessions:
            shown.extend(self._flows(session, now))
            looked += len(session.flows)
            if looked >= SLICE:
                self.broker.schedule(
                    now + PAUSE, lambda at: self._sweep(sessions, shown, begun, at)
                )
                return
        self.broker.schedule(max(begun + self.interval, now + PAUSE), self._begin)
        self.broker.publish(TOPIC, self._snapshot(shown, now).to_json(), False, now)

    def take(self, now: float) -> Snapshot:
        """What happened since the last one, all at once."""
        sessions = self.broker.sessions.values()
        return self._snapshot([flow for s in sessions for flow in self._flows(s, now)], now)

    def _snapshot(self, flows: list[FlowSnapshot], now: float) -> Snapshot:
        broker = self.broker
        received = broker.counters.messages_received
        snapshot = Snapshot(
            time=now,
            interval=now - self._last,
            policy=broker.enforcer.policy.version,
            received=received - self._received,
            connections=len(broker.channels),
            flows=flows,
            links=self._links(),
        )
        self._last = now
        self._received = received
        return snapshot

    def _flows(self, session: Session, now: float) -> list[FlowSnapshot]:
        return [
            shown for flow in session.flows.values() if (shown := self._flow(flow, now)) is not None
        ]

    def _flow(self, flow: Flow, now: float) -> FlowSnapshot | None:
        before = flow.reported or UNSEEN
        after = (flow.offered, flow.delivered, flow.sent_bytes, tuple(flow.drops))
        if (
            after == before
            and not flow.backlog
            and flow.waited is None
            and flow.acknowledged is None
        ):
            return None
        flow.reported = after
        offered, delivered, sent, drops = before
        session = flow.session
        waited = flow.waited or EMPTY
        acknowledged = flow.acknowledged or EMPTY
        flow.waited = None
        flow.acknowledged = None
        known = NOTHING if session.connectivity is None else session.connectivity.estimate(now)
        lane = next((lane for lane in flow.lanes if lane is not None and lane.items), None)
        return FlowSnapshot(
            client=session.client_id,
            filter=flow.filter,
            application=flow.membership.application,
            category=flow.membership.category,
            link="" if session.link is None else session.link.name,
            connected=session.channel is not None,
            priority=flow.priority,
            drop=flow.drop_rate,
            offered=flow.offered - offered,
            delivered=flow.delivered - delivered,
            bytes=flow.sent_bytes - sent,
            dropped=increase(drops, after[3]),
            waiting=flow.backlog,
            waits_for="" if lane is None else Wait(hindrance(lane)).name.lower(),
            mean_ms=waited.mean * 1e3,
            p50_ms=waited.quantile(0.5) * 1e3,
            p95_ms=waited.quantile(0.95) * 1e3,
            p99_ms=waited.quantile(0.99) * 1e3,
            acknowledged=acknowledged.count,
            acknowledged_mean_ms=acknowledged.mean * 1e3,
            acknowledged_p99_ms=acknowledged.quantile(0.99) * 1e3,
            join=flow.join,
            on_s=known.on_s,
            off_s=known.off_s,
            drain=known.drain,
            periods=known.periods,
        )

    def _links(self) -> list[LinkSnapshot]:
        shown = []
        for link in self.broker.links:
            shown.append(
                LinkSnapshot(
                    name=link.name,
                    rate=link.rate * 8,
                    estimated=link.estimated,
                    sent=int(link.sent - link.reported),
                    waiting=link.queued,
                )
            )
            link.reported = link.sent
        return shown


def increase(before: tuple[int, ...], after: tuple[int, ...]) -> dict[str, int]:
    """Drops by reason between two counts, where there were any."""
    if before == after:
        return {}
    return {
        reason: now - then
        for reason, then, now in zip(REASONS, before, after, strict=True)
        if now > then
    }
