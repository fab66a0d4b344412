"""What keeps the loop calm: a budget of changes, no second try of what failed, and patience with
what planning cannot mend."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from headgate.contract import Policy, PolicyRule

MINUTE = 60.0
BACK_OFF = 30.0
"""Seconds before a policy that was rolled back is tried again; doubles each time."""
LOOK_AGAIN = 10.0
"""Seconds before it is planned again for what the model does not see; doubles each time."""
LONGEST = 320.0

Fingerprint = tuple[tuple[PolicyRule, ...], tuple[tuple[str, float], ...]]
"""What a policy says, whatever its version."""


def fingerprint(policy: Policy) -> Fingerprint:
    return policy.rules, tuple(sorted(policy.periods.items()))


class Budget:
    """Changes within a minute, by the controller's own clock: snapshots that waited in a queue and
    are dealt with at once are one moment, whenever they were made."""

    def __init__(self) -> None:
        self._changes: deque[float] = deque()

    def spend(self, now: float) -> None:
        self._changes.append(now)

    def spent(self, now: float) -> int:
        while self._changes and self._changes[0] < now - MINUTE:
            self._changes.popleft()
        return len(self._changes)


class RolledBack:
    """Policies that made things worse."""

    def __init__(self) -> None:
        self._waits: dict[Fingerprint, tuple[float, float]] = {}
        """Not before which time, and how long the wait was."""

    def add(self, policy: Fingerprint, now: float) -> None:
        _, waited = self._waits.get(policy, (0.0, BACK_OFF / 2))
        self._waits[policy] = (now + 2 * waited, 2 * waited)

    def forgive(self, policy: Fingerprint) -> None:
        self._waits.pop(policy, None)

    def waits(self, policy: Fingerprint, now: float) -> bool:
        return now < self._waits.get(policy, (0.0, 0.0))[0]


class Unexplained:
    """Requirements that are seen broken and that planning does not mend, mostly because the model
    says that they are kept.

    No plan is better in the eyes of the model, so planning again changes nothing, or changes
    something for nothing. They are looked at after a time that doubles, until they are kept again.
    """

    def __init__(self) -> None:
        self._waits: dict[str, tuple[float, float]] = {}

    def mendable(self, broken: Collection[str], now: float) -> list[str]:
        """Those of the broken for which it may be planned now."""
        for name in [n for n, (until, _) in self._waits.items() if n not in broken and now > until]:
            del self._waits[name]
        return [name for name in broken if now >= self._waits.get(name, (0.0, 0.0))[0]]

    def add(self, names: Iterable[str], now: float, *, drains: bool = False) -> float:
        """It was planned for them in vain; returns for how many seconds it is not again.

        If there is a backlog that `drains`, there is an end to it, and the wait does not grow.
        """
        longest = 0.0
        for name in names:
            _, waited = self._waits.get(name, (0.0, LOOK_AGAIN / 2))
            wait = LOOK_AGAIN if drains else min(2 * waited, LONGEST)
            self._waits[name] = (now + wait, wait)
            longest = max(longest, wait)
        return longest

    def doubt(
        self, seen: set[str], modelled: set[str], now: float, *, drains: bool, mends: bool
    ) -> str:
        """Back off from those that are seen broken and that no plan will mend, and say so: because
        the model says that they are kept, or because it says that they are broken, and nothing
        better was found that `mends` them."""
        puzzling, hopeless = seen - modelled, seen & modelled
        said = ""
        if puzzling:
            wait = self.add(puzzling, now, drains=drains)
            why = "what waits has to drain" if drains else "the model expects it to be kept"
            said += _waiting(puzzling, why, wait)
        if hopeless and not mends:
            said += _waiting(hopeless, "there is no better plan", self.add(hopeless, now))
        return said


def _waiting(names: set[str], why: str, wait: float) -> str:
    return f"; {', '.join(sorted(names))}: {why}, not planned for again for {wait:g} s"
