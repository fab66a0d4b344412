"""From snapshots to a scenario: what the broker measured, in the words of the model.

A snapshot knows filters, not topics. Flows with one filter are taken as copies of one stream, as
they are for filters without wildcards; that is what matters for how copies of a message queue.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from headgate.config import Configuration
from headgate.contract import (
    Application,
    FlowSnapshot,
    LinkSpec,
    PeriodRange,
    PolicyRule,
    Snapshot,
)
from headgate.control.knowledge import Calibrated
from headgate.control.needs import NOBODY, Need, Needs, comes_and_goes
from headgate.core.link import HEADERS, SEGMENT
from headgate.model import Client, Connectivity, LinkCalibration, Scenario, Topic
from headgate.wire.topics import covers, parse_shared

MEMORY = 0.5
"""Weight of the newest second in what is known of a flow's rate."""
LATELY = 0.9
"""What is left after a second of what was lost before: a loss is a fraction, of many messages."""
FORGET_AFTER = 60.0
"""Seconds without a word of a flow after which it is left out."""

JUMP = 0.2
"""An application's load on a link that is this much above what is known of it has jumped up: what
was before the jump says nothing any more."""
CERTAIN = 3.0
"""Standard deviations of a count of messages: less is noise."""

LOSSES = ("rate", "expired", "capacity", "memory")

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
    first: bool = True
    """Only seen in one snapshot so far, for a part of its time perhaps."""
    offered: float = 0.0
    """Messages that matched lately, and of those the lost: some ten seconds' worth."""
    lost: float = 0.0
    arrives: float = 0.0
    """Messages per second that are handed over."""


class Measurements:
    """What the snapshots told so far."""

    def __init__(self, config: Configuration) -> None:
        self.config = config
        self.applications: dict[str, Application] = {a.name: a for a in config.applications}
        """Configured, and commanded."""
        self._commanded: list[Application] = []
        self.needs = Needs(config, self.applications)
        """What each flow asks for: as its application does, or as its client claims."""
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
        as they are: not smoothed. Applications by the names of their needs."""
        self.known_as: dict[str, str] = {}
        """What the broker calls those that have needs of their own, and all others."""
        self.waiting: dict[str, float] = {}
        """Bits that wait for each link."""
        self.partial = False
        """Somebody came within the last snapshot, or a load jumped: perhaps at its very end."""

    def applications_are(self, commanded: list[Application]) -> bool:
        """Those that came by command stand beside the configured ones, or in their place.

        Returns whether that changes anything.
        """
        self._commanded = commanded
        before = self.applications
        known = (*self.config.applications, *commanded)
        self.applications = {application.name: application for application in known}
        self.needs = Needs(self.config, self.applications)
        return self.applications != before

    def configure(self, config: Configuration) -> None:
        """The configuration was read again; what was measured stays true."""
        self.config = config
        self.applications_are(self._commanded)

    def is_known(self, rule: PolicyRule) -> bool:
        """Is anybody there, or configured, whom a rule for one flow or application could mean?"""
        if rule.flow is not None:
            return (rule.flow.client, rule.flow.filter) in self.flows
        if rule.application is None or rule.application in self.applications:
            return True
        return rule.application in self.known_as.values()

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
        jumped = self._jumped(snapshot, interval)
        self.partial = bool(jumped) or any(name not in self.flows for name in told)
        for name, flow in told.items():
            known = self.flows.get(name)
            rate = flow.offered / interval
            size = flow.bytes / flow.delivered if flow.delivered else 0.0
            if known is None:
                known = self.flows[name] = Traffic(flow, rate, size, snapshot.time, snapshot.time)
            else:
                if known.first:  # it came within the second before this one
                    known.rate, known.first = max(rate, known.rate), False
                elif (flow.application, flow.link) in jumped:
                    known.rate = rate
                else:
                    known.rate += newest * (rate - known.rate)
                if size:
                    old = known.size or size
                    known.size = old + newest * (size - old)
                known.latest, known.seen = flow, snapshot.time
            fades = LATELY**interval
            known.offered = known.offered * fades + flow.offered
            known.lost = known.lost * fades + lost(flow)
            known.arrives += newest * (flow.delivered / interval - known.arrives)
            if flow.delivered or not flow.waiting or not flow.connected:
                known.delivered_at = snapshot.time
            key = (self.needs.of(flow).name, flow.link)
            self.loads[key] = self.loads.get(key, 0.0) + rate * known.size * 8
        for name in [n for n in self.flows if n not in told]:
            known = self.flows[name]
            known.rate *= 1 - newest
            if snapshot.time - known.seen > FORGET_AFTER:
                del self.flows[name]
        self.links = {link.name: link.rate for link in snapshot.links}
        self.waiting = {link.name: 8.0 * link.waiting for link in snapshot.links}

    def _jumped(self, snapshot: Snapshot, interval: float) -> set[tuple[str, str]]:
        """Applications, on their links, whose load jumped up: what was before says nothing more.

        A load that doubles is known at once, not in halves; one that falls can wait. It is looked
        at for all flows of an application on a link together, since a single flow's count in a
        second says little.
        """
        together: dict[tuple[str, str], list[FlowSnapshot]] = {}
        for flow in snapshot.flows:
            known = self.flows.get((flow.client, flow.filter))
            if known is not None and not known.first:
                together.setdefault((flow.application, flow.link), []).append(flow)
        found = set()
        for key, flows in together.items():
            count = sum(flow.offered for flow in flows)
            expected = sum(self.flows[flow.client, flow.filter].rate for flow in flows) * interval
            # One message that goes to many flows is one event of chance, not many.
            noise = CERTAIN * max(expected, 1.0) ** 0.5 * _copies(flows)
            if count - expected > max(JUMP * expected, noise):
                found.add(key)
        return found

    def scenario(self) -> Scenario:
        """The present as a scenario; flows that carry nothing are left out."""
        clients: dict[tuple[str, str], list[str]] = {}
        """Filters by client and need: a client's subscriptions may be for several purposes."""
        owner: dict[tuple[str, str], FlowSnapshot] = {}
        needs: dict[str, Need] = {}
        rates: dict[str, float] = {}
        sizes: dict[str, float] = {}
        behind: dict[str, dict[str, None]] = {}
        for (_, topic_filter), traffic in self.flows.items():
            stream = parse_shared(topic_filter)[1]
            sizes[stream] = max(sizes.get(stream, 0.0), traffic.size)
        for (client, topic_filter), traffic in self.flows.items():
            stream = parse_shared(topic_filter)[1]
            # A newcomer may have got nothing yet; what others got of the stream is as large.
            if traffic.rate < 1e-3 or not sizes[stream]:
                continue
            need = self.needs.of(traffic.latest)
            needs[need.name] = need
            clients.setdefault((client, need.name), []).append(topic_filter)
            if (client, need.name) not in owner:
                owner[client, need.name] = traffic.latest
                behind.setdefault(traffic.latest.link, {})[client] = None
            rates[stream] = max(rates.get(stream, 0.0), traffic.rate)
        self.known_as = {name: need.known_as or NOBODY for name, need in needs.items()}
        return Scenario(
            name="measured",
            topics=tuple(
                self._topic(stream, rates[stream], sizes[stream] + headers_beyond(sizes[stream]))
                for stream in rates
            ),
            clients=tuple(
                Client(
                    name=client,
                    subscriptions=tuple(filters),
                    application=name,
                    known_as=None if needs[name].known_as == name else needs[name].known_as,
                    connectivity=self._connectivity(owner[client, name], needs[name]),
                )
                for (client, name), filters in clients.items()
            ),
            applications=tuple(need.application for need in needs.values()),
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

    def _connectivity(self, flow: FlowSnapshot, need: Need) -> Connectivity | None:
        """Of a client that comes and goes, if its application keeps a threshold meanwhile."""
        if need.application.threshold_s is None or not comes_and_goes(flow):
            return None
        return Connectivity(on=flow.on_s, off=flow.off_s, drain=flow.drain)

    def _calibration(self, behind: Iterable[str]) -> tuple[LinkCalibration, ...]:
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
                        overhead=max(0.0, known.overhead - self._headers_beyond(name)),
                    )
                )
            elif drifted != 1.0:
                found.append(LinkCalibration(name=name, response_factor=drifted))
        return tuple(found)

    def _headers_beyond(self, link: str) -> float:
        """Per message on a link, the mean: in what was learned it is part of the overhead."""
        there = [t for t in self.flows.values() if t.latest.link == link and t.size]
        messages = sum(traffic.rate for traffic in there)
        bytes_ = sum(traffic.rate * headers_beyond(traffic.size) for traffic in there)
        return bytes_ / messages if messages else 0.0

    def _links(self, behind: Mapping[str, Iterable[str]]) -> tuple[LinkSpec, ...]:
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


def lost(flow: FlowSnapshot) -> int:
    """Messages that a requirement counts as lost: not those that nobody was there for, or that its
    client must not have."""
    return sum(flow.dropped.get(reason, 0) for reason in LOSSES)


def headers_beyond(size: float) -> float:
    """Bytes of headers that a packet takes on the link beyond those of one segment."""
    return HEADERS * max(0.0, math.ceil(size / SEGMENT) - 1.0)


def _copies(flows: list[FlowSnapshot]) -> float:
    """By how much the chance of a sum is more than that of as many independent messages."""
    streams: dict[str, int] = {}
    for flow in flows:
        streams[flow.filter] = streams.get(flow.filter, 0) + 1
    return float((sum(n * n for n in streams.values()) / max(1, len(flows))) ** 0.5)


def literally(client: str) -> str:
    """A glob that matches this client id only."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in client)
