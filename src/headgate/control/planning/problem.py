"""A planning problem: whose requirements are to hold, and what may be decided for them.

It is cut from a scenario, link by link, because strict priority couples the flows of one link and
no others. On a link, flows of equal requirement and weight are one *group*, for which one priority
and one drop rate are decided (docs/decisions/0021-groups-and-cuts.md). Flows without a requirement
are the background: they keep their order among themselves and go after everybody who asked for
something.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.contract import Discipline, LinkSpec, Policy, PolicyRule, Requirement
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
        return replace(self.background, priority=priority, drop=drop)

    def in_force(self) -> Decision | None:
        """The decision that the policy in force amounts to, if it treats each group alike."""
        levels, drops = [], []
        for group in self.groups:
            priorities = {int(self.background.priority[flow]) for flow in group.flows}
            rates = {float(self.background.drop[flow]) for flow in group.flows}
            if len(priorities) > 1 or len(rates) > 1 or max(rates) > group.most_drop + 1e-12:
                return None
            levels.append(priorities.pop())
            drops.append(rates.pop())
        return Decision(tuple(levels), tuple(drops)).compact()

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
    numbers = dict.fromkeys(table.client_of[flow] for flow in flows)
    names = {table.flows[flow].client: table.flows[flow].application for flow in flows}
    clients: list[Client] = []
    for number in numbers:
        client = whole.clients[number]
        clients.append(msgspec.structs.replace(client, application=names[client.name]))
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
    members: dict[object, list[int]] = {}
    for number, flow in enumerate(model.table.flows):
        application = applications.get(flow.application or "")
        if application is None or application.requirement is None:
            continue
        key: object = (application.requirement, application.weight)
        members.setdefault((key, number) if split else key, []).append(number)
    groups = []
    for flows in members.values():
        application = applications[model.table.flows[flows[0]].application or ""]
        assert application.requirement is not None
        groups.append(
            Group(
                _name(model, flows, split),
                tuple(flows),
                application.requirement,
                application.weight,
                float(model.offered[flows].sum()),
                _tolerated(application.requirement, model.offered[flows]),
            )
        )
    # Sorted by what they ask for: a good plan is often in this order, and people read it so.
    return tuple(sorted(groups, key=lambda group: group.target))


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
    applications = dict.fromkeys(model.table.flows[flow].application for flow in flows)
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
    free = {f.application for f in table.flows if f.link is None and f.application in needy}
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
            rule = msgspec.structs.replace(rule, priority=None, drop=None)
            if rule.join is None and rule.lifetime is None and rule.capacity is None:
                continue
        kept.append(rule)
    return (*kept, *planned)


def _selectors(rule: PolicyRule) -> tuple[object, ...]:
    return rule.application, rule.category, rule.topic, rule.flow
