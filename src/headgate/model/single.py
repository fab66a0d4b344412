"""Queues with one class: M/M/1, M/M/1/K and M/G/1.

Every queue answers with infinity where it is unstable. Thinned arrivals (a drop rate d) are a queue
with the arrival rate multiplied by 1 - d: a thinned Poisson process is Poisson.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc

from headgate.model import inversion
from headgate.model.distributions import Complex, Distribution


@dataclass(frozen=True)
class MM1:
    """Poisson arrivals, exponential service, one server, first come first served."""

    arrival_rate: float
    service_rate: float

    @property
    def utilisation(self) -> float:
        return self.arrival_rate / self.service_rate

    @property
    def stable(self) -> bool:
        return self.utilisation < 1

    @property
    def throughput(self) -> float:
        return min(self.arrival_rate, self.service_rate)

    @property
    def mean_response(self) -> float:
        return 1 / (self.service_rate - self.arrival_rate) if self.stable else math.inf

    @property
    def mean_number(self) -> float:
        return self.arrival_rate * self.mean_response if self.arrival_rate else 0.0

    def response_tail(self, t: float) -> float:
        """P(T > t): the response of a stable M/M/1 is exponential."""
        return math.exp(-t / self.mean_response) if self.stable else 1.0

    def response_quantile(self, p: float) -> float:
        return -math.log1p(-p) * self.mean_response


@dataclass(frozen=True)
class MM1K:
    """M/M/1 with room for `capacity` messages, the one in service included; arrivals that find it
    full are lost (overloaded event dropping, ON/OFF §IV-B)."""

    arrival_rate: float
    service_rate: float
    capacity: int

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """P(n in the system), n = 0..capacity; finite at any load."""
        rho = self.arrival_rate / self.service_rate
        n = np.arange(self.capacity + 1)
        # From the likelier end, so that no power overflows.
        weights = rho**n if rho <= 1 else rho ** (n - float(self.capacity))
        return np.asarray(weights / weights.sum())

    @property
    def loss(self) -> float:
        return float(self.probabilities[-1])

    @property
    def throughput(self) -> float:
        return self.arrival_rate * (1 - self.loss)

    @property
    def mean_number(self) -> float:
        return float(self.probabilities @ np.arange(self.capacity + 1))

    @property
    def mean_response(self) -> float:
        """Of the messages that were taken."""
        return self.mean_number / self.throughput

    def response_tail(self, t: float) -> float:
        """P(T > t) of those taken: a mixture of Erlang distributions, exact."""
        found = self.probabilities[:-1] / (1 - self.loss)
        phases = np.arange(1, self.capacity + 1)
        return float(found @ (1 - gammainc(phases, self.service_rate * t)))

    def response_quantile(self, p: float) -> float:
        low, high = 0.0, self.mean_response
        while self.response_tail(high) > 1 - p:
            high *= 2
        while high - low > 1e-12 * high:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.response_tail(middle) > 1 - p else (low, middle)
        return high


@dataclass(frozen=True)
class MG1:
    """Poisson arrivals, general service, first come first served (Pollaczek and Khinchine)."""

    arrival_rate: float
    service: Distribution

    @property
    def utilisation(self) -> float:
        return self.arrival_rate * self.service.mean

    @property
    def stable(self) -> bool:
        return self.utilisation < 1

    @property
    def throughput(self) -> float:
        return self.arrival_rate if self.stable else 1 / self.service.mean

    @property
    def mean_wait(self) -> float:
        if not self.stable:
            return math.inf
        _, second, _ = self.service.moments()
        return self.arrival_rate * second / (2 * (1 - self.utilisation))

    @property
    def wait_second_moment(self) -> float:
        if not self.stable:
            return math.inf
        _, _, third = self.service.moments()
        return 2 * self.mean_wait**2 + self.arrival_rate * third / (3 * (1 - self.utilisation))

    @property
    def mean_response(self) -> float:
        return self.mean_wait + self.service.mean

    @property
    def mean_number(self) -> float:
        return self.arrival_rate * self.mean_response if self.arrival_rate else 0.0

    def wait_transform(self, s: Complex) -> Complex:
        """E[exp(-sW)] = (1 - rho) s / (s - lambda + lambda B(s))."""
        rate = self.arrival_rate
        return (1 - self.utilisation) * s / (s - rate + rate * self.service.transform(s))

    def wait_quantile(self, p: float) -> float:
        """Exact up to the error of the numerical inversion."""
        if not self.stable:
            return math.inf
        return inversion.quantile(self.wait_transform, p, self.mean_wait, atom=1 - self.utilisation)

    def response_quantile(self, p: float) -> float:
        """Exact up to the error of the inversion; a constant service is a shift of the wait."""
        if not self.stable:
            return math.inf
        if self.service.scv == 0:
            return self.wait_quantile(p) + self.service.mean
        return inversion.quantile(
            lambda s: self.wait_transform(s) * self.service.transform(s), p, self.mean_response
        )
