"""Distributions of sizes, service times, periods and lifetimes: their moments and, for the closed
forms that need it, their Laplace transforms. The simulator draws from the same descriptions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammaincinv, ndtri

from headgate.errors import ConfigurationError

Complex = NDArray[np.complex128]


class Kind(IntEnum):
    """The families that the kernel can draw from; the values are part of its data layout."""

    CONSTANT = 0
    EXPONENTIAL = 1
    UNIFORM = 2
    ERLANG = 3
    HYPEREXPONENTIAL = 4
    LOGNORMAL = 5
    EMPIRICAL = 6


@dataclass(frozen=True, slots=True)
class Distribution:
    """A non-negative distribution of a given mean; `a`, `b` and `values` belong to the family.

    UNIFORM: on mean ± a. ERLANG: a phases. HYPEREXPONENTIAL: two branches with balanced means,
    taken with probabilities a and 1 - a. LOGNORMAL: a is sigma, b is mu. EMPIRICAL: each of
    `values` alike.
    """

    kind: Kind
    mean: float
    a: float = 0.0
    b: float = 0.0
    values: tuple[float, ...] = ()

    @staticmethod
    def constant(value: float) -> Distribution:
        return Distribution(Kind.CONSTANT, _checked(value, "a constant"))

    @staticmethod
    def exponential(mean: float) -> Distribution:
        return Distribution(Kind.EXPONENTIAL, _checked(mean, "an exponential mean"))

    @staticmethod
    def uniform(low: float, high: float) -> Distribution:
        if not 0 <= low <= high:
            raise ConfigurationError(f"a uniform range needs 0 <= low <= high, not {low}..{high}")
        return Distribution(Kind.UNIFORM, (low + high) / 2, (high - low) / 2)

    @staticmethod
    def erlang(mean: float, phases: int) -> Distribution:
        if phases < 1:
            raise ConfigurationError(f"an Erlang distribution needs at least 1 phase, not {phases}")
        return Distribution(Kind.ERLANG, _checked(mean, "an Erlang mean"), float(phases))

    @staticmethod
    def hyperexponential(mean: float, scv: float) -> Distribution:
        """Two exponentials with balanced means; `scv` is variance over mean squared, at least 1."""
        if scv < 1:
            raise ConfigurationError(f"a hyperexponential needs scv >= 1, not {scv}")
        branch = 0.5 * (1 + math.sqrt((scv - 1) / (scv + 1)))
        return Distribution(
            Kind.HYPEREXPONENTIAL, _checked(mean, "a hyperexponential mean"), branch
        )

    @staticmethod
    def lognormal(mean: float, scv: float) -> Distribution:
        if scv <= 0 or mean <= 0:
            raise ConfigurationError(
                f"a lognormal needs mean > 0 and scv > 0, not {mean} and {scv}"
            )
        sigma2 = math.log1p(scv)
        return Distribution(Kind.LOGNORMAL, mean, math.sqrt(sigma2), math.log(mean) - sigma2 / 2)

    @staticmethod
    def empirical(values: Sequence[float]) -> Distribution:
        if not values or min(values) < 0:
            raise ConfigurationError("an empirical distribution needs values that are >= 0")
        return Distribution(
            Kind.EMPIRICAL, float(np.mean(values)), values=tuple(float(v) for v in values)
        )

    def moments(self) -> tuple[float, float, float]:
        """The first three raw moments."""
        mean = self.mean
        match self.kind:
            case Kind.CONSTANT:
                return mean, mean**2, mean**3
            case Kind.EXPONENTIAL:
                return mean, 2 * mean**2, 6 * mean**3
            case Kind.UNIFORM:
                return mean, mean**2 + self.a**2 / 3, mean**3 + mean * self.a**2
            case Kind.ERLANG:
                k = self.a
                return mean, mean**2 * (k + 1) / k, mean**3 * (k + 1) * (k + 2) / k**2
            case Kind.HYPEREXPONENTIAL:
                p = self.a
                means = np.array([mean / (2 * p), mean / (2 * (1 - p))]) if p < 1 else None
                if means is None:
                    return mean, 2 * mean**2, 6 * mean**3
                weights = np.array([p, 1 - p])
                return (
                    mean,
                    float(2 * weights @ means**2),
                    float(6 * weights @ means**3),
                )
            case Kind.LOGNORMAL:
                s2 = self.a**2
                return mean, math.exp(2 * self.b + 2 * s2), math.exp(3 * self.b + 4.5 * s2)
            case Kind.EMPIRICAL:
                values = np.asarray(self.values)
                return mean, float(np.mean(values**2)), float(np.mean(values**3))

    @property
    def scv(self) -> float:
        """Squared coefficient of variation."""
        first, second, _ = self.moments()
        return second / first**2 - 1 if first > 0 else 0.0

    def quantile(self, p: float) -> float:
        """The value that a part p of the draws does not exceed."""
        mean = self.mean
        match self.kind:
            case Kind.CONSTANT:
                return mean
            case Kind.EXPONENTIAL:
                return -mean * math.log1p(-p)
            case Kind.UNIFORM:
                return mean + self.a * (2 * p - 1)
            case Kind.ERLANG:
                return mean / self.a * float(gammaincinv(self.a, p))
            case Kind.HYPEREXPONENTIAL:
                q = self.a
                if q >= 1:
                    return -mean * math.log1p(-p)
                fast, slow = mean / (2 * q), mean / (2 * (1 - q))

                def excess(x: float) -> float:
                    return q * math.exp(-x / fast) + (1 - q) * math.exp(-x / slow) - (1 - p)

                return float(brentq(excess, 0.0, -slow * math.log1p(-p) + mean))
            case Kind.LOGNORMAL:
                return math.exp(self.b + self.a * float(ndtri(p)))
            case Kind.EMPIRICAL:
                return float(np.quantile(self.values, p, method="inverted_cdf"))

    def transform(self, s: Complex) -> Complex:
        """E[exp(-s X)]; the lognormal has no closed form and is refused."""
        mean = self.mean
        match self.kind:
            case Kind.CONSTANT:
                return np.exp(-s * mean)
            case Kind.EXPONENTIAL:
                return 1 / (1 + s * mean)
            case Kind.UNIFORM:
                x = s * self.a
                small = np.abs(x) < 1e-6
                ratio = np.where(small, 1 + x * x / 6, np.sinh(x) / np.where(small, 1, x))
                return np.exp(-s * mean) * ratio
            case Kind.ERLANG:
                return (1 + s * mean / self.a) ** (-self.a)
            case Kind.HYPEREXPONENTIAL:
                p = self.a
                if p >= 1:
                    return 1 / (1 + s * mean)
                return p / (1 + s * mean / (2 * p)) + (1 - p) / (1 + s * mean / (2 * (1 - p)))
            case Kind.EMPIRICAL:
                values = np.asarray(self.values)
                return np.asarray(np.exp(-np.multiply.outer(s, values)).mean(axis=-1))
            case Kind.LOGNORMAL:
                raise ValueError("the lognormal distribution has no transform in closed form")

    def scaled(self, factor: float) -> Distribution:
        """The distribution of factor times this quantity: bytes become seconds on a link."""
        match self.kind:
            case Kind.UNIFORM:
                return Distribution(self.kind, self.mean * factor, self.a * factor)
            case Kind.LOGNORMAL:
                return Distribution(
                    self.kind, self.mean * factor, self.a, self.b + math.log(factor)
                )
            case Kind.EMPIRICAL:
                return Distribution.empirical([value * factor for value in self.values])
            case _:
                return Distribution(self.kind, self.mean * factor, self.a, self.b)


def _checked(value: float, what: str) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise ConfigurationError(f"{what} must be a finite number >= 0, not {value}")
    return float(value)
