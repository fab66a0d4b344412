"""Answers of the inverse problems: a value that meets the threshold, or why none does."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from scipy.optimize import brentq


@dataclass(frozen=True, slots=True)
class Feasible:
    """`value` meets the threshold; `achieved` is what the constrained quantity then is."""

    value: float
    achieved: float


@dataclass(frozen=True, slots=True)
class Infeasible:
    """No value meets the threshold. `closest` is the best that could be had."""

    reason: str
    closest: float


Answer: TypeAlias = Feasible | Infeasible


def largest_below(
    measure: Callable[[float], float],
    threshold: float,
    low: float,
    high: float,
    *,
    unmet: Callable[[float], str],
) -> Answer:
    """The largest x of [low, high] with measure(x) <= threshold; the measure grows with x.

    `measure` may be infinite above some x (an unstable queue). `unmet` words the reason from the
    best achievable value, measure(low).
    """
    best = measure(low)
    if best > threshold:
        return Infeasible(unmet(best), best)
    top = measure(high)
    if top <= threshold:
        return Feasible(high, top)
    # Bring the upper end into the finite region first: a bracketing root finder wants numbers.
    lower, upper = low, high
    while not math.isfinite(measure(upper)):
        middle = 0.5 * (lower + upper)
        if middle in (lower, upper):
            return Feasible(lower, measure(lower))
        if measure(middle) <= threshold:
            lower = middle
        else:
            upper = middle
    root = float(brentq(lambda x: measure(x) - threshold, lower, upper, xtol=1e-14, rtol=1e-13))
    achieved = measure(root)
    if achieved > threshold:  # the root finder stopped on the wrong side by a rounding error
        root = max(lower, root - 1e-12 * max(1.0, abs(root)))
        achieved = measure(root)
    return Feasible(root, achieved)


def smallest_below(
    measure: Callable[[float], float],
    threshold: float,
    low: float,
    high: float,
    *,
    unmet: Callable[[float], str],
) -> Answer:
    """The smallest x of [low, high] with measure(x) <= threshold; the measure falls with x."""
    answer = largest_below(lambda x: measure(-x), threshold, -high, -low, unmet=unmet)
    if isinstance(answer, Infeasible):
        return answer
    return Feasible(-answer.value, answer.achieved)
