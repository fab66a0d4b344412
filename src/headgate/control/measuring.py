"""From snapshots to a scenario: what the broker measured, in the words of the model.

A snapshot knows filters, not topics. Flows with one filter are taken as copies of one stream, as
they are for filters without wildcards; that is what matters for how copies of a message queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from headgate.config import Configuration
from headgate.contract import Application, FlowSnapshot, LinkSpec, PeriodRange, Snapshot
from headgate.control.knowledge import Calibrated
from headgate.core.link import HEADERS
from headgate.model import Client, Connectivity, LinkCalibration, Scenario, Topic
from headgate.wire.topics import covers, parse_shared

MEMORY = 0.5
"""Weight of the newest second in what is known of a flow's rate."""
ENOUGH_PERIODS = 5.0
"""As the broker itself asks for before it acts on what it knows of a client."""
FORGET_AFTER = 60.0
"""Seconds without a word of a flow after which it is left out."""

FlowName = tuple[str, str]
"""Client and filter."""


@dataclass
class Traffic:
    """What is known of one flow."""

    latest: FlowSnapshot
    rate: float
    """Messages per second that match."""
    size: float
    """Bytes of a packet."""
    seen: float
    delivered_at: float


class Measurements:
    """What the snapshots told so far."""

    def __init__(self, config: Configuration) -> None:
        self.config = config
        self.applications: dict[str, Application] = {a.name: a for a in config.applications}
        """Configured, and commanded."""
        self.flows: dict[FlowName, Traffic] = {}
        self.links: dict[str, float] = {}
        """Bits per second; 0 if not known."""
        self.calibration: Mapping[str, Calibrated] = {}
        self.drifted: Mapping[str, float] = {}
        self.periods: Mapping[str, float] = {}
        """What publishers were told, in seconds by topic."""
        self._unslowed: dict[str, float] = {}
        """Messages per second of streams when nobody had told their publishers anything."""
        self.loads: dict[tuple[str, str], float] = {}
        """Bits per second that were offered to each application on each link in the last snapshot,
        as they are: not smoothed."""

    def applications_are(self, commanded: list[Application]) -> bool:
        """Those that came by command stand beside the configured ones, or in their place.

        Returns whether that changes anything.
        """
        before = self.applications
        known = (*self.config.applications, *commanded)
        self.applications = {application.name: application for application in known}
        return self.applications != before

    def described(self) -> dict[str, Application]:
        """All applications that are known, with their own requirement or their category's."""
        return {
            name: msgspec.structs.replace(
                application, requirement=self.config.requirement_of(application)
            )
            for name, application in self.applications.items()
        }

    def take(self, snapshot: Snapshot) -> None:
        """Learn from one snapshot."""
        interval = max(snapshot.interval, 1e-3)
        newest = 1 - (1 - MEMORY) ** interval
        told = {(flow.client, flow.filter): flow for flow in snapshot.flows}
        self.loads = {}
        for name, flow in told.items():
            known = self.flows.get(name)
            rate = flow.offered / interval
            size = flow.bytes / flow.delivered if flow.delivered else 0.0
            if known is None:
                known = self.flows[name] = Traffic(flow, rate, size, snapshot.time, snapshot.time)
            else:
                known.rate += newest * (rate - known.rate)
                if size:
                    old = known.size or size
                    known.size = old + newest * (size - old)
                known.latest, known.seen = flow, snapshot.time
            if flow.delivered or not flow.waiting or not flow.connected:
                known.delivered_at = snapshot.time
            key = (flow.application or "-", flow.link)
            self.loads[key] = self.loads.get(key, 0.0) + rate * known.size * 8
        for name in [n for n in self.flows if n not in told]:
            known = self.flows[name]
            known.rate *= 1 - newest
            if snapshot.time - known.seen > FORGET_AFTER:
                del self.flows[name]
        self.links = {link.name: link.rate for link in snapshot.links}

    def scenario(self) -> Scenario:
        """The present as a scenario; flows that carry nothing are left out."""
        clients: dict[str, list[str]] = {}
        owner: dict[str, FlowSnapshot] = {}
        rates: dict[str, float] = {}
        sizes: dict[str, float] = {}
        behind: dict[str, list[str]] = {}
        for (client, topic_filter), traffic in self.flows.items():
            if traffic.rate < 1e-3 or not traffic.size:
                continue
            stream = parse_shared(topic_filter)[1]
            clients.setdefault(client, []).append(topic_filter)
            if client not in owner:
                owner[client] = traffic.latest
                behind.setdefault(traffic.latest.link, []).append(client)
            rates[stream] = max(rates.get(stream, 0.0), traffic.rate)
            sizes[stream] = max(sizes.get(stream, 0.0), traffic.size)
        return Scenario(
            name="measured",
            topics=tuple(self._topic(stream, rates[stream], sizes[stream]) for stream in rates),
            clients=tuple(
                Client(
                    name=client,
                    subscriptions=tuple(filters),
                    application=owner[client].application or None,
                    connectivity=self._connectivity(owner[client]),
                )
                for client, filters in clients.items()
            ),
            applications=self._applications(owner),
            links=self._links(behind),
            overhead=HEADERS,
            calibration=self._calibration(behind),
        )

    def _topic(self, stream: str, rate: float, size: float) -> Topic:
        """With the rate that it would have if its publishers had not been told to go slower."""
        wide = next((a for a in self.config.planner.periods if covers(a.topic, stream)), None)
        if wide is None or "+" in stream or "#" in stream:
            return Topic(name=stream, rate=rate, size=round(size))
        told = self.periods.get(stream)
        if told is None:
            self._unslowed[stream] = rate
        else:
            # Publishers that do not obey must not be taken for ones that would send even more.
            most = max(rate, self._unslowed.get(stream, rate))
            rate = min(rate * told / wide.min, most)
        period = PeriodRange(min=wide.min, max=wide.max)
        return Topic(name=stream, rate=rate, size=round(size), period=period)

    def _connectivity(self, flow: FlowSnapshot) -> Connectivity | None:
        """Of a client that comes and goes, if its application keeps a threshold meanwhile."""
        application = self.applications.get(flow.application)
        if application is None or application.threshold_s is None:
            return None
        if flow.periods < ENOUGH_PERIODS or not (flow.on_s and flow.off_s and flow.drain):
            return None
        return Connectivity(on=flow.on_s, off=flow.off_s, drain=flow.drain)

    def _calibration(self, behind: dict[str, list[str]]) -> tuple[LinkCalibration, ...]:
        """What the pipeline learned of the links, and what drifted since."""
        found = []
        for name in behind:
            known, drifted = self.calibration.get(name), self.drifted.get(name, 1.0)
            if known is not None:
                found.append(
                    LinkCalibration(
                        name=name,
                        burstiness=known.burstiness,
                        response_factor=known.response_factor * drifted,
                        overhead=known.overhead,
                    )
                )
            elif drifted != 1.0:
                found.append(LinkCalibration(name=name, response_factor=drifted))
        return tuple(found)

    def _applications(self, owner: dict[str, FlowSnapshot]) -> tuple[Application, ...]:
        """Those that have flows; clients may have named some that nobody configured."""
        categories = {c.name: c.requirement for c in self.config.categories}
        found: dict[str, Application] = {}
        for flow in owner.values():
            name = flow.application
            if not name or name in found:
                continue
            base = self.applications.get(name, Application(name=name))
            found[name] = Application(
                name=name,
                category=flow.category or base.category,
                requirement=base.requirement or categories.get(flow.category),
                weight=base.weight,
                threshold_s=base.threshold_s,
            )
        return tuple(found.values())

    def _links(self, behind: dict[str, list[str]]) -> tuple[LinkSpec, ...]:
        """With the clients that are behind them, by name: globs were the broker's to resolve."""
        specs = {link.name: link for link in self.config.links}
        found = []
        for name, rate in self.links.items():
            if behind.get(name) and name in specs:
                spec = specs[name]
                learned = self.calibration.get(name)
                if not rate and learned is not None and learned.rate is not None:
                    rate = learned.rate  # the broker does not know it yet
                found.append(
                    LinkSpec(
                        name=name,
                        clients=tuple(literally(client) for client in behind[name]),
                        rate=max(1, round(rate)) if rate else None,
                        discipline=spec.discipline,
                        shares=spec.shares,
                        weights=spec.weights,
                    )
                )
        return tuple(found)


def literally(client: str) -> str:
    """A glob that matches this client id only."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in client)
