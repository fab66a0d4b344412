"""The response of a flow as a sum of parts, and percentiles of the sum.

Each part knows its mean, its variance and its own percentiles. Means and variances of independent
parts add up. The percentile of the sum is

    mean + deviation x score,   score = sum of (variance x score of the part) / sum of variances

where a score is a percentile in standard deviations above the mean. So it is exact for one part
alone and where one part dominates, and between the parts' own shapes otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """One part of the response, per flow or alike for all."""

    mean: Array | float
    variance: Array | float
    scores: Mapping[float, Array | float]
    """By percentile."""

    @staticmethod
    def gamma(mean: float, variance: float, percentiles: Iterable[float]) -> Part:
        """Shaped like a gamma distribution: exact for exponential, Erlang and constant parts."""
        if not np.isfinite(mean) or variance <= 0:
            return Part(mean, 0.0, dict.fromkeys(percentiles, 0.0))
        shape = mean**2 / variance
        return Part(
            mean,
            variance,
            {
                p: float(gammaincinv(shape, p / 100) * np.sqrt(variance) / mean - np.sqrt(shape))
                for p in percentiles
            }
            if mean > 0
            else dict.fromkeys(percentiles, 0.0),
        )

    def only_for(self, chosen: NDArray[np.bool_]) -> Part:
        """The same part, for some flows."""
        return Part(
            np.where(chosen, self.mean, 0.0), np.where(chosen, self.variance, 0.0), self.scores
        )


def score(quantile: Array, mean: Array, variance: Array) -> Array:
    """A quantile in standard deviations above the mean; 0 where nothing varies."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(variance > 0, (quantile - mean) / np.sqrt(variance), 0.0)


def blended(first: Array, variance: Array, second: Array, other: Array) -> Array:
    """The score of two parts together."""
    total = variance + other
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0, (first * variance + second * other) / total, 0.0)


def add_up(
    parts: Iterable[Part], flows: int, percentiles: Iterable[float]
) -> tuple[Array, dict[float, Array]]:
    """Mean and percentiles of the sum, per flow."""
    mean, variance = np.zeros(flows), np.zeros(flows)
    weighted = {p: np.zeros(flows) for p in percentiles}
    for part in parts:
        mean = mean + part.mean
        variance = variance + part.variance
        weighted = {p: value + part.scores[p] * part.variance for p, value in weighted.items()}
    with np.errstate(divide="ignore", invalid="ignore"):
        above = {
            p: np.where(variance > 0, value / np.sqrt(variance), 0.0)
            for p, value in weighted.items()
        }
        return mean, {p: np.where(np.isfinite(mean), mean + a, np.inf) for p, a in above.items()}


def sums(index: NDArray[np.int64], weights: Array, size: int) -> Array:
    """The sum of the weights of each index."""
    return np.asarray(np.bincount(index, weights, size), dtype=np.float64)
