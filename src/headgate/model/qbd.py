"""Quasi-birth-death chains, solved numerically by the matrix-geometric method.

The logarithmic reduction of G. Latouche and V. Ramaswami (1993), which converges quadratically. It
shares nothing with the closed form of the ON/OFF queue, so each checks the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class QuasiBirthDeath:
    """Levels 0, 1, 2, ... of equal size. `boundary` is the local block of level 0; `up`, `local`
    and `down` are the blocks of every other level (C0, C1, C2 of ON/OFF Eq. 6)."""

    boundary: Matrix
    up: Matrix
    local: Matrix
    down: Matrix

    def rate_matrix(self) -> Matrix:
        """The minimal R with C0 + R C1 + R^2 C2 = 0."""
        identity = np.eye(len(self.local))
        inverse = np.linalg.inv(-self.local)
        rise, fall = inverse @ self.up, inverse @ self.down
        first_passage, product = fall.copy(), rise.copy()
        for _ in range(64):
            both = rise @ fall + fall @ rise
            resolvent = np.linalg.inv(identity - both)
            rise, fall = resolvent @ rise @ rise, resolvent @ fall @ fall
            step = product @ fall
            first_passage += step
            product = product @ rise
            if np.max(np.abs(step)) < 1e-15:
                break
        return self.up @ np.linalg.inv(-(self.local + self.up @ first_passage))

    def stationary(self) -> tuple[Matrix, Matrix]:
        """(P0, R): level n has the probabilities P0 R^n. The chain must be stable."""
        rate = self.rate_matrix()
        size = len(rate)
        totals = np.linalg.inv(np.eye(size) - rate) @ np.ones(size)
        balance = self.boundary + rate @ self.down
        # One balance equation is redundant: the normalisation takes its place.
        system = np.vstack([balance.T[:-1], totals])
        target = np.zeros(size)
        target[-1] = 1
        return np.asarray(np.linalg.solve(system, target), dtype=float), rate

    def mean_level(self) -> float:
        start, rate = self.stationary()
        inverse = np.linalg.inv(np.eye(len(rate)) - rate)
        return float(start @ rate @ inverse @ inverse @ np.ones(len(rate)))

    @property
    def stable(self) -> bool:
        """Neuts' drift condition: pi C0 1 < pi C2 1 for pi (C0 + C1 + C2) = 0."""
        generator = self.up + self.local + self.down
        size = len(generator)
        system = np.vstack([generator.T[:-1], np.ones(size)])
        target = np.zeros(size)
        target[-1] = 1
        phases = np.linalg.solve(system, target)
        return bool(phases @ self.up.sum(axis=1) < phases @ self.down.sum(axis=1))
