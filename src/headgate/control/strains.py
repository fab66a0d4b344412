"""How near requirements are to being broken: as measured, and as a plan expects it."""

from __future__ import annotations

from math import sqrt

from headgate.contract import FlowSnapshot, Policy, Requirement, Snapshot
from headgate.control.measuring import CERTAIN, Measurements, Traffic
from headgate.control.planning import Plan, expectations
from headgate.model import Scenario

Strains = dict[str, float]
"""By application: response over what was asked for; above 1 the requirement is broken, be it for
responses, for what was lost or for what did not arrive."""

HALF = 0.5
"""Of a message: who tolerates no loss is broken by one, until it fades."""


def measured_strains(snapshot: Snapshot, known: Measurements) -> Strains:
    """How near each application's requirement is, by its worst flow."""
    strains: Strains = {}
    for flow in snapshot.flows:
        need = known.needs.of(flow).application
        if need.requirement is None or not flow.connected:
            continue
        traffic = known.flows.get((flow.client, flow.filter))
        starved = 0.0 if traffic is None else snapshot.time - traffic.delivered_at
        strain = flow_strain(flow, need.requirement, starved)
        if traffic is not None:
            strain = max(strain, loss_strain(traffic, need.requirement))
        strains[need.name] = max(strains.get(need.name, 0.0), strain)
    return strains


def flow_strain(flow: FlowSnapshot, requirement: Requirement, starved: float = 0.0) -> float:
    """A snapshot has p50, p95 and p99: the next one above what is asked for is compared.

    Where messages wait and none was sent for `starved` seconds, they are at least that late.
    """
    mean_ms, percentile_ms = flow.mean_ms, 0.0
    if flow.delivered:
        percentile_ms = flow.p95_ms if requirement.percentile <= 95 else flow.p99_ms
    else:
        mean_ms = percentile_ms = starved * 1000
    strain = 0.0
    if requirement.mean_ms is not None:
        strain = mean_ms / requirement.mean_ms
    if requirement.response_ms is not None:
        strain = max(strain, percentile_ms / requirement.response_ms)
    return strain


def loss_strain(traffic: Traffic, requirement: Requirement) -> float:
    """Above 1 if more was lost lately than is tolerated, by more than chance, or less arrives than
    must while enough is published; otherwise 0: what is tolerated strains nobody."""
    expected = traffic.offered * requirement.loss
    by_chance = CERTAIN * sqrt(expected * (1 - requirement.loss))
    most = expected + by_chance + (1.0 if expected else 0.0)
    if traffic.lost > max(most, HALF):
        return traffic.lost / max(most, HALF)
    wanted = requirement.throughput
    if wanted is None or traffic.rate < wanted or traffic.first:
        return 0.0
    # Counts of a second come and go by chance; what arrives is a mean over some of them.
    if traffic.arrives >= wanted - CERTAIN * sqrt(wanted):
        return 0.0
    return wanted / max(traffic.arrives, wanted / 10)


def typical(measured: list[Strains]) -> Strains:
    """The median of each application: one bad second does not condemn a policy."""
    values: dict[str, list[float]] = {}
    for strains in measured:
        for name, strain in strains.items():
            values.setdefault(name, []).append(strain)
    return {name: sorted(seen)[len(seen) // 2] for name, seen in values.items()}


def foretold(made: Plan, scenario: Scenario, policy: Policy) -> Strains:
    """The same as a plan's policy makes one expect it of the links as they are: the plan itself was
    judged on links with some room taken off."""
    after = expectations(scenario, policy)
    expected = {}
    for outlook in made.outlooks:
        asked, what = outlook.requirement, after.get(outlook.application)
        if asked is None or what is None:
            continue
        parts = [0.0]
        if asked.mean_ms is not None:
            parts.append(what.mean_ms / asked.mean_ms)
        if asked.response_ms is not None and what.percentile_ms is not None:
            parts.append(what.percentile_ms / asked.response_ms)
        expected[outlook.application] = round(min(max(parts), 1e6), 4)
    return expected


def missed(measured: Strains, expected: Strains) -> str:
    """To whom it was promised that the requirement would be kept, and was not; empty if to none."""
    return ", ".join(
        f"{name} has {strain:.0%} of what it asked for, {expected[name]:.0%} expected"
        for name, strain in sorted(measured.items())
        if strain > 1 and expected.get(name, 2.0) <= 1
    )
