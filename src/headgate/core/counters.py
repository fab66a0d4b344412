"""Totals of the broker since it started, for `$SYS` and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.core.flows import Flow


class Counters:
    def __init__(self) -> None:
        self.messages_received = 0
        self.messages_unmatched = 0
        self.messages_refused = 0
        self.messages_retained = 0
        self.messages_urgent = 0
        self.messages_critical = 0
        self.claims_denied = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.connections_opened = 0
        self.connections_refused = 0
        self.connections_failed = 0
        self.subscriptions_refused = 0
        self.numbered = 0


class Past:
    """What flows had counted whose subscriptions are over."""

    def __init__(self) -> None:
        self.delivered = 0
        self.drops = [0] * 7

    def add(self, flow: Flow) -> None:
        self.delivered += flow.delivered
        for reason, count in enumerate(flow.drops):
            self.drops[reason] += count
