"""Links: the paths on which messages wait, and the memory they may take while they do.

A `Link` is where several flows compete. Clients behind one constrained path share one; every other
client has a link of its own, made when something first has to wait there. `Pool` counts what waits
in the whole broker, so that memory stays bounded however many links there are.
"""

from __future__ import annotations

from collections import deque
from typing import Any

LEVELS = 18
"""Urgent, critical, then sixteen priorities of normal messages."""


class Pool:
    """Bytes that wait anywhere in the broker, and the lanes in which they do, by level."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self.messages = 0
        self.lanes: list[dict[Any, None]] = [{} for _ in range(LEVELS)]
        self.last_key = 0
        self.watched = False
        self.kept = 0
        self.durable = 0
        self.uncommitted: list[Any] = []

    def least(self) -> Any:
        """A lane of the least important level in which anything waits."""
        for level in range(LEVELS - 1, -1, -1):
            for lane in self.lanes[level]:
                return lane
        return None


class Link:
    """Lanes that are ready to send, by level, and the pace at which they may."""

    def __init__(self, name: str = "", rate: float = 0.0, burst: float = 0.0) -> None:
        self.name = name
        self.rate = rate
        self.burst = burst
        self.tokens = burst
        self.refilled = 0.0
        self.ready: list[deque[Any] | None] = [None] * LEVELS
        self.waiting = 0
        self.scheduled = False

    def enlist(self, lane: Any, level: int) -> None:
        """Put a lane at the end of its level's turn."""
        queue = self.ready[level]
        if queue is None:
            queue = self.ready[level] = deque()
        queue.append(lane)
        self.waiting += 1

    def admits(self, now: float) -> bool:
        """May something be sent right now, without waiting behind others or for the pace?"""
        if self.rate == 0.0:
            return True
        if self.waiting:
            return False
        self.refill(now)
        return self.tokens > 0.0

    def refill(self, now: float) -> None:
        """Earn what the rate allows since the last time, at most a burst."""
        if now > self.refilled:
            self.tokens = min(self.burst, self.tokens + (now - self.refilled) * self.rate)
            self.refilled = now
