"""From a problem to a plan: link by link, then one policy for all.

The exact planner (`exact`) decides, `polishing` refines, `conflicts` explains what cannot be had,
and every plan is judged by the model as a whole before it leaves this file.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from headgate.contract import FlowSelector, Policy, PolicyRule
from headgate.control.planning.conflicts import explain
from headgate.control.planning.exact import OutOfTimeError, Search
from headgate.control.planning.judging import Judge, strain
from headgate.control.planning.outlook import outlooks
from headgate.control.planning.pddl.planner import Style, solve
from headgate.control.planning.plan import Conflict, Plan, Step, Verdict
from headgate.control.planning.polishing import Polish
from headgate.control.planning.problem import (
    Decision,
    Group,
    LinkProblem,
    Problem,
    factors_of,
    keep_rules,
)
from headgate.control.planning.slowing import Adapting, Slowdown, cheapest, periods
from headgate.model import FlowTable, Scenario, Settings

EXACT = "exact"
TIME_LIMIT = 10.0
FOR_THE_PLAN = 0.6
"""The part of the time for a plan that keeps everything; the rest is for the case of none."""
FOR_PROOFS = 1.5
"""Seconds, for all links together, in which a plan that is known already is tried to be improved or
proven to be as cheap as can be. More of them hardly make it cheaper (decision 0053)."""
SPLIT_UP_TO = 8
"""On a link with at most this many flows, every flow is decided by itself before a requirement is
called infeasible."""
SPLIT_FOR = 2.0
"""Seconds that this may take."""


@dataclass(frozen=True)
class Decided:
    """What was found for one link."""

    problem: LinkProblem
    decision: Decision
    conflict: Conflict | None = None
    slowed: Mapping[str, float] = field(default_factory=dict)
    """Topics whose publishers are to publish that many times less often."""


def plan(
    scenario: Scenario,
    policy: Policy | None = None,
    *,
    seconds: float = TIME_LIMIT,
    remedies: bool = True,
    engine: str = EXACT,
    style: Style = Style.AUTO,
) -> Plan:
    """Plan for a scenario; `policy` is the one in force, by default the scenario's own.

    `remedies` looks for what would make an infeasible set of requirements feasible, which takes
    longer than planning itself. Another `engine` than the exact one is asked only where it is known
    that a plan exists: PDDL engines search for what is not there until their time is up.
    """
    began = time.monotonic()
    problem = Problem.of(scenario, policy)
    decided = []
    slowed: dict[str, float] = {}
    content = FOR_PROOFS / max(1, len(problem.links))
    for number, link in enumerate(problem.links):
        # Each link gets an equal part of what is left, so that the last one gets its part too.
        left = seconds - (time.monotonic() - began)
        until = time.monotonic() + max(0.05, left / (len(problem.links) - number))
        # What was slowed for another link helps here, too.
        found = decide(
            link.slowed(slowed) if slowed else link, until, remedies=remedies, content=content
        )
        found = reconciled(found, link, slowed, until)
        slowed |= found.slowed
        if engine != EXACT and found.conflict is None and link.groups:
            used = found.problem
            solved = solve(used, engine, until, style=style, exact=found.decision)
            found = replace(found, decision=solved.decision)
        decided.append(found)
    return assemble(problem, decided, engine=engine, began=began)


def decide(
    problem: LinkProblem, until: float, *, remedies: bool, content: float = FOR_PROOFS
) -> Decided:
    """The exact planner on one link; `content` seconds for a better plan than the first."""
    if not problem.groups:
        return Decided(problem, Decision((), ()))
    everyone = range(len(problem.groups))
    now = time.monotonic()
    search = Search(problem, now + FOR_THE_PLAN * (until - now))
    search.content = min(search.deadline, now + content)
    proven = problem.exact
    try:
        found = search.cheapest(everyone)
    except OutOfTimeError:
        found, proven = None, False
    if found is not None:
        return _polished(problem, search.judge, found.decision, everyone, until)
    if proven and any(len(group.flows) > 1 for group in problem.groups):
        alone = problem.split()
        flows = range(len(alone.groups))
        single = Search(alone, min(until, time.monotonic() + SPLIT_FOR))
        proven = False
        if len(flows) <= SPLIT_UP_TO:
            try:
                found = single.cheapest(flows)
                proven = found is None
            except OutOfTimeError:
                pass
        if found is not None:
            return _polished(alone, single.judge, found.decision, flows, until)
    search.deadline = search.content = until
    degraded = search.least_broken()
    met = search.judge(degraded).met
    kept = [u for u in everyone if met[u]]
    rescued = Polish(problem, search.judge, kept, until).rescued(degraded)
    broken = tuple(group.name for u, group in enumerate(problem.groups) if u not in kept)
    conflict = explain(problem, search, broken, proven=proven, until=until, remedies=remedies)
    return Decided(problem, rescued, conflict)


def keep_all(problem: LinkProblem, until: float, *, apart: bool = False) -> Decided | None:
    """A decision that keeps every requirement of a link; None if none was found in time.

    With `apart` only such are looked for as have each group on a level of its own, which is quick.
    """
    everyone = range(len(problem.groups))
    now = time.monotonic()
    search = Search(problem, now + FOR_THE_PLAN * (until - now))
    try:
        found = search.apart(everyone) if apart else search.cheapest(everyone)
    except OutOfTimeError:
        return None
    if found is None:
        return None
    if apart:
        return Decided(problem, found.decision)
    return _polished(problem, search.judge, found.decision, everyone, until)


def reconciled(
    found: Decided, link: LinkProblem, slowed: Mapping[str, float], until: float
) -> Decided:
    """Where requirements exclude each other and publishers adapt, slow those as little as will do.

    If even the slowest they go does not do, they are left alone: it would cost and mend nothing.
    `link` is the problem with nothing slowed, `slowed` what is slowed in any case.
    """
    adapting = Adapting.of(link)
    if found.conflict is None or not adapting.ranges:
        return found
    known: dict[Slowdown, Decided | None] = {}

    def factors(chosen: Slowdown) -> dict[str, float]:
        asked = adapting.factors(chosen)
        return {t: max(asked.get(t, 1.0), slowed.get(t, 1.0)) for t in {*asked, *slowed}}

    def decided(chosen: Slowdown) -> Decided | None:
        if chosen not in known:
            slower = link.slowed(factors(chosen))
            search = Search(slower, until)
            try:
                plan = search.cheapest(range(len(slower.groups)))
            except OutOfTimeError:
                plan = None
            everyone = range(len(slower.groups))
            known[chosen] = (
                None
                if plan is None
                else _polished(slower, search.judge, plan.decision, everyone, until)
            )
        return known[chosen]

    chosen = cheapest(adapting, lambda one: decided(one) is not None, until)
    best = None if chosen is None else decided(chosen)
    if chosen is None or best is None:
        return found
    return replace(best, slowed=factors(chosen))


def _polished(
    problem: LinkProblem, judge: Judge, decision: Decision, kept: Iterable[int], until: float
) -> Decided:
    polish = Polish(problem, judge, tuple(kept), until)
    return Decided(problem, polish(decision, problem.in_force()))


def assemble(problem: Problem, decided: Sequence[Decided], *, engine: str, began: float) -> Plan:
    """One policy for all links, judged as a whole."""
    table = problem.table
    priority, drop = problem.in_force.priority.copy(), problem.in_force.drop.copy()
    join = problem.in_force.join.copy()
    planned, comes = np.zeros((2, len(table)), dtype=bool)
    before, after = [0.0], [0.0]
    for part in decided:
        settings = part.problem.settings(part.decision)
        chosen = list(part.problem.origin)
        priority[chosen], drop[chosen], planned[chosen] = settings.priority, settings.drop, True
        join[chosen] = settings.join
        comes[chosen] = part.problem.away > 0
        before.append(_pressure(part.problem, part.problem.background))
        after.append(_pressure(part.problem, settings))
    conflicts = tuple(part.conflict for part in decided if part.conflict is not None)
    chosen_for = Chosen(priority, drop, np.round(join, 4), planned, comes)
    rules = _rules(problem, chosen_for)
    slowed = {topic: f for part in decided for topic, f in part.slowed.items()}
    told = periods(problem.scenario, slowed)
    policy = Policy(
        version=problem.policy.version + 1,
        rules=keep_rules(problem.policy, rules),
        periods=told,
    )
    same = not rules and told == dict(problem.policy.periods)
    if same:
        policy = problem.policy
    return Plan(
        verdict=Verdict.DEGRADED if conflicts else Verdict.UNCHANGED if same else Verdict.PLANNED,
        policy=policy,
        steps=tuple(step for part in decided for step in _steps(part)),
        outlooks=outlooks(problem, policy),
        conflicts=conflicts,
        cost=sum(_lost(part.problem.groups, part.decision) for part in decided)
        + unpublished(problem.table, slowed),
        cost_before=sum(_lost_now(part.problem) for part in decided)
        + unpublished(problem.table, factors_of(problem.scenario, problem.policy)),
        pressure=(sum(before), sum(after)),
        notes=problem.notes,
        engine=engine,
        seconds=time.monotonic() - began,
    )


def _pressure(problem: LinkProblem, settings: Settings) -> float:
    prediction = problem.model.predict(settings)
    offered = problem.model.offered
    return sum(
        group.weight * min(1e3, strain(group.requirement, prediction, offered, list(group.flows)))
        for group in problem.groups
    )


def _lost(groups: Sequence[Group], decision: Decision) -> float:
    return sum(g.weight * g.offered * d for g, d in zip(groups, decision.drops, strict=True))


def _lost_now(problem: LinkProblem) -> float:
    """What the policy in force drops, by weight."""
    offered, settings = problem.model.offered, problem.background
    lost = 1 - (1 - settings.drop) * (1 - problem.away * (1 - settings.join))
    return sum(
        group.weight * float(offered[members] @ lost[members])
        for group, members in zip(problem.groups, problem.members, strict=True)
    )


def unpublished(table: FlowTable, factors: Mapping[str, float]) -> float:
    """Messages per second that slowed publishers do not send, by the weight of their readers."""
    if not factors:
        return 0.0
    weights = {a.name: a.weight for a in table.scenario.applications}
    lost = 0.0
    for flow, number in zip(table.stream_flow, table.stream_topic, strict=True):
        topic = table.scenario.topics[number]
        weight = weights.get(table.flows[flow].needs or "", 1.0)
        lost += weight * topic.mean_rate * (1 - 1 / factors.get(topic.name, 1.0))
    return lost


def _steps(part: Decided) -> list[Step]:
    problem = part.problem
    settings = problem.settings(part.decision)
    steps = []
    for group, members in zip(problem.groups, problem.members, strict=True):
        coming = members[problem.away[members] > 0]
        steps.append(
            Step(
                problem.link.name,
                group.name,
                len(group.flows),
                int(settings.priority[members[0]]),
                float(settings.drop[members].mean()),
                float(settings.join[coming].mean()) if len(coming) else None,
            )
        )
    return sorted(steps, key=lambda step: step.priority)


@dataclass(frozen=True)
class Chosen:
    """What was decided, one element per flow of the scenario."""

    priority: NDArray[np.int64]
    drop: NDArray[np.float64]
    join: NDArray[np.float64]
    planned: NDArray[np.bool_]
    comes: NDArray[np.bool_]
    """Its client comes and goes: `join` means something."""


def _rules(problem: Problem, chosen: Chosen) -> list[PolicyRule]:
    """The decisions in as few words as they have: by category, by application, or by flow.

    Nothing is said of an application whose settings do not change.
    """
    flows = problem.table.flows
    old = problem.in_force
    priority, drop, planned = chosen.priority, chosen.drop, chosen.planned

    def wanted(number: int) -> tuple[int, float, float | None]:
        join = float(chosen.join[number]) if chosen.comes[number] else None
        return int(priority[number]), float(drop[number]), join

    def uniform(numbers: list[int]) -> bool:
        return bool(planned[numbers].all()) and len({wanted(n) for n in numbers}) == 1

    def rule(number: int, **selectors: object) -> PolicyRule:
        level, rate, join = wanted(number)
        return PolicyRule(**selectors, priority=level, drop=rate, join=join)  # type: ignore[arg-type]

    def exactly(numbers: Iterable[int]) -> Iterator[PolicyRule]:
        for number in numbers:
            flow = flows[number]
            yield rule(number, flow=FlowSelector(client=flow.client, filter=flow.filter))

    by_application: dict[str, list[int]] = {}
    by_category: dict[str, list[int]] = {}
    nobodys: list[int] = []
    rules: list[PolicyRule] = []
    changed = (priority != old.priority) | (drop != old.drop)
    changed |= chosen.comes & (np.abs(chosen.join - old.join) > 1e-4)
    for number, flow in enumerate(flows):
        if flow.application is not None:
            by_application.setdefault(flow.application, []).append(number)
        else:
            nobodys.append(number)
        if flow.category is not None:
            by_category.setdefault(flow.category, []).append(number)
    said: set[int] = set()
    for category, numbers in by_category.items():
        if uniform(numbers):
            said.update(numbers)
            if changed[numbers].any():
                rules.append(rule(numbers[0], category=category))
    one_by_one = [n for n in nobodys if n not in said and planned[n] and changed[n]]
    for application, numbers in by_application.items():
        rest = [n for n in numbers if n not in said]
        if not changed[rest].any():
            continue
        if len(rest) < len(numbers):
            one_by_one.extend(n for n in rest if planned[n])
            continue
        # Most of them in one rule, the others one by one: who comes is treated as most are.
        meant = [n for n in rest if planned[n]]
        counted = Counter(wanted(n) for n in meant)
        usual = max(counted, key=lambda settings: counted[settings])
        example = next(n for n in meant if wanted(n) == usual)
        if len(meant) == len(rest):
            rules.append(rule(example, application=application))
            one_by_one.extend(n for n in meant if wanted(n) != usual)
        else:  # nothing is dropped of flows that nothing was decided for
            rules.append(PolicyRule(application=application, priority=usual[0]))
            one_by_one.extend(meant)
    # Last, so that none of the rules above overrules them.
    rules.extend(exactly(one_by_one))
    return rules


__all__ = ["OutOfTimeError", "assemble", "decide", "keep_all", "plan", "reconciled"]
