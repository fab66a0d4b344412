"""Publishers that adapt: how much less often they must publish so that requirements can be met.

Slowing is the last resort, when drops within tolerance do not suffice: what is not published is
missing everywhere. Topics of one declared range are slowed alike. That others wait no longer when a
topic is slowed makes the feasible slow-downs closed upwards: the cheapest is found by asking in
order of cost, and whatever is below an infeasible one is never asked (`cheapest`). Where there are
too many to ask, it is lowered from the slowest, one range at a time, until none can be lowered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from headgate.contract import PeriodRange
from headgate.control.planning.problem import LinkProblem
from headgate.model import Scenario

STEPS = 6
"""Slow-downs tried for each range, evenly in the logarithm."""
MOST_ASKED = 400
"""Combinations up to which all are considered."""

Slowdown = tuple[int, ...]
"""A step for each range."""


@dataclass(frozen=True)
class Adapting:
    """The topics of a link that can be slowed, by their range."""

    ranges: tuple[PeriodRange, ...]
    topics: tuple[tuple[str, ...], ...]
    prices: tuple[float, ...]
    """What it costs to publish none of a range: weight x messages/s to all its subscribers."""

    @classmethod
    def of(cls, problem: LinkProblem) -> Adapting:
        scenario, table = problem.model.scenario, problem.model.table
        weights = {a.name: a.weight for a in scenario.applications}
        members: dict[PeriodRange, list[str]] = {}
        prices: dict[PeriodRange, float] = {}
        for flow, number in zip(table.stream_flow, table.stream_topic, strict=True):
            topic = scenario.topics[number]
            if topic.period is None or topic.period.max <= topic.period.min:
                continue
            names = members.setdefault(topic.period, [])
            if topic.name not in names:
                names.append(topic.name)
            weight = weights.get(table.flows[flow].needs or "", 1.0)
            prices[topic.period] = prices.get(topic.period, 0.0) + weight * topic.mean_rate
        return cls(
            tuple(members),
            tuple(tuple(names) for names in members.values()),
            tuple(prices[period] for period in members),
        )

    def factor(self, number: int, step: int) -> float:
        period = self.ranges[number]
        return float((period.max / period.min) ** (step / STEPS))

    def factors(self, chosen: Slowdown) -> dict[str, float]:
        return {
            topic: self.factor(number, step)
            for number, step in enumerate(chosen)
            if step
            for topic in self.topics[number]
        }

    def cost(self, chosen: Slowdown) -> float:
        """Messages per second that are not published, by the weight of who would get them."""
        return sum(
            self.prices[number] * (1 - 1 / self.factor(number, step))
            for number, step in enumerate(chosen)
        )

    def everything(self) -> Iterator[Slowdown]:
        return product(range(STEPS + 1), repeat=len(self.ranges))


def cheapest(
    adapting: Adapting, feasible: Callable[[Slowdown], bool], until: float
) -> Slowdown | None:
    """The slow-down of least cost that will do; None if none does.

    If time runs out, the least that is known to do.
    """
    slowest: Slowdown = (STEPS,) * len(adapting.ranges)
    if not slowest or not feasible(slowest):
        return None
    if (STEPS + 1) ** len(slowest) > MOST_ASKED:
        return _lowered(adapting, feasible, slowest, until)
    too_fast: list[Slowdown] = []
    best = slowest
    for chosen in sorted(adapting.everything(), key=adapting.cost):
        if chosen == slowest or time.monotonic() > until:
            break
        if any(all(c <= f for c, f in zip(chosen, fast, strict=True)) for fast in too_fast):
            continue
        if feasible(chosen):
            best = chosen
            break
        too_fast.append(chosen)
    return best


def _lowered(
    adapting: Adapting, feasible: Callable[[Slowdown], bool], chosen: Slowdown, until: float
) -> Slowdown:
    """The dearest first, each as far down as it goes."""
    for number in sorted(range(len(chosen)), key=lambda n: -adapting.prices[n]):
        low, high = -1, chosen[number]
        while high - low > 1 and time.monotonic() < until:
            middle = (low + high) // 2
            trial = (*chosen[:number], middle, *chosen[number + 1 :])
            low, high = (low, middle) if feasible(trial) else (middle, high)
        chosen = (*chosen[:number], high, *chosen[number + 1 :])
    return chosen


def periods(scenario: Scenario, factors: Mapping[str, float]) -> dict[str, float]:
    """What publishers are told, in seconds."""
    return {
        topic.name: round(topic.period.min * factors[topic.name], 6)
        for topic in scenario.topics
        if topic.period is not None and factors.get(topic.name, 1.0) > 1.0
    }
