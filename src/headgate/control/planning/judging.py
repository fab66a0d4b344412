"""Does a decision keep what was required? The model answers, jointly for all flows of a link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.contract import Requirement
from headgate.control.planning.problem import Decision, Group, LinkProblem
from headgate.model import Prediction

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

TOLERANCE = 1e-9
"""Rounding of the model's sums; a requirement is met up to this fraction of it."""
WORST = 1e3
"""A response this many times over its limit is as bad as one that never comes."""


@dataclass(frozen=True)
class Judgement:
    """What a decision does to each group."""

    strain: tuple[float, ...]
    """Response over what is asked for, of the group's worst flow; at most 1 is within. 0 if no
    response is asked for, infinite where messages never arrive."""
    met: tuple[bool, ...]
    arriving: tuple[float, ...]
    """The part of its messages that arrives."""

    @property
    def all_met(self) -> bool:
        return all(self.met)

    def pressure(self, groups: tuple[Group, ...]) -> float:
        """How near all requirements are, by weight: what remains to be made small.

        Where a link cannot carry a group at all, what does arrive still counts.
        """
        return sum(
            group.weight * (strain if strain < WORST else WORST * (2 - arriving))
            for group, strain, arriving in zip(groups, self.strain, self.arriving, strict=True)
        )


class Judge:
    """Asks the model about decisions on one link, and remembers its answers."""

    def __init__(self, problem: LinkProblem) -> None:
        self.problem = problem
        self.asked = 0
        self._known: dict[Decision, Judgement] = {}

    def __call__(self, decision: Decision) -> Judgement:
        decision = decision.compact()
        known = self._known.get(decision)
        if known is None:
            self.asked += 1
            known = self._known[decision] = judge(self.problem, decision)
        return known

    def best(self, groups: tuple[Group, ...]) -> Decision:
        """Of all decisions seen, the one that meets the most weight with the least pressure."""

        def value(decision: Decision) -> tuple[float, float]:
            judgement = self._known[decision]
            met = sum(g.weight for g, m in zip(groups, judgement.met, strict=True) if m)
            return met, -judgement.pressure(groups)

        return max(self._known, key=value)


def judge(problem: LinkProblem, decision: Decision) -> Judgement:
    """One prediction for the whole link."""
    prediction = problem.model.predict(problem.settings(decision))
    offered = problem.model.offered
    strains, met, arriving = [], [], []
    for group, flows in zip(problem.groups, problem.members, strict=True):
        worst = strain(group.requirement, prediction, offered, flows)
        strains.append(worst)
        met.append(
            worst <= 1 + TOLERANCE and arrives(group.requirement, prediction, offered, flows)
        )
        published = float(offered[flows].sum())
        part = float(prediction.throughput[flows].sum()) / published if published else 1.0
        arriving.append(min(part, 1.0))
    return Judgement(tuple(strains), tuple(met), tuple(arriving))


def strain(
    requirement: Requirement, prediction: Prediction, offered: Array, flows: Sequence[int] | Ints
) -> float:
    """The worst of mean and percentile over what is asked for, among flows that carry anything."""
    busy = np.asarray(flows, dtype=np.int64)
    busy = busy[offered[busy] > 0]
    if not len(busy):
        return 0.0
    worst = 0.0
    if requirement.mean_ms is not None:
        worst = float(prediction.mean[busy].max()) * 1000 / requirement.mean_ms
    if requirement.response_ms is not None:
        values = prediction.percentiles[requirement.percentile]
        worst = max(worst, float(values[busy].max()) * 1000 / requirement.response_ms)
    return worst


def arrives(
    requirement: Requirement, prediction: Prediction, offered: Array, flows: Sequence[int] | Ints
) -> bool:
    """Are losses within what is tolerated, and does enough arrive?"""
    flows = np.asarray(flows, dtype=np.int64)
    if bool((prediction.loss[flows] > requirement.loss + TOLERANCE).any()):
        return False
    if requirement.throughput is None:
        return True
    # What is not published cannot arrive.
    needed = np.minimum(requirement.throughput, offered[flows])
    return bool((prediction.throughput[flows] >= needed * (1 - TOLERANCE)).all())
