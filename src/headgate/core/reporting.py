"""What one flow experienced since it was last asked: its part of a snapshot.

It is asked of every flow that was in use, thousands of them in a second, so it is compiled, leaves
out what has its default, and keeps the histograms of a flow that goes on.
"""

from __future__ import annotations

from typing import Any

from headgate.contract import FlowSnapshot
from headgate.core.flows import Flow
from headgate.core.histogram import Histogram
from headgate.core.queueing import Lane
from headgate.core.reasons import Drop, Wait
from headgate.core.scheduler import hindrance
from headgate.core.session import Session

REASONS = tuple(reason.name.lower() for reason in Drop)
HINDRANCES = {int(reason): reason.name.lower() for reason in Wait}


class Report:
    """Counters of a flow as they were when it was last asked."""

    def __init__(self) -> None:
        self.offered = 0
        self.delivered = 0
        self.sent_bytes = 0
        self.drops = [0] * len(REASONS)


def report(flow: Flow, now: float) -> FlowSnapshot | None:
    """None if nothing happened in it and nothing waits."""
    before: Report | None = flow.reported
    waited: Histogram | None = flow.waited
    acknowledged: Histogram | None = flow.acknowledged
    if before is None:
        before = Report()
        flow.reported = before
    if waited is not None and waited.count == 0:
        waited = flow.waited = None  # nothing came for a whole interval
    if acknowledged is not None and acknowledged.count == 0:
        acknowledged = flow.acknowledged = None
    offered = flow.offered - before.offered
    delivered = flow.delivered - before.delivered
    dropped = flow.drops != before.drops
    if (
        not offered
        and not delivered
        and not dropped
        and not flow.backlog
        and waited is None
        and acknowledged is None
    ):
        return None
    session: Session = flow.session
    membership: Any = flow.membership
    fields: dict[str, Any] = {
        "client": session.client_id,
        "filter": flow.filter,
        "application": membership.application,
        "category": membership.category,
        "priority": flow.priority,
        "offered": offered,
        "delivered": delivered,
        "bytes": flow.sent_bytes - before.sent_bytes,
    }
    if membership.claim is not None:
        fields["claim"] = membership.claim
    before.offered = flow.offered
    before.delivered = flow.delivered
    before.sent_bytes = flow.sent_bytes
    if dropped:
        fields["dropped"] = increase(before.drops, flow.drops)
        before.drops = flow.drops[:]
    if session.link is not None and session.link.name:
        fields["link"] = session.link.name
    if session.channel is None:
        fields["connected"] = False
    if flow.drop_rate != 0.0:
        fields["drop"] = flow.drop_rate
    if flow.backlog:
        fields["waiting"] = flow.backlog
        for one in flow.lanes:
            lane: Lane | None = one
            if lane is not None and lane.items:
                fields["waits_for"] = HINDRANCES[hindrance(lane)]
                break
    if waited is not None:
        fields["mean_ms"] = waited.total / waited.count * 1e3
        fields["p50_ms"] = waited.quantile(0.5) * 1e3
        fields["p95_ms"] = waited.quantile(0.95) * 1e3
        fields["p99_ms"] = waited.quantile(0.99) * 1e3
        waited.clear()
    if acknowledged is not None:
        fields["acknowledged"] = acknowledged.count
        fields["acknowledged_mean_ms"] = acknowledged.total / acknowledged.count * 1e3
        fields["acknowledged_p99_ms"] = acknowledged.quantile(0.99) * 1e3
        acknowledged.clear()
    if flow.join != 1.0:
        fields["join"] = flow.join
    if session.connectivity is not None:
        known = session.connectivity.estimate(now)
        fields["on_s"] = known.on_s
        fields["off_s"] = known.off_s
        fields["drain"] = known.drain
        fields["periods"] = known.periods
    return FlowSnapshot(**fields)


def increase(before: list[int], after: list[int]) -> dict[str, int]:
    """Drops by reason between two counts, where there were any."""
    return {
        reason: now - then
        for reason, then, now in zip(REASONS, before, after, strict=True)
        if now > then
    }
