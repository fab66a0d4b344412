"""The probabilistic ON/OFF queue (ON/OFF §III): a subscriber that connects and disconnects.

The server is ON for exponential periods of mean `on_s`, OFF for `off_s`. While it is OFF,
messages join with probability `join` (zeta) and wait; service that is interrupted goes on in the
next ON period.

The paper stops at mean number and mean response. The whole response time has a closed form as
well: n messages found means n + 1 services, each prolonged by the OFF periods that fall into it,
and P(n) is P0 R^n, so that the transform is rational and the tail a sum of four exponentials.
`response_tail` is therefore exact, and so are the quantiles.

Every quantity may be a float or an array; all are computed element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headgate.model.qbd import QuasiBirthDeath

Array = NDArray[np.float64]
Numbers: TypeAlias = float | Array


@dataclass(frozen=True)
class OnOffQueue:
    """q = (lambda, zeta, mu, T_ON, T_OFF) of ON/OFF Eq. 2."""

    arrival_rate: Numbers
    service_rate: Numbers
    on_s: Numbers
    off_s: Numbers
    join: Numbers = 1.0

    @property
    def on_probability(self) -> Numbers:
        """Eq. 4."""
        return self.on_s / (self.on_s + self.off_s)

    @property
    def off_probability(self) -> Numbers:
        """Eq. 5."""
        return self.off_s / (self.on_s + self.off_s)

    @property
    def utilisation(self) -> Numbers:
        """rho (1 + zeta theta_ON / theta_OFF): what arrives over what the ON periods can serve.

        The queue is stable where this is below 1, that is where P0 of Eq. 22 is positive. The
        condition printed in §IV-A, 1 - lambda_eff / mu < 1, holds for every queue and is wrong.
        """
        return self.arrival_rate / self.service_rate * (1 + self.join * self.off_s / self.on_s)

    @property
    def stable(self) -> NDArray[np.bool_]:
        return np.asarray(self.utilisation) < 1

    @property
    def success_rate(self) -> Numbers:
        """The fraction of messages that are delivered, if stable."""
        return 1 - self.off_probability * (1 - self.join)

    @property
    def throughput(self) -> Numbers:
        """lambda_eff of Eq. 28; of an unstable queue, all that the ON periods can serve."""
        taken = self.arrival_rate * self.success_rate
        return np.minimum(taken, self.service_rate * self.on_probability)

    @property
    def empty_probability(self) -> tuple[Numbers, Numbers]:
        """(P00, P01) of Eq. 22: empty and OFF, empty and ON."""
        theta_on, theta_off = 1 / self.on_s, 1 / self.off_s
        p = self.arrival_rate / self.service_rate
        on = (theta_off * (1 - p) - p * self.join * theta_on) / (theta_on + theta_off)
        return theta_on / (self.arrival_rate * self.join + theta_off) * on, on

    @property
    def mean_number(self) -> Numbers:
        """Eq. 25 as printed."""
        theta_on, theta_off = 1 / self.on_s, 1 / self.off_s
        lam, mu, zeta = self.arrival_rate, self.service_rate, self.join
        p = lam / mu
        slack = theta_off * (1 - p) - p * zeta * theta_on
        with np.errstate(divide="ignore", invalid="ignore"):
            a1 = p / (slack * (lam * zeta + theta_off) * (theta_on + theta_off))
            a2 = (theta_on * (zeta * (lam + mu + theta_on) + theta_off)) * (
                (lam * zeta + theta_off) * (1 - p) * (1 - p + p * zeta)
                + p * zeta * (p * theta_on * (1 - zeta) + theta_off)
            )
            a3 = (zeta * (lam + theta_on) + theta_off) * (
                p * theta_on * (lam * zeta + theta_off) * (1 - p + p * zeta)
                + (theta_off - p * zeta * theta_on) * (p * theta_on * (1 - zeta) + theta_off)
            )
            return np.where(self.stable, a1 * (a2 + a3), np.inf)[()]

    @property
    def decay(self) -> Array:
        """The factor by which P(n) falls from one n to the next, far out."""
        return np.asarray(self._spectrum[0][0])

    @property
    def mean_response(self) -> Numbers:
        """Eq. 28, of the messages that are taken."""
        with np.errstate(invalid="ignore"):
            return np.where(self.stable, self.mean_number / self.throughput, np.inf)[()]

    @cached_property
    def _spectrum(self) -> tuple[Array, Array, Array]:
        """(eta, off, on), each with a first axis of 2: P(n, OFF) = sum_i off_i eta_i^n, and so ON.

        The eigenvalues of R (Eq. 19) are real, distinct and in [0, 1) for a stable queue.
        """
        # An idle queue has R = 0 and no eigenvectors; almost idle, it has the limit's.
        lam = np.maximum(self.arrival_rate, 1e-12 * np.asarray(self.service_rate))
        mu, zeta = self.service_rate, self.join
        theta_on, theta_off = 1 / self.on_s, 1 / self.off_s
        p, rise = lam / mu, lam * zeta + theta_off
        r00, r01 = p * zeta * (mu + theta_on) / rise, p * zeta
        r10, r11 = p * theta_on / rise, p
        root = np.sqrt((r00 - r11) ** 2 + 4 * r01 * r10)
        eta = np.stack([(r00 + r11 + root) / 2, (r00 + r11 - root) / 2])
        on0 = (theta_off * (1 - p) - p * zeta * theta_on) / (theta_on + theta_off)
        off0 = theta_on / rise * on0
        # R^n = (eta_1^n (R - eta_2 I) - eta_2^n (R - eta_1 I)) / (eta_1 - eta_2)
        other, sign = eta[::-1], np.stack([1 / root, -1 / root])
        off = sign * (off0 * r00 + on0 * r10 - other * off0)
        on = sign * (off0 * r01 + on0 * r11 - other * on0)
        return eta, off, on

    def response(self, join: Numbers | None = None) -> Response:
        """The response time of messages that join with `join` while OFF.

        `join` differs from the queue's own where flows with different zeta share one subscriber's
        queue: the queue's zeta is then the mean of theirs, weighted by rate.
        """
        taken = np.asarray(self.join if join is None else join)
        eta, off, on = (_aligned(values, taken) for values in self._spectrum)
        mu, theta_on, theta_off = self.service_rate, 1 / self.on_s, 1 / self.off_s
        # The service of one message, interruptions included, has the transform
        # phi(s) = mu (s + theta_off) / ((s + mu)(s + theta_off) + theta_on s), and
        # phi / (1 - eta phi) = mu (s + theta_off) / ((s + a)(s + b)).
        x = mu * (1 - eta)
        middle = (x + theta_off + theta_on) / 2
        b = middle + np.sqrt(middle**2 - x * theta_off)
        a = x * theta_off / b
        total = self.on_probability + taken * self.off_probability
        found_on, found_off = on / total, taken * off / total
        slow = mu * (found_on * (theta_off - a) + found_off * theta_off) / (b - a) / a
        fast = mu * (found_on * (b - theta_off) - found_off * theta_off) / (b - a) / b
        return Response(np.concatenate([slow, fast]), np.concatenate([a, b]), self.stable)

    def response_moments(self, join: Numbers | None = None) -> tuple[Numbers, Numbers]:
        """First and second moment of the response."""
        return self.response(join).moments

    def response_tail(self, t: Numbers, join: Numbers | None = None) -> Numbers:
        """P(T > t), exact."""
        return self.response(join).tail(t)

    def response_quantile(self, p: float, join: Numbers | None = None) -> Numbers:
        """Exact up to rounding."""
        return self.response(join).quantile(p)

    def chain(self) -> QuasiBirthDeath:
        """The Markov chain of Fig. 3 (Eqs. 7 to 10), for the numerical solution."""
        lam, mu, zeta = float(self.arrival_rate), float(self.service_rate), float(self.join)
        theta_on, theta_off = 1 / float(self.on_s), 1 / float(self.off_s)
        leave_off, leave_on = -(lam * zeta + theta_off), -(lam + theta_on)
        return QuasiBirthDeath(
            boundary=np.array([[leave_off, theta_off], [theta_on, leave_on]]),
            up=np.diag([lam * zeta, lam]),
            local=np.array([[leave_off, theta_off], [theta_on, leave_on - mu]]),
            down=np.diag([0.0, mu]),
        )


@dataclass(frozen=True)
class Response:
    """P(T > t) = sum of weight x exp(-rate t), four terms (first axis), where the queue is stable.

    Whoever asks for moments and several quantiles asks one of these.
    """

    weights: Array
    rates: Array
    stable: NDArray[np.bool_]

    @property
    def moments(self) -> tuple[Numbers, Numbers]:
        means = self.weights / self.rates
        first, second = means.sum(axis=0), 2 * (means / self.rates).sum(axis=0)
        return (
            np.where(self.stable, first, np.inf)[()],
            np.where(self.stable, second, np.inf)[()],
        )

    def tail(self, t: Numbers) -> Numbers:
        t = np.asarray(t)
        weights, rates = _aligned(self.weights, t), _aligned(self.rates, t)
        tail = (weights * np.exp(-rates * t)).sum(axis=0)
        return np.where(self.stable, np.clip(tail, 0, 1), 1.0)[()]

    def quantile(self, p: float) -> Numbers:
        return self.quantiles((p,))[p]

    def quantiles(self, ps: Sequence[float]) -> dict[float, Numbers]:
        """Several at once: each helps to find the next."""
        stable = np.broadcast_to(self.stable, self.weights.shape[1:])
        weights, rates = self.weights[:, stable], self.rates[:, stable]
        found: dict[float, Numbers] = {}
        t: Array | None = None
        for p in sorted(ps):
            t = _quantile_of_exponentials(weights, rates, 1 - p, t)
            result = np.full(stable.shape, np.inf)
            result[stable] = t
            found[p] = result[()]
        return found


def _aligned(values: Array, other: Array) -> Array:
    """`values` with its first axis kept and the rest broadcast against `other`."""
    missing = max(0, other.ndim - (values.ndim - 1))
    return values.reshape(values.shape[:1] + (1,) * missing + values.shape[1:])


STEPS, ROUNDS = 3, 10
"""Newton's: so many for all that have not arrived, and then again for the rest."""

FAR = 40.0
"""exp(-40) is 4e-18: nothing, beside a tail of any interest."""


def _quantile_of_exponentials(
    weights: Array, rates: Array, tail: float, start: Array | None = None
) -> Array:
    """t with sum of weight x exp(-rate t) = tail, per column; the first two rates are the slowest.

    Newton's method on the logarithm, which is nearly straight: where the tail is that of one
    exponential, one step is enough. `start` may be the quantile of a larger tail.
    """
    t = _left_of(weights, rates, tail)
    if start is not None:
        t = np.maximum(t, start)
    # Mostly the two fast terms are over by then.
    far = ((rates[2:] * t) > FAR).all(axis=0)
    if far.all():
        result = _newton(weights[:2], rates[:2], tail, t)
    else:
        near = ~far
        result = np.empty(len(t))
        result[far] = _newton(weights[:2, far], rates[:2, far], tail, t[far])
        result[near] = _newton(weights[:, near], rates[:, near], tail, t[near])
    astray = np.isnan(result) | (far & ((rates[2:] * result) < FAR).any(axis=0))
    if astray.any():
        result[astray] = _bracketed(weights[:, astray], rates[:, astray], tail)
    return result


def _left_of(weights: Array, rates: Array, tail: float) -> Array:
    """A place to start. Each term that is not negative bounds the tail from below, or nearly so:
    from the best of these, on the left of a convex curve, Newton's steps never go too far."""
    return np.asarray((np.log(np.maximum(weights, 1e-300) / tail) / rates).max(axis=0).clip(0.0))


def _newton(weights: Array, rates: Array, tail: float, t: Array) -> Array:
    """NaN where it does not arrive."""
    result = np.full(len(t), np.nan)
    left = np.arange(len(t))
    for _ in range(ROUNDS):
        t, arrived = _steps(weights, rates, tail, t)
        if arrived.all():
            result[left] = t
            break
        result[left[arrived]] = t[arrived]
        late = ~arrived
        left, t, weights, rates = left[late], t[late], weights[:, late], rates[:, late]
    return result


def _steps(weights: Array, rates: Array, tail: float, t: Array) -> tuple[Array, NDArray[np.bool_]]:
    slopes = weights * rates
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for _ in range(STEPS):
            decays = np.exp(-rates * t)
            value = np.einsum("ij,ij->j", weights, decays)
            step = np.log(value / tail) * value / np.einsum("ij,ij->j", slopes, decays)
            t = t + step
            # Newton's error is squared with every step: after one of 1e-6 nothing is left to gain.
            arrived = np.abs(step) <= 1e-6 * t
            if arrived.all():
                break
    return t, arrived


def _bracketed(weights: Array, rates: Array, tail: float) -> Array:
    """The same by halving, which always arrives: |weights| with the slowest rate bound the tail."""
    low = np.zeros(weights.shape[1])
    high = np.log(np.abs(weights).sum(axis=0) / tail) / rates[0] + 1e-300
    for _ in range(100):
        middle = (low + high) / 2
        above = (weights * np.exp(-rates * middle)).sum(axis=0) > tail
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray((low + high) / 2)
