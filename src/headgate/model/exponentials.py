"""Quantiles of sums of exponentials, many at once: where P(T > t) = sum of weight x exp(-rate t).

Halley's method on the logarithm of the tail, which is nearly straight. Where all weights are
positive it is convex, too, so that the tangent from any place on the left of the quantile ends on
its left again, and nearer: places to start from are cheap and never wrong.

Rates rise from row to row. By the time of a high percentile the two fast terms of four are mostly
over; all columns are therefore solved with the two slow ones first, without looking, and those
where the fast ones still count once more with all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

STEPS = 40
"""With all terms, for the columns that the first did not solve; few need more than six."""

FAR = 40.0
"""exp(-40) is 4e-18: nothing, beside a tail of any interest."""

CLOSE = 1e-4
"""Of t. Halley's error is cubed with every step: after one so short nothing is left to gain."""


def quantiles(weights: Array, rates: Array, tails: Sequence[float]) -> list[Array]:
    """t with sum of weight x exp(-rate t) = tail, per column, for each of the falling `tails`."""
    found: list[Array] = []
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # What the slow terms alone would have, from the mean of their rates; without negative ones.
        second = np.maximum(weights[1], 0.0)
        slow = np.maximum(weights[0], 0.0) + second
        log_slow = np.log(slow)
        per_rate = slow / ((slow - second) * rates[0] + second * rates[1])
        hazard = np.einsum("ij,ij->j", weights, rates)
        t, known = np.zeros(weights.shape[1]), 1.0
        for tail in tails:
            t = t + np.log(known / tail) / hazard
            t = np.fmax(t, (log_slow - np.log(tail)) * per_rate)
            t, hazard = _solved(weights, rates, tail, t)
            known = tail
            found.append(t)
    return found


def _solved(weights: Array, rates: Array, tail: float, t: Array) -> tuple[Array, Array]:
    """The quantiles from places to start, and the hazard rates there."""
    start = t
    t, hazard, arrived = _step(weights[:2], rates[:2], tail, start)
    fit = arrived & (rates[2] * t > FAR)
    if not fit.all():
        rest = np.flatnonzero(~fit)
        t[rest], hazard[rest] = _with_all_terms(weights[:, rest], rates[:, rest], tail, start[rest])
    return t, hazard


def _with_all_terms(weights: Array, rates: Array, tail: float, t: Array) -> tuple[Array, Array]:
    result, hazard = np.empty(len(t)), np.empty(len(t))
    left = np.arange(len(t))
    part, part_rates = weights, rates
    for _ in range(STEPS):
        t, at, arrived = _step(part, part_rates, tail, t)
        result[left[arrived]], hazard[left] = t[arrived], at
        late = ~arrived
        if not late.any():
            return result, hazard
        left, t, part, part_rates = left[late], t[late], part[:, late], part_rates[:, late]
    result[left] = _bracketed(part, part_rates, tail)
    return result, hazard


def _step(weights: Array, rates: Array, tail: float, t: Array) -> tuple[Array, Array, Mask]:
    """One of Halley's; NaN where it leads nowhere."""
    terms = weights * np.exp(-rates * t)
    value = terms.sum(axis=0)
    terms *= rates
    hazard = terms.sum(axis=0) / value
    terms *= rates
    bend = terms.sum(axis=0) / value / (hazard * hazard) - 1
    short = np.log(value / tail)
    # Newton's step, and what the bend of the curve adds to it: at most as much again, for at a knee
    # the bend says nothing of what comes after.
    step = short / hazard
    arrived = np.abs(step) <= CLOSE * t
    return t + step / np.maximum(1 - 0.5 * short * bend, 0.5), hazard, arrived


def _bracketed(weights: Array, rates: Array, tail: float) -> Array:
    """The same by halving, which always arrives: |weights| with the slowest rate bound the tail."""
    low = np.zeros(weights.shape[1])
    high = np.log(np.abs(weights).sum(axis=0) / tail) / rates[0] + 1e-300
    for _ in range(100):
        middle = (low + high) / 2
        above = (weights * np.exp(-rates * middle)).sum(axis=0) > tail
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray((low + high) / 2)
