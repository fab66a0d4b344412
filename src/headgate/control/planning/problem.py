"""A planning problem: whose requirements are to hold, and what may be decided for them.

It is cut from a scenario, link by link, because strict priority couples the flows of one link and
no others. On a link, flows of equal requirement and weight are one *group*, for which one priority
and one drop rate are decided (docs/decisions/0021-groups-and-cuts.md). Flows without a requirement
are the background: they keep their order among themselves and go after everybody who asked for
something.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.contract import Application, Discipline, LinkSpec, Policy, PolicyRule, Requirement
from headgate.contract.schema import PRIORITY_LEVELS
from headgate.model import Client, FlowTable, Model, Scenario, Settings

STEPS = 10
"""Drop rates that the search tries for a group, up to what it tolerates; they are refined after."""


@dataclass(frozen=True)
class Group:
    """Flows of one link that are decided alike."""

    name: str
    flows: tuple[int, ...]
    """In the model of their link."""
    requirement: Requirement
    weight: float
    offered: float
    """Messages per second, before anything is dropped."""
    most_drop: float
    """What its requirement tolerates: the bound of `loss`, and of `throughput`."""
    threshold: bool = False
    """Its requirement is the threshold of clients that come and go (ON/OFF)."""

    @property
    def target(self) -> float:
        """The response asked for, in seconds; infinite if only loss or throughput is."""
        asked = [self.requirement.response_ms, self.requirement.mean_ms]
        return min([limit / 1000 for limit in asked if limit is not None], default=np.inf)


@dataclass(frozen=True)
class Decision:
    """One level and one drop rate for each group of a link; level 0 goes first."""

    levels: tuple[int, ...]
    drops: tuple[float, ...]
    """What is given up of each group's messages. Of a client that comes and goes, first of what
    arrives while it is away: those messages wait the longest (`LinkProblem.settings`)."""

    def compact(self) -> Decision:
        """The same order, in levels that are next to each other."""
        used = {level: rank for rank, level in enumerate(sorted(set(self.levels)))}
        return replace(self, levels=tuple(used[level] for level in self.levels))


@dataclass(frozen=True)
class LinkProblem:
    """All that is to be decided on one link."""

    link: LinkSpec
    model: Model
    groups: tuple[Group, ...]
    background: Settings
    """In force now, for all flows of the link. Flows outside the groups keep it, but for the level:
    they go after the groups."""
    origin: tuple[int, ...]
    """Numbers of the flows in the whole scenario."""
    exact: bool = True
    """Groups hold equal requirements only; otherwise, the tightest of similar ones."""

    @property
    def levels(self) -> int:
        """How many levels the groups may use."""
        room = PRIORITY_LEVELS - len(self._background_order)
        return max(1, min(len(self.groups), room))

    @cached_property
    def _others(self) -> NDArray[np.int64]:
        """The flows of the background."""
        grouped = [flow for group in self.groups for flow in group.flows]
        return np.delete(np.arange(len(self.origin)), grouped)

    @cached_property
    def _background_order(self) -> NDArray[np.int64]:
        """Priorities in force in the background, the best first."""
        return np.unique(self.background.priority[self._others])[: PRIORITY_LEVELS // 2]

    @cached_property
    def members(self) -> tuple[NDArray[np.int64], ...]:
        return tuple(np.array(group.flows, dtype=np.int64) for group in self.groups)

    def settings(self, decision: Decision) -> Settings:
        """What a decision means for every flow of the link."""
        priority, drop = self.background.priority.copy(), self.background.drop.copy()
        if len(self._others):
            # As little as possible is changed for who asked for nothing: only what must go later.
            rank = np.searchsorted(self._background_order, priority[self._others])
            rank = np.minimum(rank, len(self._background_order) - 1)
            below = max(decision.levels, default=-1) + 1 + rank
            later = np.maximum(priority[self._others], below)
            priority[self._others] = np.minimum(later, PRIORITY_LEVELS - 1)
        for flows, level, rate in zip(self.members, decision.levels, decision.drops, strict=True):
            priority[flows] = level
            drop[flows] = rate
        if not self.away.any():
            return replace(self.background, priority=priority, drop=drop)
        lost, join = drop.copy(), self.background.join.copy()
        for group, flows in zip(self.groups, self.members, strict=True):
            coming = flows[self.away[flows] > 0]
            join[coming], drop[coming] = shared_loss(lost[coming], self.away[coming])
            if not group.threshold:  # the operator's own join is the most that may wait
                join[coming] = np.minimum(join[coming], self.background.join[coming])
        return replace(self.background, priority=priority, drop=drop, join=join)

    @cached_property
    def away(self) -> NDArray[np.float64]:
        """The part of the time that the client of each flow is away."""
        known = [client.connectivity for client in self.model.scenario.clients]
        return np.array(
            [
                0.0 if (c := known[client]) is None else c.off / (c.on + c.off)
                for client in self.model.table.client_of
            ]
        )

    def slowed(self, factors: Mapping[str, float]) -> LinkProblem:
        """The same with some topics published that many times less often."""
        scenario = slower(self.model.scenario, factors)
        return replace(self, model=Model(scenario, self.model.percentiles))

    def in_force(self) -> Decision | None:
        """The decision that the policy in force amounts to, if it treats each group alike."""
        levels, drops = [], []
        for group in self.groups:
            priorities = {int(self.background.priority[flow]) for flow in group.flows}
            rates = {self._given_up(flow) for flow in group.flows}
            if len(priorities) > 1 or len(rates) > 1 or max(rates) > group.most_drop + 1e-12:
                return None
            levels.append(priorities.pop())
            drops.append(rates.pop())
        decision = Decision(tuple(levels), tuple(drops)).compact()
        if self.away.any():
            meant = self.settings(decision)
            same = np.allclose(meant.join, self.background.join, atol=1e-6)
            if not same or not np.allclose(meant.drop, self.background.drop, atol=1e-6):
                return None
        return decision

    def _given_up(self, flow: int) -> float:
        drop, away = float(self.background.drop[flow]), float(self.away[flow])
        if not away:
            return drop
        return round(1 - (1 - drop) * (1 - away * (1 - float(self.background.join[flow]))), 9)

    def split(self) -> LinkProblem:
        """The same, with a decision for every flow by itself."""
        return replace(self, groups=_groups(self.model, split=True), exact=True)

    def with_rate(self, rate: int) -> LinkProblem:
        """The same on a faster or slower link."""
        link = msgspec.structs.replace(self.link, rate=rate)
        scenario = msgspec.structs.replace(self.model.scenario, links=(link,))
        return replace(self, link=link, model=Model(scenario, self.model.percentiles))

    def with_requirement(self, number: int, requirement: Requirement) -> LinkProblem:
        """The same if one group asked for something else."""
        groups = list(self.groups)
        offered = self.model.offered[list(groups[number].flows)]
        groups[number] = replace(
            groups[number],
            requirement=requirement,
            most_drop=_tolerated(requirement, offered),
        )
        percentiles = sorted({*self.model.percentiles, requirement.percentile})
        model = self.model
        if len(percentiles) > len(model.percentiles):
            model = Model(model.scenario, percentiles)
        return replace(self, groups=tuple(groups), model=model)


@dataclass(frozen=True)
class Problem:
    """A scenario, the policy in force, and the links on which something can be decided."""

    scenario: Scenario
    table: FlowTable
    policy: Policy
    links: tuple[LinkProblem, ...]
    notes: tuple[str, ...] = ()
    """What was left out, and why."""
    in_force: Settings = field(repr=False, kw_only=True)

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        policy: Policy | None = None,
        *,
        most_groups: int = 24,
    ) -> Problem:
        """Cut a problem from a scenario.

        More than `most_groups` on a link are joined with those of similar requirements.
        """
        policy = Policy(rules=scenario.policy) if policy is None else policy
        table = FlowTable(scenario)
        settings = table.settings(policy)
        behind: dict[int, list[int]] = {}
        for number, flow in enumerate(table.flows):
            if flow.link is not None:
                behind.setdefault(flow.link, []).append(number)
        links, notes = [], []
        for number, flows in sorted(behind.items()):
            link = scenario.links[number]
            if link.rate is None:
                notes.append(f"link {link.name}: its rate is not known, nothing is planned on it")
            elif link.discipline is Discipline.DRR:
                notes.append(f"link {link.name}: drr shares by weight, nothing is planned on it")
            else:
                links.append(_link_problem(table, settings, link, flows, most_groups))
        notes.extend(_unlimited(table))
        return cls(scenario, table, policy, tuple(links), tuple(notes), in_force=settings)


def _link_problem(
    table: FlowTable,
    settings: Settings,
    link: LinkSpec,
    flows: Sequence[int],
    most_groups: int,
) -> LinkProblem:
    scenario = _behind(table, link, flows)
    percentiles = {
        application.requirement.percentile
        for application in scenario.applications
        if application.requirement is not None and application.requirement.response_ms is not None
    }
    model = Model(scenario, sorted(percentiles))
    groups = _groups(model, split=False)
    exact = len(groups) <= most_groups
    if not exact:
        groups = _joined(groups, most_groups)
    chosen = list(flows)
    part = Settings(
        priority=settings.priority[chosen],
        drop=np.zeros(len(chosen)),
        join=settings.join[chosen],
        lifetime=settings.lifetime[chosen],
        capacity=settings.capacity[chosen],
    )
    tolerated = np.ones(len(chosen))
    for group in groups:
        tolerated[list(group.flows)] = group.most_drop
    # The broker, too, takes no more than an application tolerates (decision 0006).
    part = part.with_drop(np.minimum(settings.drop[chosen], tolerated))
    return LinkProblem(link, model, groups, part, tuple(chosen), exact)


def _behind(table: FlowTable, link: LinkSpec, flows: Sequence[int]) -> Scenario:
    """The part of a scenario that concerns one link."""
    whole = table.scenario
    names = {table.client_of[flow]: table.flows[flow].needs for flow in flows}
    clients: list[Client] = []
    for number, name in names.items():
        clients.append(msgspec.structs.replace(whole.clients[number], application=name))
    used = set(names.values())
    topics = whole.topics
    if whole.input is None:  # every message passes the input, subscribed to here or not
        member = np.zeros(len(table), dtype=bool)
        member[list(flows)] = True
        wanted = np.unique(table.stream_topic[member[table.stream_flow]])
        topics = tuple(whole.topics[number] for number in wanted)
    return msgspec.structs.replace(
        whole,
        name=link.name,
        topics=topics,
        clients=tuple(clients),
        applications=tuple(a for a in whole.applications if a.name in used),
        links=(msgspec.structs.replace(link, clients=("*",)),),
        policy=(),
    )


def _groups(model: Model, *, split: bool) -> tuple[Group, ...]:
    applications = {a.name: a for a in model.scenario.applications}
    members: dict[tuple[Requirement, float, bool, int], list[int]] = {}
    for number, flow in enumerate(model.table.flows):
        application = applications.get(flow.needs or "")
        if application is None:
            continue
        client = model.scenario.clients[model.table.client_of[number]]
        comes = client.connectivity is not None
        requirement = asked_for(application, comes)
        if requirement is not None:
            held = comes and application.threshold_s is not None
            key = (requirement, application.weight, held, number if split else -1)
            members.setdefault(key, []).append(number)
    groups = []
    for (requirement, weight, held, _), flows in members.items():
        groups.append(
            Group(
                _name(model, flows, split),
                tuple(flows),
                requirement,
                weight,
                float(model.offered[flows].sum()),
                _tolerated(requirement, model.offered[flows]),
                held,
            )
        )
    # Sorted by what they ask for: a good plan is often in this order, and people read it so.
    return tuple(sorted(groups, key=lambda group: group.target))


def asked_for(application: Application, comes_and_goes: bool) -> Requirement | None:
    """What an application asks for its flows to clients that come and go, and to others.

    A threshold is a mean over what is delivered, whether the client was there or not: it stands in
    place of other responses, which nobody can promise to who is away. Without a word on loss, as
    much may be lost as the threshold needs (ON/OFF §II-C).
    """
    if not comes_and_goes or application.threshold_s is None:
        return application.requirement
    said = application.requirement
    return Requirement(
        mean_ms=1000 * application.threshold_s,
        loss=1.0 if said is None else said.loss,
        throughput=None if said is None else said.throughput,
    )


def shared_loss(
    lost: NDArray[np.float64], away: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Join probability and drop rate that together lose this much: joining is given up first,
    because what arrives while the client is away waits the longest."""
    join = np.clip(1 - lost / away, 0.0, 1.0)
    drop = np.where(lost > away, 1 - (1 - lost) / np.maximum(1 - away, 1e-12), 0.0)
    return join, np.clip(drop, 0.0, 1.0)


def slower(scenario: Scenario, factors: Mapping[str, float]) -> Scenario:
    """A scenario in which some topics are published that many times less often."""
    if not factors:
        return scenario
    return msgspec.structs.replace(
        scenario,
        topics=tuple(
            msgspec.structs.replace(topic, rate=topic.mean_rate / factors[topic.name])
            if topic.name in factors
            else topic
            for topic in scenario.topics
        ),
    )


def factors_of(scenario: Scenario, policy: Policy) -> dict[str, float]:
    """By how much a policy slows which topics."""
    found = {}
    for topic in scenario.topics:
        period = policy.periods.get(topic.name)
        if topic.period is not None and period is not None and period > topic.period.min:
            found[topic.name] = min(period, topic.period.max) / topic.period.min
    return found


def _tolerated(requirement: Requirement, offered: NDArray[np.float64]) -> float:
    """The largest drop rate that leaves every flow what it must get."""
    most = requirement.loss
    if requirement.throughput is not None:
        for rate in offered:
            most = min(most, max(0.0, 1 - requirement.throughput / rate) if rate else 1.0)
    return most


def _name(model: Model, flows: Sequence[int], split: bool) -> str:
    """What people call these flows."""
    if split:
        return model.table.flows[flows[0]].name
    categories = dict.fromkeys(model.table.flows[flow].category for flow in flows)
    applications = dict.fromkeys(model.table.flows[flow].needs for flow in flows)
    names = [str(name) for name in applications]
    if len(names) > 1 and len(categories) == 1 and None not in categories:
        return str(next(iter(categories)))
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} more"


def _joined(groups: Sequence[Group], most: int) -> tuple[Group, ...]:
    """Neighbours by target become one group with the tightest requirement of all in it."""
    joined = []
    for some in np.array_split(np.arange(len(groups)), most):
        members = [groups[number] for number in some]
        asked = [group.requirement for group in members]
        joined.append(
            Group(
                f"{members[0].name} … {members[-1].name}" if len(members) > 1 else members[0].name,
                tuple(sorted(flow for group in members for flow in group.flows)),
                Requirement(
                    response_ms=_least(r.response_ms for r in asked),
                    percentile=max(r.percentile for r in asked),
                    mean_ms=_least(r.mean_ms for r in asked),
                    loss=min(r.loss for r in asked),
                ),
                max(group.weight for group in members),
                sum(group.offered for group in members),
                min(group.most_drop for group in members),
            )
        )
    return tuple(joined)


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _unlimited(table: FlowTable) -> list[str]:
    """Applications with a requirement and no link: their response is not planned."""
    needy = {a.name for a in table.scenario.applications if a.requirement is not None}
    free = {f.needs for f in table.flows if f.link is None and f.needs in needy}
    return [f"{name} has flows behind no link: they are taken as never waiting" for name in free]


def keep_rules(policy: Policy, planned: Sequence[PolicyRule]) -> tuple[PolicyRule, ...]:
    """The rules in force, with what was planned on top.

    Settings that are not planned (join, lifetime, capacity) stay; a rule whose selectors were
    planned again gives up its priority and drop rate, so that a policy does not grow by planning.
    """
    again = {_selectors(rule) for rule in planned}
    kept = []
    for rule in policy.rules:
        if _selectors(rule) in again:
            joins = {_selectors(new) for new in planned if new.join is not None}
            rule = msgspec.structs.replace(
                rule,
                priority=None,
                drop=None,
                join=None if _selectors(rule) in joins else rule.join,
            )
            if rule.join is None and rule.lifetime is None and rule.capacity is None:
                continue
        kept.append(rule)
    return (*kept, *planned)


def _selectors(rule: PolicyRule) -> tuple[object, ...]:
    return rule.application, rule.category, rule.topic, rule.flow
