"""The tape: what became of each message in each flow, noted by the loop and encoded elsewhere.

    Flow.forward, emit ──▶ Note ──▶ outlet.notes ──settle──▶ ┐
    Flow.miss (dropped) ───────────────────────────────────▶ ├─▶ Tape.put ─▶ Block ─▶ hand_over
    Flow.acknowledge ──────────────────────────────────────▶ ┘

A block is a set of preallocated columns: a row costs some stores, no object and no system call. A
full block changes hands as it is, and comes back to `free` when it was written. If none is free,
rows are lost and counted: the broker waits for nobody (docs/decisions/0027-recorder.md).

A row names its flow by a number that holds within its block only, so that whoever reads a block
needs to know nothing of those before it.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

ROWS = 32768
"""Rows of a block: 1.5 MB."""

SENT = 0
ACKNOWLEDGED = 1
DROPPED = 2
CUT = 3

MASK = 0xFFFFFFFFFFFFFFFF
GOLDEN = 0x9E3779B97F4A7C15


class Note:
    """A message, or a run of them, that was handed to an outlet and is not yet with the kernel."""

    def __init__(self) -> None:
        self.flow: Any = None
        self.topic = b""
        self.count = 0
        self.size = 0
        self.arrived = 0.0
        self.facets = 0


class Block:
    """Rows in columns, and what their flows and topics are called."""

    def __init__(self) -> None:
        self.rows = 0
        self.columns: list[memoryview[Any]] = [column(code) for code in "dddIIIQI"]
        self.at = self.columns[0]
        self.arrived = self.columns[1]
        self.since = self.columns[2]
        """When what was acknowledged had been sent; 0 for other outcomes."""
        self.flow = self.columns[3]
        self.topic = self.columns[4]
        self.count = self.columns[5]
        self.size = self.columns[6]
        self.facets = self.columns[7]
        self.flows: list[tuple[str, str, str, str, str, int]] = []
        self.topics: dict[bytes, int] = {}

    def filled(self) -> list[memoryview[Any]]:
        """The columns as far as they are filled, in the order of `COLUMNS` in `frames.py`."""
        return [column[: self.rows] for column in self.columns]

    def clear(self) -> None:
        self.rows = 0
        self.flows = []
        self.topics = {}


class Tape:
    """The block that is being filled, and those that are free."""

    def __init__(self, hand_over: Callable[[Block], None], blocks: int, every: int) -> None:
        self.hand_over = hand_over
        self.block = Block()
        self.number = 1
        """Of the block: what a flow was called in another holds no longer."""
        self.free = deque([Block() for _ in range(blocks - 1)])
        self.written = 0
        self.lost = 0
        self.every = every
        """One row of so many is kept, on average."""
        self.skip = 1
        self.state = GOLDEN

    def passes(self) -> bool:
        """Is this one kept? Chance decides, because counting would favour one of those in turn."""
        if self.every == 1:
            return True
        self.skip -= 1
        if self.skip > 0:
            return False
        # splitmix64; uniform over 1 … 2·every - 1 has the mean `every`.
        self.state = (self.state + GOLDEN) & MASK
        x = self.state
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        self.skip = 1 + (x ^ (x >> 31)) % (2 * self.every - 1)
        return True

    def ready(self) -> bool:
        """Is there room for a row? If not, the row is counted as lost."""
        if self.block.rows < ROWS or self.turn():
            return True
        self.lost += 1
        return False

    def introduce(self, flow: Any) -> int:
        """Say who a flow is; returns its number in this block."""
        session = flow.session
        membership = flow.membership
        flows = self.block.flows
        flows.append(
            (
                session.client_id,
                flow.filter,
                "" if membership is None else membership.application,
                "" if membership is None else membership.category,
                "" if session.link is None else session.link.name,
                flow.priority,
            )
        )
        return len(flows) - 1

    def put(
        self,
        flow: int,
        topic: bytes,
        count: int,
        size: int,
        at: float,
        arrived: float,
        since: float,
        facets: int,
    ) -> None:
        """Add a row, after `ready` said that there is room."""
        block = self.block
        row = block.rows
        known = block.topics.get(topic)
        if known is None:
            known = len(block.topics)
            block.topics[topic] = known
        block.flow[row] = flow
        block.topic[row] = known
        block.count[row] = count
        block.size[row] = size
        block.at[row] = at
        block.arrived[row] = arrived
        block.since[row] = since
        block.facets[row] = facets
        block.rows = row + 1
        self.written += 1

    def turn(self) -> bool:
        """Hand over the block and begin another; False if none is free."""
        if not self.free:
            return False
        full = self.block
        self.block = self.free.popleft()
        self.number += 1
        self.hand_over(full)
        return True


def column(code: str) -> memoryview[Any]:
    """Room for one value of each row, of a type as `array` names it."""
    zeros = array(code)
    zeros.frombytes(bytes(zeros.itemsize * ROWS))
    return memoryview(zeros)


def facets(outcome: int, reason: int, rank: int, qos: int, retained: bool) -> int:
    """What a row says in few bits, as one number."""
    return outcome | (reason << 8) | (rank << 16) | (qos << 24) | (0x08000000 if retained else 0)
