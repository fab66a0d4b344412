"""A plan rehearsed by the simulator before anybody relies on it.

The model is exact for what it models; the simulator also knows lifetimes, capacities, disciplines
and arrivals that are not Poisson. A plan passes if no requirement that it promises is broken in the
simulation beyond what chance explains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headgate.contract import Policy, Requirement
from headgate.control.planning import Plan
from headgate.control.planning.outlook import bounded
from headgate.control.planning.problem import factors_of, slower
from headgate.model import FlowTable, Scenario
from headgate.model.simulation.of_scenario import ScenarioMeasurement, simulate_scenario

MARGIN = 0.05
"""A simulated percentile or mean may exceed what is asked for by this fraction: chance, and the
width of the histogram's buckets."""


@dataclass(frozen=True)
class Rehearsed:
    """One application, as simulated under the plan."""

    application: str
    mean_ms: float
    percentile_ms: float | None
    loss: float
    promised: bool
    met: bool


@dataclass(frozen=True)
class Rehearsal:
    """What the simulator makes of a plan."""

    applications: tuple[Rehearsed, ...]
    seconds: float

    @property
    def broken(self) -> tuple[str, ...]:
        """Applications to which the plan promises what the simulation does not show."""
        return tuple(a.application for a in self.applications if a.promised and not a.met)

    def text(self) -> str:
        lines = []
        for one in self.applications:
            percentile = "-" if one.percentile_ms is None else f"{one.percentile_ms:.4g} ms"
            lines.append(
                f"  {one.application}: mean {one.mean_ms:.4g} ms, percentile {percentile}, "
                f"loss {100 * one.loss:.2f} %{'' if one.met else ', broken'}"
            )
        verdict = (
            f"simulated: the plan does not keep what it promises to {', '.join(self.broken)}"
            if self.broken
            else "simulated: the plan keeps what it promises"
        )
        return "\n".join([f"{verdict} ({self.seconds:.1f} s)", *lines])


def rehearse(
    scenario: Scenario,
    plan: Plan,
    *,
    policy: Policy | None = None,
    replications: int = 4,
    progress: Callable[[float], None] | None = None,
) -> Rehearsal:
    """Simulate a scenario under a plan's policy, and hold it against what the plan promises."""
    policy = plan.policy if policy is None else policy
    slowed = slower(scenario, factors_of(scenario, policy))
    table = FlowTable(slowed)
    run = simulate_scenario(
        slowed,
        bounded(table, table.settings(policy)),
        replications=replications,
        progress=progress,
    )
    found = [
        _rehearsed(run, outlook.application, outlook.requirement, outlook.after.met)
        for outlook in plan.outlooks
        if outlook.requirement is not None
    ]
    return Rehearsal(tuple(found), run.measurement.wall_time)


def _rehearsed(
    run: ScenarioMeasurement, application: str, requirement: Requirement, promised: bool
) -> Rehearsed:
    """By its worst flow, as the plan judges."""
    numbers = [n for n, f in enumerate(run.table.flows) if f.needs == application]
    groups = [group for number in numbers if (group := run.flow(number)).offered]
    mean = max((g.mean.value for g in groups if g.delivered), default=0.0) * 1000
    percentile = None
    met = requirement.mean_ms is None or mean <= requirement.mean_ms * (1 + MARGIN)
    if requirement.response_ms is not None:
        asked = requirement.percentile
        seen = [g.percentile(asked).value for g in groups if g.delivered]
        percentile = 1000 * max(seen, default=0.0)
        met = met and percentile <= requirement.response_ms * (1 + MARGIN)
    lost = sum(g.offered - g.delivered for g in groups)
    offered = sum(g.offered for g in groups)
    loss = lost / offered if offered else 0.0
    # A drop rate at the limit loses a little more than that half of the time.
    spread = 3 * (requirement.loss * (1 - requirement.loss) / max(1, offered)) ** 0.5
    met = met and loss <= requirement.loss + spread + 1e-3
    return Rehearsed(application, mean, percentile, loss, promised, met)
