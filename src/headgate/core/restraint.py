"""A rate that was given is the most that a path takes, not a promise that it always does.

A radio that repeats itself, a neighbour's download, a hypervisor that stands still: for a moment
the path takes less than its rate. What the pace sent meanwhile waits on the path, first in, first
out, and a pace 2 % below the rate would take fifty times as long to let it drain. So what is under
way is held against what the pace alone explains, and the rest is taken off the pace:

    under way  =  a round trip's worth  +  what the pace sent ahead  +  excess
                                                                        └─▶ charged to the link

What counts as under way may be wrong (a receiver that holds back its acknowledgements), and the
rate may simply be too high. Neither may cost much: in the long run no more than a tenth of the rate
is held back.
"""

from __future__ import annotations

GENTLE = 0.5
"""Of what was earned since the last look, this fraction is taken at most."""

PATIENCE = 0.5
"""Seconds of the rate that may be held back at once."""

SHARE = 0.1
"""Seconds of the rate that may be held back in each second, in the long run."""

TRIP = 1.25
"""Round trips differ by so much without a queue."""


class Restraint:
    """One link. `excess` says how much its pace has to make up for."""

    def __init__(self) -> None:
        self.patience = PATIENCE

    @property
    def exhausted(self) -> bool:
        """Has the path taken less than its rate for too long to call it a moment?"""
        return self.patience <= 0.0

    def excess(
        self, seconds: float, under_way: float, ahead: float, rate: float, spare: float, trip: float
    ) -> float:
        """Bytes to charge to the link, `seconds` after the last look.

        `under_way`: bytes on the path; `ahead`: of these, what the pace sent before their time;
        `spare`: bytes that are no queue on any path; `trip`: the shortest round trip.
        """
        self.patience = min(PATIENCE, self.patience + SHARE * seconds)
        beyond = under_way - ahead - rate * TRIP * trip - spare
        if beyond <= 0.0 or self.patience <= 0.0:
            return 0.0
        held = min(beyond, GENTLE * rate * seconds)
        self.patience -= held / rate
        return held
