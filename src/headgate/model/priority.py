"""M/G/1 with any number of priority levels; level 0 goes first.

Non-preemptive (A. Cobham, 1954) and preemptive-resume. Beyond Cobham's means: second moments, and
the whole distribution by transform inversion. All of it follows from one decomposition. A message
of level k waits for the *delay busy period* that begins with the work U it finds at levels <= k
(plus, without preemption, what is left of a lower message in service) and is prolonged by what
arrives meanwhile at levels < k:

    E[exp(-sU)] = (1 - rho + sum_{j>k} rho_j B_j,e(s)) / (1 - sum_{j<=k} rho_j B_j,e(s))

where B_e is the residual of the service time B. `delay_moments` computes the moments of U and of
the delay for arrays of levels, with batch arrivals allowed, since a published message enters a
link as one copy per subscription at once; the network model is built on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headgate.model import inversion
from headgate.model.distributions import Complex, Distribution
from headgate.model.gamma import gamma_quantile

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LevelWork:
    """The work that arrives per second at each level (last axis), and its moments.

    load: rho_k. second, third: sums of rate x E[S^2], rate x E[S^3] over the messages of level k.
    batch_second, batch_third: sums over batches of rate x E[X^2], rate x E[X^3], where X is the
    work that a batch brings to levels <= k; without batches, the running sums of `second` and
    `third`.
    """

    load: Array
    second: Array
    third: Array
    batch_second: Array
    batch_third: Array


@dataclass(frozen=True, slots=True)
class LevelDelay:
    """Per level: moments of the work U found, and how a wait grows while it is served."""

    found_mean: Array
    found_second: Array
    stretch: Array  # 1 / (1 - load above): seconds waited per second of work ahead
    jitter: Array  # variance of the wait added per second of work ahead

    def stretched(self, mean: Array, second: Array) -> tuple[Array, Array]:
        """Moments of the delay busy period that begins with work of these moments."""
        with np.errstate(invalid="ignore"):  # infinite work, where a level is overloaded
            return mean * self.stretch, second * self.stretch**2 + mean * self.jitter


def delay_moments(work: LevelWork, *, preemptive: bool) -> LevelDelay:
    """Exact where the load up to a level is below 1, infinite elsewhere.

    Overload of low levels leaves the higher ones finite: the server is then always busy, and what a
    message finds in service is weighted by the work that is carried, not by what is offered.
    """
    through = np.cumsum(work.load, axis=-1)
    above = through - work.load
    with np.errstate(divide="ignore", invalid="ignore"):
        carried = np.minimum(np.maximum(1 - above, 0.0), work.load) / work.load
    carried = np.where(work.load > 0, carried, 0.0)
    if preemptive:
        lower_second: Array | float = 0.0
        lower_third: Array | float = 0.0
    else:
        lower_second = _sum_below(work.second * carried)
        lower_third = _sum_below(work.third * carried)
    free = np.where(through < 1, 1 - through, np.nan)
    residual = (work.batch_second + lower_second) / 2
    mean = residual / free
    second = (work.batch_third + lower_third) / (3 * free) + mean * work.batch_second / free
    free_above = np.where(above < 1, 1 - above, np.nan)
    higher = np.concatenate(
        [np.zeros_like(work.batch_second[..., :1]), work.batch_second[..., :-1]], axis=-1
    )
    return LevelDelay(
        np.where(np.isnan(mean), np.inf, mean),
        np.where(np.isnan(second), np.inf, second),
        np.where(np.isnan(free_above), np.inf, 1 / free_above),
        np.where(np.isnan(free_above), np.inf, higher / free_above**3),
    )


def _sum_below(values: Array) -> Array:
    """Sum over the levels after each (less urgent than it)."""
    total = values.sum(axis=-1, keepdims=True)
    return np.asarray(total - np.cumsum(values, axis=-1))


def fitted_quantile(
    p: Array | float, mean: Array, second: Array, atom: Array | float = 0.0
) -> Array:
    """A quantile from two moments: zero with probability `atom`, else a gamma distribution.

    An approximation, exact for an M/M/1 response (atom 0) and wait (atom 1 - rho). docs/model.md
    measures its error for priority queues.
    """
    positive = np.minimum(np.maximum(1 - atom, 1e-300), 1.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        conditional = mean / positive
        variance = np.maximum(second / positive - conditional**2, 1e-12 * conditional**2)
        shape = conditional**2 / variance
        rank = np.maximum(1 - (1 - p) / positive, 0.0)
        value = gamma_quantile(shape, rank) * variance / conditional
    value = np.where(mean > 0, value, 0.0)
    return np.where(np.isfinite(mean), value, np.inf)


@dataclass(frozen=True)
class PriorityMG1:
    """Independent Poisson classes in order of urgency, each with its own service distribution."""

    rates: Sequence[float]
    services: Sequence[Distribution]
    preemptive: bool = False

    @cached_property
    def work(self) -> LevelWork:
        rates = np.asarray(self.rates, dtype=float)
        moments = np.array([service.moments() for service in self.services])
        first, second, third = (rates * moments[:, i] for i in range(3))
        return LevelWork(first, second, third, np.cumsum(second), np.cumsum(third))

    @cached_property
    def _delay(self) -> LevelDelay:
        return delay_moments(self.work, preemptive=self.preemptive)

    @property
    def utilisation(self) -> float:
        return float(self.work.load.sum())

    def stable(self, level: int) -> bool:
        """Whether the load up to this level leaves it a finite queue."""
        return float(self.work.load[: level + 1].sum()) < 1

    @cached_property
    def response_moments(self) -> tuple[Array, Array]:
        """First and second moment of the response time per level."""
        service = np.array([service.moments()[:2] for service in self.services])
        found, found2 = self._delay.found_mean, self._delay.found_second
        with np.errstate(invalid="ignore"):
            if self.preemptive:
                ahead = found + service[:, 0]
                ahead2 = found2 + 2 * found * service[:, 0] + service[:, 1]
                mean, second = self._delay.stretched(ahead, ahead2)
            else:
                wait, wait2 = self._delay.stretched(found, found2)
                mean = wait + service[:, 0]
                second = wait2 + 2 * wait * service[:, 0] + service[:, 1]
        stable = np.isfinite(found)
        return np.where(stable, mean, np.inf), np.where(stable, second, np.inf)

    def mean_response(self, level: int) -> float:
        return float(self.response_moments[0][level])

    def mean_wait(self, level: int) -> float:
        """Time not in service: with preemption, interruptions included."""
        return self.mean_response(level) - self.services[level].mean

    def response_quantile(self, level: int, p: float) -> float:
        """Exact up to the error of the inversion; needs transforms of the services."""
        if not self.stable(level):
            return math.inf
        service = self.services[level]
        mean = self.mean_response(level)
        if self.preemptive:
            return self._preemptive_quantile(level, p)
        if service.scv == 0:
            atom = max(0.0, 1 - self.utilisation)
            wait = inversion.quantile(
                lambda s: self._wait_transform(level, s), p, mean - service.mean, atom=atom
            )
            return wait + service.mean
        return inversion.quantile(
            lambda s: self._wait_transform(level, s) * service.transform(s), p, mean
        )

    def response_quantile_fitted(self, level: int, p: float) -> float:
        """The approximation that the network model uses, for comparison."""
        mean, second = self.response_moments
        service = self.services[level]
        if service.scv > 0:
            return float(fitted_quantile(p, mean[level], second[level]))
        wait = mean[level] - service.mean
        wait2 = second[level] - 2 * wait * service.mean - service.mean**2
        atom = self._undisturbed(level) if self.preemptive else max(0.0, 1 - self.utilisation)
        return float(fitted_quantile(p, wait, wait2, atom)) + service.mean

    def _wait_transform(self, level: int, s: Complex) -> Complex:
        return self._found_transform(level, s + self._interruptions(level, s))

    def _preemptive_quantile(self, level: int, p: float) -> float:
        service = self.services[level]
        # A constant service is the least that a response can be: it is taken out before, because
        # the inversion wants no jump.
        least = service.mean if service.scv == 0 else 0.0

        def transform(s: Complex) -> Complex:
            shifted = s + self._interruptions(level, s)
            own = np.exp(-(shifted - s) * least) if least else service.transform(shifted)
            return self._found_transform(level, shifted) * own

        atom = self._undisturbed(level) if least else 0.0
        mean = self.mean_response(level) - least
        return inversion.quantile(transform, p, mean, atom=atom) + least

    def _undisturbed(self, level: int) -> float:
        """The chance to find nothing ahead and to be preempted by nothing in a constant service."""
        free = 1 - float(self.work.load[: level + 1].sum())
        return free * math.exp(-sum(self.rates[:level]) * self.services[level].mean)

    def _found_transform(self, level: int, s: Complex) -> Complex:
        """E[exp(-sU)]; rho B_e(s) is rate x (1 - B(s)) / s."""
        work = [
            rate * (1 - service.transform(s)) / s
            for rate, service in zip(self.rates, self.services, strict=True)
        ]
        upto = np.sum(work[: level + 1], axis=0)
        if self.preemptive:
            idle = 1 - float(self.work.load[: level + 1].sum())
            return np.asarray(idle / (1 - upto))
        below = np.zeros_like(upto)
        idle = 1 - self.utilisation
        if idle >= 0:
            below = np.sum(work[level + 1 :], axis=0) if level + 1 < len(work) else below
        else:
            # Overload: only the carried part of the lower classes is ever found in service.
            room = 1 - float(self.work.load[: level + 1].sum())
            idle = 0.0
            for j in range(level + 1, len(work)):
                share = min(1.0, max(0.0, room) / self.work.load[j])
                below = below + share * work[j]
                room -= self.work.load[j]
        return np.asarray((idle + below) / (1 - upto))

    def _interruptions(self, level: int, s: Complex) -> Complex:
        """eta(s) with s + eta = the argument that accounts for busy periods of the levels above.

        The fixed point eta = sum_j rate_j (1 - B_j(s + eta)); iteration from 0 converges at the
        rate of the load above (J. Abate and W. Whitt, 1992).
        """
        eta = np.zeros_like(s)
        if level == 0:
            return eta
        for _ in range(10_000):
            following = np.sum(
                [
                    rate * (1 - service.transform(s + eta))
                    for rate, service in zip(self.rates[:level], self.services[:level], strict=True)
                ],
                axis=0,
            )
            if np.max(np.abs(following - eta)) < 1e-12 * (1 + np.max(np.abs(eta))):
                return np.asarray(following)
            eta = following
        return eta
