"""A plan: what was decided, what it is expected to do, and why, as data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from headgate.contract import Policy, Requirement


class Verdict(StrEnum):
    """What came of planning."""

    UNCHANGED = "unchanged"
    """The policy in force meets every requirement, and nothing worthwhile is better."""
    PLANNED = "planned"
    """The plan's policy meets every requirement."""
    DEGRADED = "degraded"
    """No policy meets all of them; the plan meets as many as it can, by weight."""


@dataclass(frozen=True)
class Expected:
    """What the model expects of an application's flows under one policy."""

    mean_ms: float
    """Of its worst flow, as are percentile and loss; infinite where messages do not arrive."""
    percentile_ms: float | None
    """At the percentile of its requirement, if that has one."""
    loss: float
    throughput: float
    """Messages per second, of all its flows together."""
    met: bool
    """Whether its requirement is kept; true if it has none."""


@dataclass(frozen=True)
class Outlook:
    """One application, before and after."""

    application: str
    category: str
    flows: int
    weight: float
    requirement: Requirement | None
    before: Expected
    after: Expected


@dataclass(frozen=True)
class Step:
    """One decision of the plan: a group of flows, its level and its drop rate."""

    link: str
    group: str
    flows: int
    priority: int
    drop: float
    """Of its messages to clients that are there."""
    join: float | None = None
    """Of what arrives while a client is away, the part that waits; the mean over its clients. None
    if they do not come and go."""


@dataclass(frozen=True)
class Remedy:
    """One change that would by itself make all requirements of a link feasible."""

    what: str
    """`rate` of the link, or `response_ms`, `mean_ms` or `loss` of the group."""
    of: str
    now: float
    needed: float

    def __str__(self) -> str:
        if self.what == "rate":
            return (
                f"link {self.of} with {self.needed / 1e6:.4g} Mbit/s instead of "
                f"{self.now / 1e6:.4g} Mbit/s"
            )
        return f"{self.what} {self.needed:.4g} instead of {self.now:.4g} for {self.of}"


@dataclass(frozen=True)
class Conflict:
    """Requirements of one link that cannot all be met; without any of them, the others can."""

    link: str
    groups: tuple[str, ...]
    broken: tuple[str, ...]
    """Groups whose requirement the degraded plan gives up."""
    remedies: tuple[Remedy, ...] = ()
    proven: bool = True
    """No decision at all meets them; otherwise, none that treats these groups' flows alike."""

    def __str__(self) -> str:
        who = " and ".join(self.groups)
        text = (
            f"link {self.link}: the requirement of {who} cannot be met, whatever is done to others"
            if len(self.groups) == 1
            else f"link {self.link}: the requirements of {who} exclude each other"
        )
        return text if self.proven else f"{text} (as far as flows of a group are treated alike)"


@dataclass(frozen=True)
class Plan:
    """The answer to a planning problem."""

    verdict: Verdict
    policy: Policy
    steps: tuple[Step, ...]
    outlooks: tuple[Outlook, ...]
    conflicts: tuple[Conflict, ...]
    cost: float
    """Messages per second that it drops, by weight."""
    cost_before: float
    """What the policy in force drops."""
    pressure: tuple[float, float]
    """Before and after: sum of weight × response / response asked for."""
    notes: tuple[str, ...]
    engine: str
    seconds: float

    @property
    def feasible(self) -> bool:
        return not self.conflicts

    def better_than_in_force(self) -> bool:
        """Does it meet what is not met now, drop less, or lessen what presses? In this order."""
        lost = any(o.before.met and not o.after.met for o in self.outlooks)
        gained = any(o.after.met and not o.before.met for o in self.outlooks)
        if gained:
            weight = sum(o.weight * (o.after.met - o.before.met) for o in self.outlooks)
            return not lost or weight > 0
        if lost:
            return False
        if self.drops_less():
            return True
        return self.pressure[1] < self.pressure[0]

    def worthwhile(self, by: float) -> bool:
        """Does it mend something, or ease what presses by this fraction? A worse plan never is."""
        if not self.better_than_in_force():
            return False
        mended = any(o.after.met and not o.before.met for o in self.outlooks)
        if mended or self.drops_less(by=by):
            return True
        return self.pressure[1] < self.pressure[0] * (1 - by)

    def drops_less(self, by: float = 0.0) -> bool:
        """Does it drop fewer messages than the policy in force, by this fraction at least?"""
        return self.cost < self.cost_before * (1 - by) - 1e-9

    def to_dict(self) -> dict[str, Any]:
        """For JSON: infinity is null."""
        plain: dict[str, Any] = _finite(msgspec.to_builtins(self))
        return plain


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
