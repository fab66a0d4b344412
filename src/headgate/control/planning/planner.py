"""From a problem to a plan: link by link, then one policy for all.

The exact planner (`exact`) decides, `polishing` refines, `conflicts` explains what cannot be had,
and every plan is judged by the model as a whole before it leaves this file.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headgate.contract import FlowSelector, Policy, PolicyRule
from headgate.control.planning.conflicts import explain
from headgate.control.planning.exact import OutOfTimeError, Search
from headgate.control.planning.judging import Judge, strain
from headgate.control.planning.outlook import outlooks
from headgate.control.planning.pddl.planner import solve
from headgate.control.planning.plan import Conflict, Plan, Step, Verdict
from headgate.control.planning.polishing import Polish
from headgate.control.planning.problem import (
    Decision,
    Group,
    LinkProblem,
    Problem,
    keep_rules,
)
from headgate.model import Scenario, Settings

EXACT = "exact"
TIME_LIMIT = 10.0
FOR_THE_PLAN = 0.6
"""The part of the time for a plan that keeps everything; the rest is for the case of none."""
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


def plan(
    scenario: Scenario,
    policy: Policy | None = None,
    *,
    seconds: float = TIME_LIMIT,
    remedies: bool = True,
    engine: str = EXACT,
) -> Plan:
    """Plan for a scenario; `policy` is the one in force, by default the scenario's own.

    `remedies` looks for what would make an infeasible set of requirements feasible, which takes
    longer than planning itself. Another `engine` than the exact one is asked only where it is known
    that a plan exists: PDDL engines search for what is not there until their time is up.
    """
    began = time.monotonic()
    problem = Problem.of(scenario, policy)
    decided = []
    for number, link in enumerate(problem.links):
        # Each link gets an equal part of what is left, so that the last one gets its part too.
        left = seconds - (time.monotonic() - began)
        until = time.monotonic() + max(0.05, left / (len(problem.links) - number))
        found = decide(link, until, remedies=remedies)
        if engine != EXACT and found.conflict is None and link.groups:
            found = Decided(link, solve(link, engine, until).decision)
        decided.append(found)
    return assemble(problem, decided, engine=engine, began=began)


def decide(problem: LinkProblem, until: float, *, remedies: bool) -> Decided:
    """The exact planner on one link."""
    if not problem.groups:
        return Decided(problem, Decision((), ()))
    everyone = range(len(problem.groups))
    now = time.monotonic()
    search = Search(problem, now + FOR_THE_PLAN * (until - now))
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
    search.deadline = until
    degraded = search.least_broken()
    met = search.judge(degraded).met
    kept = [u for u in everyone if met[u]]
    rescued = Polish(problem, search.judge, kept, until).rescued(degraded)
    broken = tuple(group.name for u, group in enumerate(problem.groups) if u not in kept)
    conflict = explain(problem, search, broken, proven=proven, until=until, remedies=remedies)
    return Decided(problem, rescued, conflict)


def _polished(
    problem: LinkProblem, judge: Judge, decision: Decision, kept: Iterable[int], until: float
) -> Decided:
    polish = Polish(problem, judge, tuple(kept), until)
    return Decided(problem, polish(decision, problem.in_force()))


def assemble(problem: Problem, decided: Sequence[Decided], *, engine: str, began: float) -> Plan:
    """One policy for all links, judged as a whole."""
    table = problem.table
    priority, drop = problem.in_force.priority.copy(), problem.in_force.drop.copy()
    planned = np.zeros(len(table), dtype=bool)
    before, after = [0.0], [0.0]
    for part in decided:
        settings = part.problem.settings(part.decision)
        chosen = list(part.problem.origin)
        priority[chosen], drop[chosen], planned[chosen] = settings.priority, settings.drop, True
        before.append(_pressure(part.problem, part.problem.background))
        after.append(_pressure(part.problem, settings))
    conflicts = tuple(part.conflict for part in decided if part.conflict is not None)
    rules = _rules(problem, priority, drop, planned)
    policy = Policy(version=problem.policy.version + 1, rules=keep_rules(problem.policy, rules))
    same = not rules
    if same:
        policy = problem.policy
    return Plan(
        verdict=Verdict.DEGRADED if conflicts else Verdict.UNCHANGED if same else Verdict.PLANNED,
        policy=policy,
        steps=tuple(step for part in decided for step in _steps(part)),
        outlooks=outlooks(problem, policy),
        conflicts=conflicts,
        cost=sum(_lost(part.problem.groups, part.decision) for part in decided),
        cost_before=sum(_lost_now(part.problem) for part in decided),
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
    offered, drop = problem.model.offered, problem.background.drop
    return sum(
        group.weight * float(offered[members] @ drop[members])
        for group, members in zip(problem.groups, problem.members, strict=True)
    )


def _steps(part: Decided) -> list[Step]:
    decision = part.decision
    steps = [
        Step(part.problem.link.name, group.name, len(group.flows), level, drop)
        for group, level, drop in zip(
            part.problem.groups, decision.levels, decision.drops, strict=True
        )
    ]
    return sorted(steps, key=lambda step: step.priority)


def _rules(
    problem: Problem,
    priority: np.ndarray[tuple[int], np.dtype[np.int64]],
    drop: np.ndarray[tuple[int], np.dtype[np.float64]],
    planned: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> list[PolicyRule]:
    """The decisions in as few words as they have: by category, by application, or by flow.

    Nothing is said of an application whose settings do not change.
    """
    flows = problem.table.flows
    old = problem.in_force

    def wanted(number: int) -> tuple[int, float]:
        return int(priority[number]), float(drop[number])

    def uniform(numbers: list[int]) -> bool:
        return bool(planned[numbers].all()) and len({wanted(n) for n in numbers}) == 1

    def rule(number: int, **selectors: object) -> PolicyRule:
        level, rate = wanted(number)
        return PolicyRule(**selectors, priority=level, drop=rate)  # type: ignore[arg-type]

    by_application: dict[str, list[int]] = {}
    by_category: dict[str, list[int]] = {}
    rules: list[PolicyRule] = []
    changed = (priority != old.priority) | (drop != old.drop)
    for number, flow in enumerate(flows):
        if flow.application is not None:
            by_application.setdefault(flow.application, []).append(number)
        elif planned[number] and changed[number]:
            rules.append(rule(number, flow=FlowSelector(client=flow.client, filter=flow.filter)))
        if flow.category is not None:
            by_category.setdefault(flow.category, []).append(number)
    said: set[str | None] = set()
    for category, numbers in by_category.items():
        if uniform(numbers):
            said.update(flows[n].application for n in numbers)
            if changed[numbers].any():
                rules.append(rule(numbers[0], category=category))
    for application, numbers in by_application.items():
        if application in said or not changed[numbers].any():
            continue
        if uniform(numbers):
            rules.append(rule(numbers[0], application=application))
            continue
        rules.extend(
            rule(n, flow=FlowSelector(client=flows[n].client, filter=flows[n].filter))
            for n in numbers
            if planned[n]
        )
    return rules


__all__ = ["OutOfTimeError", "assemble", "decide", "plan"]
