"""How fast a path is, when nobody says: learned from what goes in and what comes out.

The kernel knows, of every connection, how much was acknowledged and how much it still holds or has
on its way. What it holds beyond the path's normal filling is a queue, and a queue that is not ours
knows no priorities. So (in the manner of BBR, but for all connections of a link together):

    FREE ──a queue that stays──▶ DRAIN ──queue gone──▶ CRUISE ──now and then──▶ PROBE
      ▲                            ▲  ▲                  │ │                     │ │
      └────── long calm ───────────┼──┼──────────────────┘ │                     │ │
                                   │  └──── queue grew ────┘                     │ │
                                   └─────────── queue grew ──────────────────────┘ └▶ faster: again

How long the path is follows from its bytes (what is under way over what arrives, Little's law) and
not from the kernel's round trips: those are smoothed over many, of connections that may be silent.
What is normal for it, receivers that hold back acknowledgements included, is the least that was
seen; what is beyond that is a queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

HELD = 0.045
"""Seconds for which a receiver may hold back an acknowledgement (Linux: 40 ms)."""
ONSET = 0.03
"""Seconds of queue, beyond all that is normal, that count as congestion of a path not yet paced."""
PATIENCE = 0.3
"""Seconds, or four round trips, that such a queue stays before the path is paced: a burst is no
congestion."""
BURST, OFTEN = 0.02, 0.15
"""Seconds of queue that are congestion too, if seen in more than this fraction of the looks."""
NEGLIGIBLE = 6_000.0
"""Bytes, a few segments, that are no queue on any path."""

CRUISE = 0.97
"""Pace in the long run, of the capacity: so that the path's queue stays empty."""
LONG = 0.010
"""Seconds of queue that, seen twice, are too long."""
SLOWER = 0.95
"""The path became slower if less than this fraction of what went in came out."""
EMPTYING = 0.2
"""A queue of this many seconds is drained at the least pace."""
GENTLE, HARD = 0.9, 0.3
"""Most and least pace while a queue is drained, of the capacity."""
DRAINING = 10
"""Looks after which to see anew."""
ATTEMPTS = 5
"""Drains in a row after which a long queue is somebody else's."""
SETTLING = 2
"""Looks after a change of pace that say nothing: what went in before still comes out."""

EVERY = 20
"""Looks between two attempts to go faster, while there is more to send than the pace allows."""
GAINS = (1.1, 1.2, 1.4, 1.7, 2.0)
"""How much faster: the first must not hurt, those after it follow a success."""
WINDOW = 50
"""Looks by which is known how long bytes are normally under way."""
NORMAL = 0.2
"""Fraction of them that may be shorter than what counts as normal: the least would be chance."""
BUSY = 0.3
"""Of the capacity: with less traffic nothing is said of what is normal."""
LET_GO = 3000
"""Looks without more to send than the pace allows, after which there is no pace any more."""
LEAST = 2_000.0
"""Bytes per second below which no path is believed to be."""


class Phase(Enum):
    FREE = "free"
    DRAIN = "drain"
    CRUISE = "cruise"
    PROBE = "probe"


@dataclass(frozen=True, slots=True)
class Reading:
    """What was seen of a path since the last look."""

    seconds: float
    sent: float
    """Bytes that were handed to the kernel, with their headers; only while the path is paced."""
    delivered: float
    """Bytes that were acknowledged, with their headers."""
    backlog: float
    """Bytes that the kernel holds or has on the way now."""
    round_trip: float
    """Seconds, the shortest known."""
    eager: bool
    """There was more to send than the pace allowed."""


class Capacity:
    """One path. `follow` takes a reading and says how to pace; 0 is not at all."""

    def __init__(self) -> None:
        self.phase = Phase.FREE
        self.rate = 0.0
        """Bytes per second that the path delivers; 0 if never seen."""
        self.pace = 0.0
        self._recent: deque[Reading] = deque(maxlen=WINDOW)
        self._under_way: deque[float] = deque(maxlen=WINDOW)
        self._backlog = 0.0
        self._queue = 0.0
        self._looks = 0
        self._calm = 0
        self._long = 0
        self._drains = 0
        self._gain = 0
        self._share = CRUISE
        self._left = 0.0

    def follow(self, reading: Reading) -> float:
        """Learn from a reading; returns the pace from now on, in bytes per second."""
        if self.phase is Phase.FREE:
            self._watch(reading)
        else:
            before = self._queue
            self._queue = self._measure(reading)
            self._looks += 1
            self._calm = 0 if reading.eager else self._calm + 1
            match self.phase:
                case Phase.DRAIN:
                    self._drain(reading)
                case Phase.CRUISE:
                    self._cruise(reading)
                case Phase.PROBE:
                    self._judge(reading, self._queue - before)
        self._backlog = reading.backlog
        self.pace = 0.0 if self.phase is Phase.FREE else max(LEAST, self.rate * self._share)
        return self.pace

    def _enter(self, phase: Phase, share: float) -> None:
        self.phase = phase
        self._share = share
        self._looks = 0
        self._long = 0

    # Not paced

    def _watch(self, reading: Reading) -> None:
        """Does a queue stay, or come again and again?"""
        recent = self._recent
        recent.append(reading)
        rate = max(self._staying(recent), self._recurring(recent))
        if rate == 0.0:
            return
        recent.clear()
        self.rate = max(LEAST, rate)
        self._under_way.clear()
        self._queue = max(0.0, reading.backlog / self.rate - reading.round_trip)
        self._calm = 0
        self._gain = 0
        self._drain_queue()

    def _staying(self, recent: Sequence[Reading]) -> float:
        """What the path delivers, if a queue outlasts what a burst would leave; otherwise 0."""
        patience = max(PATIENCE, 4.0 * recent[-1].round_trip)
        seconds = delivered = 0.0
        least = recent[-1].backlog
        for one in reversed(recent):
            seconds += one.seconds
            delivered += one.delivered
            least = min(least, one.backlog)
            if seconds >= 0.999 * patience:
                break
        rate = max(LEAST, delivered / seconds)
        normal = NEGLIGIBLE + rate * (1.25 * recent[-1].round_trip + HELD + ONSET)
        return rate if seconds >= 0.999 * patience and least > normal else 0.0

    def _recurring(self, recent: Sequence[Reading]) -> float:
        """The same, if there is a queue in too many of the looks."""
        if len(recent) < WINDOW:
            return 0.0
        mean = sum(one.delivered for one in recent) / sum(one.seconds for one in recent)
        under_way = [one.backlog / max(one.delivered / one.seconds, mean, LEAST) for one in recent]
        normal = sorted(under_way)[int(NORMAL * len(under_way))]
        queues = [
            one.delivered / one.seconds
            for one, time in zip(recent, under_way, strict=True)
            if one.backlog > NEGLIGIBLE and time > normal + BURST + 0.5 * one.round_trip
        ]
        return max(queues) if len(queues) > OFTEN * len(recent) else 0.0

    # Paced

    def _measure(self, reading: Reading) -> float:
        """Seconds of queue on the path, were they all of its capacity."""
        flow = max(reading.delivered / reading.seconds, BUSY * self.rate)
        under_way = 0.5 * (self._backlog + reading.backlog) / flow
        known = self._under_way
        if self.phase is Phase.CRUISE and self._looks >= SETTLING and flow > BUSY * self.rate:
            known.append(under_way)
        normal = sorted(known)[int(NORMAL * len(known))] if known else reading.round_trip
        return max(0.0, under_way - normal) * flow / self.rate

    def _drain_queue(self) -> None:
        """Go slower for as long as it takes to empty the path's queue."""
        share = min(GENTLE, max(HARD, 1.0 - self._queue / EMPTYING))
        self._left = self._queue / (1.0 - share)
        self._enter(Phase.DRAIN, share)

    def _drain(self, reading: Reading) -> None:
        self._left -= reading.seconds
        delivered = reading.delivered / reading.seconds
        if self._left > 0.0 and delivered > 1.02 * self.pace:
            # More came out than went in, and the queue is not empty: that is the path itself.
            self._learn(delivered, 0.5)
        if self._left <= 0.0 or self._looks >= DRAINING:
            self._drains += 1
            self._enter(Phase.CRUISE, CRUISE)

    def _cruise(self, reading: Reading) -> None:
        slower = reading.delivered < SLOWER * reading.sent
        if self._looks <= SETTLING and not (slower and self._queue > LONG + HELD):
            return
        if self._queue <= LONG:
            self._drains = 0
        elif not slower and (
            (self._drains and self._queue < LONG + HELD) or self._drains >= ATTEMPTS
        ):
            # It was drained and is as long as before: not a queue of ours, but what is normal now.
            self._under_way.clear()
            self._queue = 0.0
            self._drains = 0
        self._long = self._long + 1 if self._queue > LONG else 0
        if self._long >= 2 or self._queue > LONG + HELD:
            least = 0.5 if slower else 0.98
            delivered = reading.delivered / reading.seconds
            self._learn(min(self.rate, max(delivered, least * self.rate)), 1.0)
            self._gain = 0
            self._drain_queue()
        elif self._calm >= LET_GO:
            self._enter(Phase.FREE, 0.0)
        elif self._looks >= EVERY and reading.eager:
            self._enter(Phase.PROBE, GAINS[self._gain])

    def _judge(self, reading: Reading, growth: float) -> None:
        """What came of going faster: a queue, or more throughput?"""
        gain = GAINS[self._gain]
        if growth > 0.25 * (gain - 1.0) * reading.seconds:
            first = self._gain == 0
            delivered = reading.delivered / reading.seconds
            least = 0.98 if first else 0.85
            learned = min(gain * self.rate, max(delivered, least * self.rate))
            self._learn(learned, 0.5 if first else 1.0)
            self._gain = 0
            # Half of the queue's growth was seen: the mean of the look's begin and end.
            self._queue += growth
            self._drain_queue()
        elif reading.eager:
            self.rate *= gain
            self._gain = min(self._gain + 1, len(GAINS) - 1)
            self._enter(Phase.PROBE, GAINS[self._gain])
        else:
            self._gain = 0
            self._enter(Phase.CRUISE, CRUISE)

    def _learn(self, rate: float, weight: float) -> None:
        self.rate = max(LEAST, self.rate + weight * (rate - self.rate))
