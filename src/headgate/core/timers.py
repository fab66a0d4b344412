"""What is to be done later. The owner of the clock looks at `due` and calls `run`."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

NEVER_DUE = float("inf")

FEW = 1000
"""Cancelled alarms that are not worth a clean-up."""


class Alarm:
    """One call to be made; cancelled, it lets go of what it would have called."""

    def __init__(self, call: Callable[[float], None]) -> None:
        self.call: Callable[[float], None] | None = call


class Timers:
    def __init__(self) -> None:
        self.due = NEVER_DUE
        """When the next call is due; infinity if none waits."""
        self.heap: list[tuple[float, int, Alarm]] = []
        self.ticket = 0
        self.cancelled = 0

    def add(self, when: float, call: Callable[[float], None]) -> Alarm:
        """Call `call(now)` at `when` or soon after, unless it is cancelled."""
        self.ticket += 1
        alarm = Alarm(call)
        heapq.heappush(self.heap, (when, self.ticket, alarm))
        self.due = self.heap[0][0]
        return alarm

    def cancel(self, alarm: Alarm) -> None:
        """Do not make this call. Connections come and go: what they leave behind is swept."""
        if alarm.call is None:
            return
        alarm.call = None
        self.cancelled += 1
        if self.cancelled > FEW and self.cancelled * 2 > len(self.heap):
            self.heap = [entry for entry in self.heap if entry[2].call is not None]
            heapq.heapify(self.heap)
            self.cancelled = 0
            self.due = self.heap[0][0] if self.heap else NEVER_DUE

    def run(self, now: float) -> None:
        """Make the calls that are due, in order."""
        while self.heap and self.heap[0][0] <= now:
            alarm = heapq.heappop(self.heap)[2]
            call = alarm.call
            if call is None:
                self.cancelled -= 1
            else:
                alarm.call = None
                try:
                    call(now)
                except Exception:  # one thing that cannot be done must not end all others
                    log.exception("something that was due could not be done")
        self.due = self.heap[0][0] if self.heap else NEVER_DUE
