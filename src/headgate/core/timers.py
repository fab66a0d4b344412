"""What is to be done later. The owner of the clock looks at `due` and calls `run`."""

from __future__ import annotations

import heapq
from collections.abc import Callable

NEVER_DUE = float("inf")


class Timers:
    def __init__(self) -> None:
        self.due = NEVER_DUE
        """When the next call is due; infinity if none waits."""
        self.heap: list[tuple[float, int, Callable[[float], None]]] = []
        self.ticket = 0

    def add(self, when: float, call: Callable[[float], None]) -> None:
        """Call `call(now)` at `when` or soon after."""
        self.ticket += 1
        heapq.heappush(self.heap, (when, self.ticket, call))
        self.due = self.heap[0][0]

    def run(self, now: float) -> None:
        """Make the calls that are due, in order."""
        heap = self.heap
        while heap and heap[0][0] <= now:
            heapq.heappop(heap)[2](now)
        self.due = heap[0][0] if heap else NEVER_DUE
