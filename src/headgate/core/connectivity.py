"""How a client comes and goes, as measured: mean ON and OFF periods, arrival and drain rates.

Every persistent session has a `Connectivity`. All its figures are exponentially weighted by cycle,
one cycle being a connection and the absence after it: what happened n cycles ago counts 0.95^n, so
that the estimates follow a client that changes its habits, on whatever time scale it lives. How
much is known is part of the result: `periods` is the effective number of cycles behind a mean.

            since                 parted              now
              │◀──────── ON ────────▶│◀────── OFF ──────▶│
              │◀─ drain ─▶│

Three ends of a connection say nothing about the client: a second connection that takes over the
first (it was never away), and the end of the broker itself, by shutdown or crash (nobody knows when
the client would have left, and it will be back sooner than it ever was). No sample is made of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from headgate.core.journal import StoredArrivals, StoredConnectivity

if TYPE_CHECKING:
    from headgate.core.flows import Flow
    from headgate.core.session import Session
    from headgate.core.timers import Alarm

KEEP = 0.95
"""What a cycle weighs against the one after it. Means then rest on up to 39 cycles, and of
exponential periods err by 16 % (standard error)."""

ENOUGH_PERIODS = 5.0
"""Effective cycles below which nothing is concluded."""

ENOUGH_SERVED = 3.0
"""Messages, weighted, that a drain rate must rest on."""

INSTANT = 1e-6
"""The shortest time in which a backlog drains: a client that takes all of it in one turn is fast,
not infinitely so."""


class Mean:
    """An exponentially weighted mean that knows how many samples it is worth."""

    __slots__ = ("squares", "total", "weight")

    def __init__(self, total: float = 0.0, weight: float = 0.0, squares: float = 0.0) -> None:
        self.total = total
        self.weight = weight
        self.squares = squares

    def add(self, value: float) -> None:
        self.total = KEEP * self.total + value
        self.weight = KEEP * self.weight + 1.0
        self.squares = KEEP * KEEP * self.squares + 1.0

    @property
    def value(self) -> float:
        return self.total / self.weight if self.weight else 0.0

    @property
    def samples(self) -> float:
        """(Σw)² / Σw²: as many equally weighted samples would be as certain."""
        return self.weight * self.weight / self.squares if self.squares else 0.0

    def including(self, value: float) -> Mean:
        """What it would be with one sample more."""
        other = Mean(self.total, self.weight, self.squares)
        other.add(value)
        return other


class Rate:
    """Messages per second, as weighted messages over weighted seconds."""

    __slots__ = ("messages", "seconds")

    def __init__(self, messages: float = 0.0, seconds: float = 0.0) -> None:
        self.messages = messages
        self.seconds = seconds

    def age(self) -> None:
        """A cycle has passed."""
        self.messages *= KEEP
        self.seconds *= KEEP

    def add(self, messages: float, seconds: float) -> None:
        self.messages += messages
        self.seconds += seconds

    @property
    def value(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0


class Arrivals:
    """The messages offered to one flow: of past cycles, and since the present one began."""

    __slots__ = ("base", "rate", "since")

    def __init__(self, rate: Rate, base: int, since: float) -> None:
        self.rate = rate
        self.base = base
        self.since = since

    def turn(self, offered: int, now: float) -> None:
        """A cycle ends and the next begins."""
        self.rate.age()
        self.rate.add(offered - self.base, now - self.since)
        self.base = offered
        self.since = now

    def per_second(self, offered: int, now: float) -> float:
        seconds = self.rate.seconds + now - self.since
        return (self.rate.messages + offered - self.base) / seconds if seconds > 0.0 else 0.0


class Estimate(NamedTuple):
    """What is believed of a client now."""

    on_s: float
    off_s: float
    drain: float
    """Messages per second that it takes while a backlog drains."""
    periods: float
    """Effective number of ON and of OFF periods behind the means, whichever is less."""
    known: bool
    """Is that enough to act on?"""


NOTHING = Estimate(0.0, 0.0, 0.0, 0.0, False)


class Connectivity:
    """What was measured of one persistent session."""

    __slots__ = (
        "_drained_base",
        "_draining_since",
        "alarm",
        "arrivals",
        "drain",
        "off",
        "on",
        "parted",
        "since",
    )

    def __init__(self) -> None:
        self.on = Mean()
        self.off = Mean()
        self.drain = Rate()
        self.arrivals: dict[str, Arrivals] = {}
        """By filter, of sessions in which a flow has a threshold."""
        self.since = 0.0
        """When the last connection began; 0 if that does not count."""
        self.parted = 0.0
        """When it ended; 0 while it lasts."""
        self.alarm: Alarm | None = None
        """When the join probabilities are looked at again."""
        self._draining_since = 0.0
        self._drained_base = 0

    # Coming and going

    def come(self, flows: Iterable[Flow], now: float) -> None:
        """The client is here."""
        taken_over = self.parted == now
        if not taken_over:
            if self.since and self.parted:
                self.on.add(self.parted - self.since)
                self.off.add(now - self.parted)
                # A drain rate that is not seen again is forgotten: whoever drops so much that no
                # backlog ever drains would not notice that the client became faster.
                self.drain.age()
                self._turn(flows, now)
            self.since = now
        self.parted = 0.0

    def part(self, session: Session, now: float) -> None:
        """The client is gone."""
        if session.draining:
            self.drained(session, now)
        self.parted = now

    def interrupt(self) -> None:
        """The broker ends, not the client: the present cycle does not count."""
        self.since = 0.0

    def _turn(self, flows: Iterable[Flow], now: float) -> None:
        if not self.arrivals:
            return
        before, self.arrivals = self.arrivals, {}
        for flow in flows:
            if flow.filter in before:
                self.arrivals[flow.filter] = before[flow.filter]
                self.arrivals[flow.filter].turn(flow.offered, now)

    def watch(self, flow: Flow, now: float) -> Arrivals:
        """Count what arrives for a flow, from now on if it was not watched."""
        found = self.arrivals.get(flow.filter)
        if found is None:
            found = self.arrivals[flow.filter] = Arrivals(Rate(), flow.offered, now)
        return found

    # Draining

    def drain_from(self, session: Session, now: float) -> None:
        """The client returned to a backlog; how fast does it take it?"""
        session.draining = bool(session.waiting or session.inflight)
        self._draining_since = now
        self._drained_base = self._completed(session)

    def drained(self, session: Session, now: float) -> None:
        """The backlog is gone, or its client."""
        session.draining = False
        served = self._completed(session) - self._drained_base
        elapsed = now - self._draining_since
        # Completions over time, whole or not: the estimate of a rate from a censored busy period.
        if served >= 0 and (served or elapsed > INSTANT):
            self.drain.add(served, max(elapsed, INSTANT))

    @staticmethod
    def _completed(session: Session) -> int:
        sent: int = sum(flow.delivered for flow in session.flows.values())
        return sent - len(session.inflight)

    # What is believed

    def estimate(self, now: float) -> Estimate:
        on, off = self.on, self.off
        on_s, off_s = on.value, off.value
        if self.parted and self.since:
            on = on.including(self.parted - self.since)
            on_s = on.value
            # An absence longer than all before counts before it ends.
            off_s = max(off_s, off.including(now - self.parted).value) if off.weight else off_s
        periods = min(on.samples, off.samples)
        known = (
            periods >= ENOUGH_PERIODS
            and self.drain.messages >= ENOUGH_SERVED
            and min(on_s, off_s) > 0.0
        )
        return Estimate(on_s, off_s, self.drain.value, periods, known)

    # Across restarts

    def stored(self, flows: dict[str, Flow]) -> StoredConnectivity:
        return StoredConnectivity(
            (self.on.total, self.on.weight, self.on.squares),
            (self.off.total, self.off.weight, self.off.squares),
            (self.drain.messages, self.drain.seconds),
            self.since,
            self.parted,
            tuple(
                StoredArrivals(name, one.rate.messages, one.rate.seconds, flows[name].learned)
                for name, one in self.arrivals.items()
                if name in flows
            ),
        )

    @classmethod
    def restored(cls, stored: StoredConnectivity, now: float) -> Connectivity:
        connectivity = cls()
        connectivity.on = Mean(*stored.on)
        connectivity.off = Mean(*stored.off)
        connectivity.drain = Rate(*stored.drain)
        if stored.parted:
            connectivity.since = stored.since
            connectivity.parted = stored.parted
        for flow in stored.arrivals:
            rate = Rate(flow.messages, flow.seconds)
            connectivity.arrivals[flow.filter] = Arrivals(rate, 0, now)
        return connectivity
