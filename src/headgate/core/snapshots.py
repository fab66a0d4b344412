"""Snapshots: what each flow experienced since the last one, for whoever plans (DESIGN.md).

They are made only while somebody subscribes to `$SYS/headgate/snapshot`, so that a broker without a
controller does not pay for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.contract import FlowSnapshot, LinkSnapshot, Snapshot
from headgate.core.connectivity import NOTHING
from headgate.core.flows import Drop, Flow, Wait
from headgate.core.histogram import Histogram
from headgate.core.scheduler import hindrance

if TYPE_CHECKING:
    from headgate.core.broker import Broker

TOPIC = "$SYS/headgate/snapshot"


class Snapshots:
    def __init__(self, broker: Broker, interval: float, now: float) -> None:
        self.broker = broker
        self.interval = interval
        self._last = now
        self._received = 0
        broker.schedule(now + interval, self._publish)

    def _publish(self, now: float) -> None:
        route = self.broker.router.route(TOPIC.encode())
        if route.flows or route.groups:
            self.broker.publish(TOPIC, self.take(now).to_json(), False, now)
        self.broker.schedule(now + self.interval, self._publish)

    def take(self, now: float) -> Snapshot:
        """What happened since the last one."""
        broker = self.broker
        flows = [
            shown
            for session in broker.sessions.values()
            for flow in session.flows.values()
            if (shown := self._flow(flow, now)) is not None
        ]
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

    def _flow(self, flow: Flow, now: float) -> FlowSnapshot | None:
        before = flow.reported
        after = (flow.offered, flow.delivered, flow.sent_bytes, tuple(flow.drops))
        if after == before and not flow.backlog:
            return None
        flow.reported = after
        offered, delivered, sent, drops = before or (0, 0, 0, (0,) * len(Drop))
        session = flow.session
        waited = flow.waited or Histogram()
        acknowledged = flow.acknowledged or Histogram()
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
            dropped={
                reason.name.lower(): flow.drops[reason] - drops[reason]
                for reason in Drop
                if flow.drops[reason] > drops[reason]
            },
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
