"""The two other dropping mechanisms of ON/OFF §IV-B, solved numerically: an ON/OFF queue with room
for K messages, and one that messages leave when their exponential lifetime ends.

Both are finite Markov chains over (n, OFF/ON): the capacity bounds n, and a lifetime bounds it in
practice, since the rate of leaving grows with n. The balance equations are solved level by level.
With always-ON servers these are M/M/1/K and M/M/1 with reneging.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headgate.model.onoff import OnOffQueue

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LimitedOnOffQueue:
    """`capacity` counts the message in service; `lifetime_s` is a mean, infinite for none."""

    arrival_rate: float
    service_rate: float
    on_s: float
    off_s: float
    join: float = 1.0
    capacity: int | None = None
    lifetime_s: float = math.inf

    @cached_property
    def probabilities(self) -> Array:
        """P(n, k), a row per n; column 0 is OFF, column 1 ON."""
        size = self._levels
        expiry = 1 / self.lifetime_s
        theta_on, theta_off = 1 / self.on_s, 1 / self.off_s
        up = np.diag([self.arrival_rate * self.join, self.arrival_rate])
        # Linear level reduction from the top: P_n = P_{n-1} R_n.
        rates: list[Array] = []
        above = np.zeros((2, 2))
        for n in range(size, 0, -1):
            out_up = up if n < size else np.zeros((2, 2))
            down = np.diag([n * expiry, n * expiry + self.service_rate])
            local = np.array([[-theta_off, theta_off], [theta_on, -theta_on]]) - out_up - down
            next_down = np.diag([(n + 1) * expiry, (n + 1) * expiry + self.service_rate])
            rate = -up @ np.linalg.inv(local + above @ next_down)
            rates.append(rate)
            above = rate
        rates.reverse()
        boundary = np.array([[-theta_off, theta_off], [theta_on, -theta_on]]) - up
        boundary = boundary + rates[0] @ np.diag([expiry, expiry + self.service_rate])
        # One equation of the null vector is enough in two dimensions: v B = 0.
        start = np.array([boundary[1, 0], -boundary[0, 0]])
        rows = [start / start.sum()]
        for rate in rates:
            rows.append(rows[-1] @ rate)
        levels = np.array(rows)
        return np.asarray(levels / levels.sum())

    @property
    def _levels(self) -> int:
        if self.capacity is not None:
            return self.capacity
        if math.isinf(self.lifetime_s):
            raise ValueError("give a capacity or a lifetime; without either use OnOffQueue")
        # Never more than an M/M/infinity queue of the same lifetime: Poisson, mean lambda x
        # lifetime; nor than the queue without lifetimes, if that is stable.
        mean = self.arrival_rate * self.lifetime_s
        levels = math.ceil(mean + 12 * math.sqrt(mean) + 30)
        eternal = OnOffQueue(self.arrival_rate, self.service_rate, self.on_s, self.off_s, self.join)
        if eternal.stable:
            levels = min(levels, 30 + math.ceil(math.log(1e-16) / math.log(float(eternal.decay))))
        return levels

    @property
    def success_rate(self) -> float:
        """Delivered over published."""
        busy = float(self.probabilities[1:, 1].sum())
        return self.service_rate * busy / self.arrival_rate

    @property
    def loss_while_on(self) -> float:
        """Of the messages that arrive in ON periods, those that find the queue full (Fig. 7)."""
        if self.capacity is None:
            return 0.0
        on = self.probabilities[:, 1]
        return float(on[-1] / on.sum())

    @cached_property
    def _delivery(self) -> tuple[Array, Array]:
        """Per state found (n ahead, k): P(delivered), E[response; delivered], one row per n."""
        expiry = 1 / self.lifetime_s
        theta_on, theta_off = 1 / self.on_s, 1 / self.off_s
        size = self._levels
        chance, spent = np.zeros((size + 1, 2)), np.zeros((size + 1, 2))
        # Before the first: a service in ON delivers.
        done, done_spent = np.array([0.0, 1.0]), np.zeros(2)
        for ahead in range(size + 1):
            gone = ahead * expiry
            # Rates of the tagged message: those ahead leave, it is served (or they are), it
            # expires.
            forward = np.diag([gone, gone + self.service_rate])
            system = np.diag(
                [theta_off + gone + expiry, theta_on + gone + self.service_rate + expiry]
            ) - np.array([[0.0, theta_off], [theta_on, 0.0]])
            chance[ahead] = np.linalg.solve(system, forward @ done)
            spent[ahead] = np.linalg.solve(system, forward @ done_spent + chance[ahead])
            done, done_spent = chance[ahead], spent[ahead]
        return chance, spent

    @property
    def mean_response(self) -> float:
        """Of the messages that are delivered."""
        chance, spent = self._delivery
        weights = self.probabilities * np.array([self.join, 1.0])
        if self.capacity is not None:
            weights = weights[:-1]
        taken = len(weights)
        return float((weights * spent[:taken]).sum() / (weights * chance[:taken]).sum())
