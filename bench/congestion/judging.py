"""Ratios and verdicts: what the goals say about the results."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.congestion.contenders import BASELINE, SHARES, Plan, Variant
from bench.congestion.evaluating import Experience
from bench.congestion.measuring import Result
from bench.congestion.workload import CATEGORIES
from bench.network import MEGABIT

GOAL_RATES = (10e6, 10 * MEGABIT)
"""10 Mbit/s, as an operator means it and as the paper does."""
LEAD = {1.0: 10.0, 1.5: 100.0}
"""By load: how many times lower than Mosquitto's RT's 99th percentile has to be."""
NEAR = 1.5
"""How many times the ideal queue's figure RT and ST may reach."""
LATE = 2.0
"""Milliseconds: a driver that is so late, 99th percentile, tells of a machine that stood still,
and its link with it. The ideal queue's link never does."""
DROP_ERROR = 0.001
LONG = 300.0
"""Seconds after which drop rates are judged: by chance alone they differ for longer than that."""
STARVED = 5.0
"""Seconds without a message after which a category counts as starved."""


@dataclass(frozen=True)
class Verdict:
    """A goal, what was measured, and whether that meets it."""

    goal: str
    found: str
    met: bool | None
    """None if the measurement is too short to tell."""


def baseline(results: Sequence[Result], of: Result) -> Result | None:
    """Mosquitto under the same conditions."""
    for result in results:
        if result.broker == BASELINE and result.conditions == of.conditions:
            return result
    return None


def lead(result: Result, base: Result | None, category: str) -> float:
    """How many times lower than the baseline's the 99th percentile is."""
    if base is None:
        return math.nan
    return base.experiences[category].response.p99 / result.experiences[category].response.p99


def near(experience: Experience) -> tuple[float, float]:
    """Mean and 99th percentile over those of the ideal queue."""
    if experience.ideal is None:
        return math.nan, math.nan
    response, best = experience.response, experience.ideal
    return response.mean / best.mean, response.p99 / best.p99


def verdicts(results: Sequence[Result], plan: Plan) -> Iterator[Verdict]:
    """Of every goal that the results speak about."""
    for result in results:
        if result.broker not in (Variant.STRICT, Variant.STRICT_MIN):
            continue
        if any(math.isclose(result.rate, rate) for rate in GOAL_RATES):
            yield from _speed(result, baseline(results, result))
        yield from _thinning(result, plan)
        if result.broker == Variant.STRICT_MIN:
            yield from _starving(result)


def _speed(result: Result, base: Result | None) -> Iterator[Verdict]:
    goal = LEAD.get(result.load)
    if goal is not None and base is not None:
        found = lead(result, base, "RT")
        ideal = result.experiences["RT"].ideal
        said = f"{found:.1f} ×"
        if ideal is not None:
            possible = base.experiences["RT"].response.p99 / ideal.p99
            said += f" (the ideal queue: {possible:.1f} ×)"
        yield Verdict(f"{result.title}: RT p99 {goal:g} × below Mosquitto's", said, found >= goal)
    if result.broker == Variant.STRICT:
        for category in ("RT", "ST"):
            mean, p99 = near(result.experiences[category])
            said = f"mean {mean:.2f} ×, p99 {p99:.2f} ×"
            if result.driver_late.p99 > LATE:
                said += f" (the driver itself was late: p99 {result.driver_late.p99:.1f} ms)"
            met = max(mean, p99) <= NEAR
            yield Verdict(
                f"{result.title}: {category} within {NEAR:g} × of the ideal queue", said, met
            )


def _thinning(result: Result, plan: Plan) -> Iterator[Verdict]:
    for category, rate in plan.drops.items():
        experience = result.experiences[category]
        count = experience.published - experience.late
        spread = math.sqrt(rate * (1 - rate) / max(1, count))
        yield Verdict(
            f"{result.title}: {category} loses {rate:.1%} ± {DROP_ERROR:.1%}",
            f"{experience.loss:.2%} of {count:,} (chance alone: ± {spread:.2%})",
            abs(experience.loss - rate) <= DROP_ERROR if result.seconds >= LONG else None,
        )


def _starving(result: Result) -> Iterator[Verdict]:
    """A category gets what it asks for, or at least the share that it was promised."""
    for level, promised in SHARES.items():
        category = CATEGORIES[level]
        experience = result.experiences[category]
        enough = min(promised, experience.demand)
        # A share is of the pace, which lies 2 % below the link; the window cuts messages.
        met = experience.share >= 0.95 * enough and experience.silence < STARVED
        yield Verdict(
            f"{result.title}: {category} gets {promised:.0%} of the link, or what it asks for",
            f"{experience.share:.1%} (asks for {experience.demand:.1%}), "
            f"longest silence {experience.silence:.2f} s",
            met,
        )
