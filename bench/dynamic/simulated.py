"""The story without a machine: the real controller, and a link that is simulated.

A live run has one set of phases and the machine's own troubles in it. Here time is virtual: devices
publish by the same moments, copies wait for the link by strict priority and in order of arrival,
snapshots come once a second from a moment that is drawn, and a policy is in force as long after its
snapshot as planning really took and `ON_THE_WAY`. So many runs can be made, each with phases of its
own, and both kinds of planning see the same. What it leaves out: turns of flows within a level,
what waits in the kernel, and everything else that only a machine has.
"""

import json
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from bench.congestion.workload import Workload
from bench.dynamic.contenders import LINK, Planning, settings
from bench.dynamic.judging import Judged, Total, judged
from bench.dynamic.playing import TAIL
from bench.dynamic.scenario import Story
from headgate.config import Configuration, parse
from headgate.contract import FlowSnapshot, LinkSnapshot, Policy, Snapshot
from headgate.control.history import Event, Record
from headgate.control.loop import Controller

PACE = 0.98
"""Of a link's rate: what the broker sends (decision 0008)."""
INTERVAL = 1.0
ON_THE_WAY = 0.05
"""Seconds from the broker to the controller and back, beside planning."""
DEFAULT_LEVEL = 7


@dataclass(eq=False)
class SimulatedFlow:
    """One subscription."""

    client: str
    category: str
    topic: str
    size: int
    wire: int
    comes: float
    goes: float
    level: int = DEFAULT_LEVEL
    drop: float = 0.0
    due: float = 0.0
    """Of the next drop: drops are spread evenly, as the broker's almost are."""
    offered: int = 0
    delivered: int = 0
    dropped: int = 0
    waiting: int = 0
    responses: list[float] = field(default_factory=list)


@dataclass
class SimulatedLink:
    """Serves the highest level first, without preemption."""

    levels: dict[int, deque[tuple[float, SimulatedFlow]]] = field(default_factory=dict)
    free: float = 0.0
    """When it has sent what it is sending."""

    def add(self, now: float, flow: SimulatedFlow) -> None:
        self.levels.setdefault(flow.level, deque()).append((now, flow))
        flow.waiting += 1

    def serve(self, until: float, rate: float) -> Iterator[tuple[float, float, SimulatedFlow]]:
        """What is handed over until then: when it came, when it went, whose it is."""
        while self.free < until:
            level = min((n for n, queue in self.levels.items() if queue), default=None)
            if level is None:
                self.free = until
                return
            came, flow = self.levels[level].popleft()
            flow.waiting -= 1
            begin = max(self.free, came)
            self.free = begin + 8 * flow.wire / (PACE * rate)
            yield came, self.free, flow

    def sort(self, now: float) -> None:
        """Levels changed, or somebody went."""
        entries = [entry for queue in self.levels.values() for entry in queue]
        self.levels = {}
        for came, flow in sorted(entries, key=lambda entry: entry[0]):
            if flow.goes > now:
                self.levels.setdefault(flow.level, deque()).append((came, flow))
            else:
                flow.waiting = 0

    def waiting(self) -> int:
        return sum(flow.wire for queue in self.levels.values() for _, flow in queue)


@dataclass(frozen=True)
class Outcome:
    """What came of one run."""

    planning: str
    seed: int
    broken: int
    judged: int
    broken_by_weight: float
    broken_by_category: dict[str, int]
    lost: int
    published: int
    policies: int


def simulate(planning: Planning, story: Story, workload: Workload, seed: int) -> Outcome:
    """One run of the story."""
    run = Simulation(planning, story, workload, seed)
    found = run.run()
    totals = [total for timeline in run.totals.values() for total in timeline]
    return Outcome(
        str(planning),
        seed,
        found.broken(),
        found.judged(),
        found.broken_by_weight(),
        {name: found.broken(name) for name in dict.fromkeys(found.categories.values())},
        sum(total.lost for total in totals),
        sum(total.published for total in totals),
        sum(record.event in (Event.APPLIED, Event.ROLLED_BACK) for record in run.records),
    )


class Simulation:
    """One run."""

    def __init__(self, planning: Planning, story: Story, workload: Workload, seed: int) -> None:
        self.story, self.workload, self.planning = story, workload, planning
        self.random = random.Random(seed)
        self.moments = list(story.moments(workload.devices, seed))
        guests = {guest.name: (guest.comes, guest.goes) for guest in story.guests}
        self.flows = []
        for flow in workload.subscriptions:
            device = workload.devices[flow.device]
            self.flows.append(
                SimulatedFlow(
                    flow.client,
                    flow.category,
                    device.topic,
                    device.packet_size,
                    device.wire_size,
                    *guests.get(flow.client, (0.0, story.seconds + 1e9)),
                    due=self.random.random(),
                )
            )
        self.link = SimulatedLink()
        self.controller = Controller(self.configuration(0.0))
        self.records: list[Record] = []
        length = int(story.seconds + 0.999)
        self.totals = {
            flow.client: [Total() for _ in range(length)] for flow in workload.subscriptions
        }
        self._sent = 0.0

    @cache  # noqa: B019 - as long as the run
    def configuration(self, moment: float) -> Configuration:
        said = settings(self.planning, self.story, self.workload, moment)
        return parse(json.dumps(said))

    def run(self) -> Judged:
        """Messages, snapshots and changes in the order of time."""
        story = self.story
        subscribers: dict[int, list[SimulatedFlow]] = {}
        for told, flow in zip(self.workload.subscriptions, self.flows, strict=True):
            subscribers.setdefault(told.device, []).append(flow)
        snapshot = self.random.random() * INTERVAL
        changes = [moment for moment, _ in story.links[1:]]
        coming: list[tuple[float, Policy]] = []
        for now, device in [*self.moments, (story.seconds + 60.0, -1)]:
            while min(due := [snapshot, *changes[:1], *(at for at, _ in coming[:1])]) <= now:
                moment = min(due)
                self._serve(moment)
                if coming and coming[0][0] == moment:
                    self._enforce(coming.pop(0)[1], moment)
                elif changes and changes[0] == moment:
                    self.controller.configure(self.configuration(changes.pop(0)))
                else:
                    coming += self._look(moment)
                    snapshot += INTERVAL
                if snapshot > story.seconds:
                    snapshot = float("inf")
            self._serve(now)
            for flow in subscribers.get(device, []):
                if flow.comes <= now < flow.goes:
                    self._offer(now, flow)
        categories = {flow.client: flow.category for flow in self.flows}
        return judged(story, self.totals, categories)

    def _serve(self, until: float) -> None:
        if any(flow.goes <= until < flow.goes + INTERVAL for flow in self.flows):
            self.link.sort(until)
        rate = self.story.rate(min(self.link.free, self.story.seconds))
        for came, went, flow in self.link.serve(until, rate):
            flow.delivered += 1
            flow.responses.append(went - came)
            self._sent += flow.wire
            if self._counts(flow, came):
                self._total(flow, came).response += went - came

    def _counts(self, flow: SimulatedFlow, moment: float) -> bool:
        return moment < self.story.seconds and moment < flow.goes - TAIL

    def _total(self, flow: SimulatedFlow, moment: float) -> Total:
        return self.totals[flow.client][int(moment)]

    def _offer(self, now: float, flow: SimulatedFlow) -> None:
        flow.offered += 1
        flow.due += flow.drop
        lost = flow.due >= 1
        if self._counts(flow, now):
            total = self._total(flow, now)
            total.published += 1
            total.lost += lost
        if lost:
            flow.due -= 1
            flow.dropped += 1
        else:
            self.link.add(now, flow)

    def _look(self, now: float) -> list[tuple[float, Policy]]:
        if self.planning is Planning.OFF:
            return []
        answer = self.controller.see(self._snapshot(now), now)
        self.records += [r for r in (*answer.before, answer.record) if r is not None]
        if answer.policy is None:
            return []
        seconds = 0.0 if answer.record is None else answer.record.seconds
        return [(now + seconds + ON_THE_WAY, answer.policy)]

    def _snapshot(self, now: float) -> Snapshot:
        flows = [self._told(flow) for flow in self.flows if flow.offered or flow.waiting]
        link = LinkSnapshot(
            name=LINK,
            rate=PACE * self.story.rate(now),
            estimated=False,
            sent=int(self._sent),
            waiting=self.link.waiting(),
        )
        self._sent = 0.0
        return Snapshot(
            time=now,
            interval=INTERVAL,
            policy=self.controller.in_force.version,
            received=sum(flow.offered for flow in self.flows),
            connections=len(flows),
            flows=flows,
            links=[link],
        )

    def _told(self, flow: SimulatedFlow) -> FlowSnapshot:
        seen = sorted(flow.responses)
        told = FlowSnapshot(
            client=flow.client,
            filter=flow.topic,
            application=flow.client,
            category=flow.category,
            link=LINK,
            priority=flow.level,
            drop=flow.drop,
            offered=flow.offered,
            delivered=flow.delivered,
            bytes=flow.delivered * flow.size,
            dropped={"rate": flow.dropped} if flow.dropped else {},
            waiting=flow.waiting,
            mean_ms=1e3 * sum(seen) / len(seen) if seen else 0.0,
            p99_ms=1e3 * seen[int(0.99 * len(seen))] if seen else 0.0,
        )
        flow.offered = flow.delivered = flow.dropped = 0
        flow.responses = []
        return told

    def _enforce(self, policy: Policy, now: float) -> None:
        self.controller.policy_is(policy)
        for flow in self.flows:
            level, drop = DEFAULT_LEVEL, 0.0
            for rule in policy.rules:
                exact = rule.flow is None or (rule.flow.client, rule.flow.filter) == (
                    flow.client,
                    flow.topic,
                )
                if (
                    exact
                    and rule.application in (None, flow.client)
                    and rule.category in (None, flow.category)
                ):
                    level = level if rule.priority is None else rule.priority
                    drop = drop if rule.drop is None else rule.drop
            flow.level = level
            flow.drop = min(drop, self.story.asked[flow.category].loss)
        self.link.sort(now)
