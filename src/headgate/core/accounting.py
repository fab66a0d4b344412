"""What happened to the messages of one flow: counted here, and noted for the record.

A delivery is counted when the outlet gets it; how long it waited is known when the kernel has it
(`settle`), or never will have it (`cut`).
"""

from __future__ import annotations

from typing import Any

from headgate.core.histogram import Histogram
from headgate.core.message import Message
from headgate.core.outlet import Outlet
from headgate.core.reasons import Drop
from headgate.core.session import Session
from headgate.core.tape import CUT, DROPPED, SENT, Tape, facets


class Account:
    """The counters of one flow."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.offered = 0
        self.delivered = 0
        self.sent_bytes = 0
        self.drops = [0] * len(Drop)
        self.waited: Histogram | None = None
        self.acknowledged: Histogram | None = None
        self.reported: Any = None

        # What the tape calls it, in which block.
        self.block = 0
        self.number = 0

    def miss(self, message: Message, qos: int, reason: int, now: float) -> None:
        """A message does not reach the subscriber."""
        self.drops[reason] += message.count
        tape = self.session.pool.tape
        if tape is not None and tape.keeps():
            tape.put(
                numbered(self, tape),
                message.topic,
                message.count,
                message.size,
                now,
                message.arrived,
                0.0,
                facets(DROPPED, reason, message.rank, qos, False),
            )

    def record(self, count: int, seconds: float) -> None:
        """`count` messages were handed to the kernel `seconds` after they arrived."""
        if self.waited is None:
            self.waited = Histogram()
        self.waited.add(seconds, count)


def settle(outlet: Outlet, now: float) -> None:
    """The kernel has all that the outlet gathered: the waiting of its messages ends here."""
    outlet.size = 0
    outlet.clear = True
    if outlet.marks:
        for mark in outlet.marks:
            flow = mark[0]
            flow.record(mark[1], now - mark[2])
        outlet.marks.clear()
    if outlet.marked is not None:
        flow = outlet.marked
        flow.record(outlet.marked_count, now - outlet.marked_arrival)
        outlet.marked = None
    if outlet.tape is not None:
        tape = outlet.tape
        tape.settle(outlet, SENT, now)


def numbered(flow: Account, tape: Tape) -> int:
    """The number of a flow in the tape's present block."""
    if flow.block != tape.number:
        flow.number = tape.introduce(flow)
        flow.block = tape.number
    return flow.number


def cut(outlet: Outlet, now: float) -> None:
    """The connection is over: what the kernel did not take, the client never gets."""
    if outlet.tape is not None:
        outlet.tape.settle(outlet, CUT, now)
