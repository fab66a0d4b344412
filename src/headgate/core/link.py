"""Links: the paths on which messages wait, and the memory they may take while they do.

A `Link` is where several flows compete. Clients behind one constrained path share one; every other
client has a link of its own, made when something first has to wait there. `Pool` counts what waits
in the whole broker, so that memory stays bounded however many links there are, and how far the
replays of retained messages have yet to go in this moment.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush
from typing import Any

from headgate.core.tape import Tape

LEVELS = 18
"""Urgent, critical, then sixteen priorities of normal messages."""

NORMAL_LEVEL = 2
"""The first level of normal messages."""

STRICT = 0
STRICT_MIN = 1
DRR = 2

SEGMENT = 1448
"""Payload of a TCP segment on Ethernet, with time stamps."""
HEADERS = 66
"""Ethernet, IPv4 and TCP headers with time stamps: what each segment costs besides its payload."""

QUANTUM = 1514.0
"""Bytes that a level of weight 1 earns in a round (deficit round robin)."""

HORIZON = 0.5
"""Seconds over which a guaranteed share is kept. What a level got out of turn counts for so long,
and so it may take so long until its guarantee is called upon."""


SLICE = 512.0
"""Retained topics that replays look at in one go: some tenths of a millisecond."""

STRIDE = 1_000_000.0
"""Retained topics that replays look at in a second, all together: a part of the loop's time."""


MESSAGE = 704
"""Bytes that a message takes besides its own, wherever it is kept (`python -m bench memory`)."""

FREE = 1024 * 1024
"""Bytes for sessions that a broker has however little memory it may take."""


class Pool:
    """Bytes that the broker holds, and the lanes in which messages wait, by level."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        """Bytes that wait in queues."""
        self.messages = 0
        self.unacknowledged = 0
        """Bytes that were sent and may have to be sent again."""
        self.retained = 0
        """Bytes of retained messages."""
        self.standing = 0
        """Bytes of what is remembered of sessions: ids, filters, wills."""
        self.arriving = 0
        """Bytes of large packets that are not complete."""
        self.free = FREE
        """Of these, so many take no room from messages."""
        # Of a dict whose first were taken out, the first that is left takes a search.
        self.lanes: list[OrderedDict[Any, None]] = [OrderedDict() for _ in range(LEVELS)]
        self.last_key = 0
        self.watched = False
        self.raise_grant = False
        self.hurry = False
        """Something urgent was routed: write before anything else is done."""
        self.kept = 0
        self.durable = 0
        self.uncommitted: list[Any] = []
        self.tape: Tape | None = None
        """Where what becomes of messages is noted, if it is."""
        self.paced: list[Link] = []
        """Links on which something waits that nobody has looked at yet."""
        self.resting: list[Any] = []
        """Lanes of replays that let others go first."""
        self.rested = 0.0
        """When they go on."""
        self.resuming = False
        self.steps = SLICE
        self.stepped = 0.0

    @property
    def held(self) -> int:
        """All bytes that the broker holds for its clients."""
        return self.size + self.unacknowledged + self.retained + self.burden()

    def full(self, size: int) -> bool:
        """Would so many bytes more be more than there may be?"""
        held = self.size + self.unacknowledged + self.retained + self.burden()
        return held + size > self.limit

    def burden(self) -> int:
        """What sessions take from the room for messages."""
        return self.standing - self.free if self.standing > self.free else 0

    def may_step(self, now: float) -> bool:
        """May a replay look at another topic now?"""
        if now > self.stepped:
            self.steps = min(SLICE, self.steps + (now - self.stepped) * STRIDE)
            self.stepped = now
        return self.steps >= 1.0

    def least(self) -> Any:
        """A lane of the least important level in which anything waits."""
        for level in range(LEVELS - 1, -1, -1):
            for lane in self.lanes[level]:
                return lane
        return None


class Contender:
    """What competes at a level: a lane (`core/queueing.py`), as far as a link knows it."""

    def __init__(self) -> None:
        self.start = 0.0
        """Bytes that it has sent, of those that its level's lanes share."""
        self.ahead = 0.0
        """Of these, the last message's."""


class Link:
    """Lanes that are ready to send, by level, and the pace at which they may."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.rate = 0.0
        self.burst = 0.0
        self.tokens = 0.0
        self.refilled = 0.0
        self.estimated = False
        self.members: dict[Any, None] = {}
        """Sessions of the connected clients behind it; not those of a link of one's own."""

        self.ready: list[list[tuple[float, int, Any]] | None] = [None] * LEVELS
        """By level, a heap of the lanes: how much each has sent, and who came first."""
        self.passed = [0.0] * LEVELS
        """By level, what each lane would have sent if all had sent at once."""
        self.furthest = [0.0] * LEVELS
        """By level, the most that one really has."""
        self.arrivals = 0
        self.waiting = 0
        self.queued = 0
        self.scheduled = False

        self.discipline = STRICT
        self.shares = [0.0] * LEVELS
        self.credits = [0.0] * LEVELS
        self.weights = [1.0] * LEVELS
        self.turn = NORMAL_LEVEL

        self.sent = 0.0
        self.reported = 0.0

    def pace(self, rate: float) -> None:
        """Send at `rate` bytes per second from now on; 0 is as fast as the sockets take it."""
        self.rate = rate
        # Enough for the loop's tick and for two full segments, no more: what has left for the
        # kernel can no longer be overtaken.
        self.burst = max(rate * 0.002, 2.0 * (SEGMENT + HEADERS))
        self.tokens = min(self.tokens, self.burst)

    def enlist(self, lane: Contender, level: int) -> None:
        """Let a lane compete at its level: by bytes, so that large messages take no larger part.

        Think of a level's lanes as sending all at once, at the same pace: `passed` is how many
        bytes each has sent then, `lane.start` how many this one really has. Who sent less goes
        next; who had nothing to send for so long that it is not ahead of the others goes first of
        all, but saves nothing (the idea of start-time fair queueing, Goyal, Vin and Cheng 1996).
        """
        queue = self.ready[level]
        if queue is None:
            queue = self.ready[level] = []
        if not queue:
            self.passed[level] = self.furthest[level]  # nobody is waiting for anybody
        passed = self.passed[level]
        # Beyond its last message it is never ahead, except of another level or link, where it was.
        start = min(lane.start, passed + lane.ahead)
        key = start
        if start <= passed:
            start = passed
            key = -1.0
        lane.start = start
        self.arrivals += 1
        heappush(queue, (key, self.arrivals, lane))
        self.waiting += 1

    def relist(self, lane: Contender, level: int) -> None:
        """Let a lane that was just taken out go on competing: what it is behind by is its due."""
        queue = self.ready[level]
        assert queue is not None
        self.arrivals += 1
        heappush(queue, (lane.start, self.arrivals, lane))
        self.waiting += 1

    def next_lane(self, level: int) -> Any:
        """Take the lane of a level that goes next."""
        queue = self.ready[level]
        assert queue is not None
        lane = heappop(queue)[2]
        self.waiting -= 1
        return lane

    def progress(self, lane: Contender, level: int, size: int) -> None:
        """A lane, taken out of its level, sent so many bytes."""
        queue = self.ready[level]
        others = 0 if queue is None else len(queue)
        cost = size + float(HEADERS)
        lane.ahead = cost
        lane.start = lane.start + cost
        self.passed[level] += cost / (others + 1)
        self.furthest[level] = max(self.furthest[level], lane.start)

    def delist(self, session: Any) -> None:
        """Take a client's lanes out of their turns."""
        for level, queue in enumerate(self.ready):
            if queue:
                # What is left of a heap's order is a heap only by chance; a sorted list is one.
                kept = sorted(entry for entry in queue if entry[2].flow.session is not session)
                self.waiting -= len(queue) - len(kept)
                self.ready[level] = kept

    def sort(self) -> None:
        """Put every lane where its level is now: the priorities changed."""
        lanes = [lane for queue in self.ready if queue is not None for _, _, lane in sorted(queue)]
        self.ready = [None] * LEVELS
        self.waiting = 0
        for lane in lanes:
            self.enlist(lane, lane.level)

    def refill(self, now: float) -> None:
        """Earn what the rate allows since the last time, at most a burst."""
        if now > self.refilled:
            earned = (now - self.refilled) * self.rate
            self.tokens = min(self.burst, self.tokens + earned)
            self.refilled = now
            if self.discipline == STRICT_MIN:
                for level in range(NORMAL_LEVEL, LEVELS):
                    share = self.shares[level]
                    if share > 0.0:
                        # Who has nothing to send saves for no more than a burst.
                        self.credits[level] = min(self.burst, self.credits[level] + share * earned)

    def withhold(self, size: float) -> None:
        """The path takes less than its rate: so many bytes are not earned after all.

        Nor are the levels' shares of them. Otherwise a minimum that is small beside the rate could
        be all that a path takes for the moment, and the highest level would wait for it.
        """
        self.tokens -= size
        if self.discipline == STRICT_MIN:
            for level in range(NORMAL_LEVEL, LEVELS):
                self.credits[level] -= self.shares[level] * size

    def charge(self, level: int, size: int) -> None:
        """Bytes of a level were sent: what they cost on the wire."""
        cost = size + HEADERS * float((size + SEGMENT - 1) // SEGMENT)
        self.tokens -= cost
        self.sent += cost
        if self.discipline == STRICT_MIN:
            left = self.credits[level] - cost
            if self.credits[level] <= 0.0:
                # Out of turn, while nobody above wanted to. It was served, and for a while needs no
                # guarantee: otherwise it would go before all others though it lacks nothing.
                least = -HORIZON * self.shares[level] * self.rate
                left = max(left, min(self.credits[level], least))
            self.credits[level] = left
        elif self.discipline == DRR:
            # What a level sent out of turn, while nobody else wanted to, is not held against it.
            self.credits[level] = max(self.credits[level] - cost, -cost)

    def next_level(self) -> int:
        """The level that sends next; negative if nothing is ready."""
        first = self.first_level(0)
        if self.discipline == STRICT or first < NORMAL_LEVEL:
            return first
        if self.discipline == STRICT_MIN:
            best = first
            most = 0.0
            for level in range(first, LEVELS):
                if self.shares[level] > 0.0 and self.credits[level] > most and self.ready[level]:
                    best = level
                    most = self.credits[level]
            return best
        return self.next_in_round()

    def first_level(self, level: int) -> int:
        """The most important level, from `level` on, in which anything is ready."""
        while level < LEVELS:
            if self.ready[level]:
                return level
            level += 1
        return -1

    def next_in_round(self) -> int:
        """Deficit round robin: whose credit lasts. Something of normal rank must be ready."""
        steps = 0
        while not self.ready[self.turn] or self.credits[self.turn] <= 0.0:
            if not self.ready[self.turn]:
                # Who has nothing to send saves nothing, but still owes what it overdrew.
                self.credits[self.turn] = min(self.credits[self.turn], 0.0)
            self.turn = self.turn + 1 if self.turn + 1 < LEVELS else NORMAL_LEVEL
            if self.ready[self.turn]:
                self.credits[self.turn] += QUANTUM * self.weights[self.turn]
            steps += 1
            if steps == LEVELS:
                self.skip_rounds()
        return self.turn

    def skip_rounds(self) -> None:
        """Every level is deep in debt after a large packet: give what many rounds would."""
        rounds = min(
            [
                -self.credits[level] // (QUANTUM * self.weights[level])
                for level in range(NORMAL_LEVEL, LEVELS)
                if self.ready[level]
            ]
        )
        for level in range(NORMAL_LEVEL, LEVELS):
            if self.ready[level]:
                self.credits[level] += rounds * QUANTUM * self.weights[level]
