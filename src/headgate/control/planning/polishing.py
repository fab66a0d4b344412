"""From the grid to the plan: no more is dropped than must be, and nobody waits without need.

The search decides what has to be given up. What is left open, the order among plans that lose the
same, is settled by *pressure*: the sum over groups of weight × response / response asked for. Every
step asks the model, and none breaks a requirement that was met.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import replace

from headgate.control.planning.judging import Judge
from headgate.control.planning.problem import Decision, LinkProblem

FINENESS = 1e-3
"""Drop rates are refined to this fraction."""
WORTHWHILE = 0.01
"""A change of the order must lower the pressure by this fraction: no change for its own sake."""


class Polish:
    def __init__(self, problem: LinkProblem, judge: Judge, kept: Collection[int], until: float):
        self.problem = problem
        self.judge = judge
        self.kept = kept
        self.until = until
        self.enough = float("inf")
        """Pressure that no step may exceed."""

    def __call__(self, decision: Decision, in_force: Decision | None) -> Decision:
        """Refine a decision. What is in force wins if it loses no more and is as good."""
        decision = self.arranged(self.lessened(decision))
        if in_force is None or not self._holds(in_force) or self._loses_more(in_force, decision):
            return decision
        if max(in_force.levels, default=0) >= self.problem.levels:
            return decision
        as_good = self._pressure(in_force) <= self._pressure(decision) * (1 + WORTHWHILE)
        return in_force if as_good else decision

    def rescued(self, decision: Decision) -> Decision:
        """Where not all can be met: let those that miss come as near as they can.

        What others tolerate to lose is given up for it, as far as it helps.
        """
        groups = self.problem.groups
        generous = replace(decision, drops=tuple(group.most_drop for group in groups))
        best = min((self.arranged(d) for d in (decision, generous)), key=self._pressure)
        self.enough = self._pressure(best) * (1 + WORTHWHILE)
        return self.lessened(best)

    def lessened(self, decision: Decision) -> Decision:
        """Drop rates as small as the requirements allow, the dearest first."""
        groups = self.problem.groups
        for u in sorted(range(len(groups)), key=lambda u: -groups[u].weight * groups[u].offered):
            low, high = 0.0, decision.drops[u]
            if high and self._holds(_dropping(decision, u, 0.0)):
                high = 0.0
            while high - low > FINENESS and time.monotonic() < self.until:
                middle = (low + high) / 2
                if self._holds(_dropping(decision, u, middle)):
                    high = middle
                else:
                    low = middle
            decision = _dropping(decision, u, high)
        return decision

    def arranged(self, decision: Decision) -> Decision:
        """The order with the least pressure that can be reached by moving one group at a time."""
        best, pressure = decision, self._pressure(decision)
        sorted_by_need = replace(decision, levels=self._by_need())
        if self._pressure(sorted_by_need) < pressure and self._holds(sorted_by_need):
            best, pressure = sorted_by_need, self._pressure(sorted_by_need)
        improved = True
        while improved and time.monotonic() < self.until:
            improved = False
            for candidate in self._moves(best):
                if time.monotonic() > self.until:
                    break
                value = self._pressure(candidate)
                if value < pressure * (1 - WORTHWHILE) and self._holds(candidate):
                    best, pressure, improved = candidate, value, True
        return best.compact()

    def _by_need(self) -> tuple[int, ...]:
        """Every group by itself, who asks for the shortest response first: mostly a good start."""
        order = sorted(range(len(self.problem.groups)), key=lambda u: self.problem.groups[u].target)
        rank = {u: place for place, u in enumerate(order)}
        return tuple(min(rank[u], self.problem.levels - 1) for u in range(len(order)))

    def _moves(self, decision: Decision) -> Iterator[Decision]:
        """Every group to the two levels before and after its own, and between any of them."""
        doubled = [2 * level + 1 for level in decision.compact().levels]
        most = self.problem.levels
        for u in range(len(doubled)):
            for place in range(max(0, doubled[u] - 4), min(doubled[u] + 4, max(doubled) + 1) + 1):
                levels = tuple(place if v == u else level for v, level in enumerate(doubled))
                if levels[u] != doubled[u] and len(set(levels)) <= most:
                    yield replace(decision, levels=levels).compact()

    def _holds(self, decision: Decision) -> bool:
        judgement = self.judge(decision)
        return (
            all(judgement.met[u] for u in self.kept)
            and judgement.pressure(self.problem.groups) <= self.enough
        )

    def _pressure(self, decision: Decision) -> float:
        return self.judge(decision).pressure(self.problem.groups)

    def _loses_more(self, one: Decision, other: Decision) -> bool:
        def lost(decision: Decision) -> float:
            return sum(
                group.weight * group.offered * drop
                for group, drop in zip(self.problem.groups, decision.drops, strict=True)
            )

        return lost(one) > lost(other) * (1 + FINENESS) + 1e-12


def _dropping(decision: Decision, group: int, rate: float) -> Decision:
    drops = tuple(rate if u == group else drop for u, drop in enumerate(decision.drops))
    return replace(decision, drops=drops)
