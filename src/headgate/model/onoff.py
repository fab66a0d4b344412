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

from headgate.model.exponentials import quantiles
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
        weights, rates = self.weights, self.rates
        everywhere = stable.ndim == 1 and bool(stable.all())
        if not everywhere:
            weights, rates = weights[:, stable], rates[:, stable]
        ranks = sorted(ps)
        found: dict[float, Numbers] = {}
        solved = quantiles(weights, rates, [1 - p for p in ranks])
        for p, t in zip(ranks, solved, strict=True):
            if everywhere:
                found[p] = t
            else:
                result = np.full(stable.shape, np.inf)
                result[stable] = t
                found[p] = result[()]
        return found


def _aligned(values: Array, other: Array) -> Array:
    """`values` with its first axis kept and the rest broadcast against `other`."""
    missing = max(0, other.ndim - (values.ndim - 1))
    return values.reshape(values.shape[:1] + (1,) * missing + values.shape[1:])
