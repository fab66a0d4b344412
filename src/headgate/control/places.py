"""Places in the order for applications that are not there.

Who comes is planned for with the next snapshot; until then its messages would go last, for a second
in which an emergency has the least use of it. What a configured application asks for is known
beforehand, so it is given the level of whoever asks for as little or less: the first snapshot then
finds it where a plan would put it, or near. Nothing is dropped for it, and nobody who is there is
moved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import inf

from headgate.contract import Application, Policy, PolicyRule, Requirement
from headgate.contract.schema import PRIORITY_LEVELS
from headgate.model import FlowTable, Scenario


def places(
    scenario: Scenario, policy: Policy, known: Mapping[str, Application], there: Collection[str]
) -> Iterator[PolicyRule]:
    """A rule for each of the `known` that asks for a response and is not `there`.

    Where links differ, it is the level that is good enough on each of them and moves past the
    fewest of those who are there.
    """
    levels = _levels(scenario, policy)
    of_categories = {rule.category for rule in policy.rules if rule.priority is not None}
    for name, application in known.items():
        target = _target(application.requirement)
        if name in there or target == inf or not levels:
            continue
        if application.category is not None and application.category in of_categories:
            continue  # it is in the plan already, with the others of its kind
        yield PolicyRule(
            application=name, priority=max(_level(link, target) for link in levels.values())
        )


def _levels(scenario: Scenario, policy: Policy) -> dict[int, list[tuple[float, int]]]:
    """By link: the response asked for, and the level, of each flow that asks for one."""
    table = FlowTable(scenario)
    asked = {a.name: _target(a.requirement) for a in scenario.applications}
    priority = table.settings(policy).priority
    found: dict[int, list[tuple[float, int]]] = {}
    for number, flow in enumerate(table.flows):
        target = asked.get(flow.needs or "", inf)
        if flow.link is not None and target < inf:
            found.setdefault(flow.link, []).append((target, int(priority[number])))
    return found


def _level(there: list[tuple[float, int]], target: float) -> int:
    as_patient = [level for asked, level in there if asked >= target]
    if as_patient:
        return min(as_patient)
    return min(max(level for _, level in there) + 1, PRIORITY_LEVELS - 1)


def _target(requirement: Requirement | None) -> float:
    """The response asked for, in milliseconds; infinite if none is."""
    if requirement is None:
        return inf
    asked = (requirement.response_ms, requirement.mean_ms)
    return min((limit for limit in asked if limit is not None), default=inf)
