# cython: boundscheck=False, wraparound=False
"""The tape: what became of each message in each flow, noted by the loop and encoded elsewhere.

    Flow.forward, emit ──▶ Tape.note ──▶ row without a time ──settle──▶ ┐
    Flow.miss (dropped) ──▶ Tape.put ─────────────────────────────────▶ ├─▶ Block ─▶ hand_over
    Flow.acknowledge ─────▶ Tape.put ─────────────────────────────────▶ ┘

A row is some stores into a preallocated arena: no object and no system call. A full block of rows
changes hands as it is, and comes back to `free` when it was read. If none is free, rows are lost
and counted: the broker waits for nobody (docs/decisions/0027-recorder.md).

What an outlet was given gets its row at once, and its time when the kernel has it. Until then its
rows hang together in a chain that begins and ends at the outlet. A block is handed over when none
of its rows hangs; those of a connection that takes long are moved to the heap (`Note`).

Rows that are equal but for their number are one row that says how many they are
(docs/decisions/0050-equal-records-are-one.md).

A row names its flow by a number that holds within its block only, so that whoever reads a block
needs to know nothing of those before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from mmap import mmap
from typing import Any

from headgate.core.outlet import NOWHERE, Outlet

ROWS = 32768
"""Rows of a block: 1.5 MB."""

ROW_SIZE = 48
BLOCK_SIZE = ROWS * ROW_SIZE

# A row is three times, then six whole numbers. So an arena is an array of 64-bit floats, six for
# each row, and as well one of 32-bit integers, twelve for each row. Compiled, these are numbers of
# C's, which only this module sees; whoever reads rows has `ROW` in `frames.py`.
LENGTH = ROWS
END = NOWHERE
TIMES = 6
AT = 0
ARRIVED = 1
SINCE = 2
"""When what was acknowledged had been sent; 0 for other outcomes."""
WHOLES = 12
FLOW = 6
TOPIC = 7
COUNT = 8
SIZE = 9
FACETS = 10
NEXT = 11
"""The next row of the same outlet that waits for its time."""
SENT = 0
ACKNOWLEDGED = 1
DROPPED = 2
CUT = 3

MASK = 0xFFFFFFFFFFFFFFFF
GOLDEN = 0x9E3779B97F4A7C15

PATIENCE = 4096
"""Rows that are lost before somebody looks again whether a block came back."""

Introduction = tuple[str, str, str, str, str, int]
"""Client, filter, application, category, link, priority."""


class Note:
    """A row that waits for its time outside of the arena."""

    def __init__(
        self,
        flow: Introduction,
        topic: bytes,
        count: int,
        size: int,
        arrived: float,
        facets: int,
    ) -> None:
        self.flow = flow
        self.topic = topic
        self.count = count
        self.size = size
        self.arrived = arrived
        self.facets = facets


class Block:
    """Rows that change hands together, and what their flows and topics are called."""

    def __init__(self, index: int) -> None:
        self.index = index
        """Its rows begin at `index * ROWS` in the arena."""
        self.rows = 0
        self.hanging = 0
        """Rows that wait for their time."""
        self.hollow = 0
        """Rows that stand for nothing, because they were moved."""
        self.flows: list[Introduction] = []
        self.topics: dict[bytes, int] = {}

    def clear(self) -> None:
        self.rows = 0
        self.hanging = 0
        self.hollow = 0
        self.flows = []
        self.topics = {}


class Tape:
    """The block that is being filled, and those that are free.

    Before another is begun, `reclaim` may put blocks that came back to those that are free. The
    arena may be memory that another process sees; by itself it is private.
    """

    def __init__(
        self,
        hand_over: Callable[[Block], None],
        blocks: int,
        every: int,
        reclaim: Callable[[], object] = bool,
        arena: mmap | None = None,
    ) -> None:
        self.hand_over = hand_over
        self.reclaim = reclaim
        self.arena: Any = mmap(-1, blocks * BLOCK_SIZE) if arena is None else arena
        self.times: memoryview[float] = memoryview(self.arena).cast("d")
        self.wholes: memoryview[int] = memoryview(self.arena).cast("I")
        self.blocks = [Block(index) for index in range(blocks)]
        self.free = deque(self.blocks[1:])
        self.closing: list[Block] = []
        """Blocks that are full, of which rows hang."""
        self.block = self.blocks[0]
        self.begin = 0
        self.place = 0
        """Of the next row, counted over the arena."""
        self.end = LENGTH
        self.number = 1
        """Of the block: what a flow was called in another holds no longer."""
        self.topic: bytes | None = None
        self.topic_number = 0
        self.outlets: list[Outlet] = []
        """Those that had a row hanging since the last sweep."""
        self.written = 0
        self.lost = 0
        self.deaf = 0
        self.every = every
        """One row of so many is kept, on average."""
        self.skip = 1
        """Rows until the next one that is kept."""
        self.state = GOLDEN

    def keeps(self) -> bool:
        """Is what happens now recorded? A row that is, but for which there is no room, is lost."""
        self.skip -= 1
        if self.skip > 0:
            return False
        if self.every != 1:
            self.draw()
        return self.ready()

    def draw(self) -> None:
        """How many come until the next one is kept, if not all are.

        By chance: counting would always meet the same one of those that take turns.
        """
        # splitmix64; uniform over 1 … 2·every - 1 has the mean `every`.
        self.state = (self.state + GOLDEN) & MASK
        x = self.state
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        self.skip = 1 + (x ^ (x >> 31)) % (2 * self.every - 1)

    def ready(self) -> bool:
        """Is there room for a row? If not, the row is counted as lost."""
        if self.place < self.end or self.turn():
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

    def called(self, topic: bytes) -> int:
        """The number of a topic in this block."""
        topics = self.block.topics
        known = topics.get(topic)
        if known is None:
            known = len(topics)
            topics[topic] = known
        self.topic = topic
        self.topic_number = known
        return self.topic_number

    def note(
        self,
        outlet: Outlet,
        flow: int,
        topic: bytes,
        count: int,
        size: int,
        arrived: float,
        facets: int,
    ) -> None:
        """Add a row, after `keeps` said so; its time comes with `settle`."""
        number = self.topic_number if topic is self.topic else self.called(topic)
        place = self.place
        last = outlet.last_row
        if last == END:
            outlet.first_row = place
            if outlet.tape is not self:
                outlet.tape = self
                self.outlets.append(outlet)
        else:
            if self.begin <= last < place and self.joins(
                last, flow, number, count, size, arrived, facets
            ):
                return
            self.wholes[last * WHOLES + NEXT] = place
        outlet.last_row = place
        self.block.hanging += 1
        self.wholes[place * WHOLES + NEXT] = END
        self.fill(flow, number, count, size, 0.0, arrived, 0.0, facets)

    def joins(
        self,
        row: int,
        flow: int,
        topic: int,
        count: int,
        size: int,
        arrived: float,
        facets: int,
    ) -> bool:
        """Count messages in a row that says the same of others, each as long as these."""
        others = self.wholes[row * WHOLES + COUNT]
        length = self.wholes[row * WHOLES + SIZE]
        if (
            self.wholes[row * WHOLES + FLOW] != flow
            or self.wholes[row * WHOLES + TOPIC] != topic
            or self.wholes[row * WHOLES + FACETS] != facets
            or self.times[row * TIMES + ARRIVED] != arrived
            or length * count != size * others
            or length + size >= END
        ):
            return False
        self.wholes[row * WHOLES + COUNT] += count
        self.wholes[row * WHOLES + SIZE] += size
        return True

    def fill(
        self,
        flow: int,
        topic: int,
        count: int,
        size: int,
        at: float,
        arrived: float,
        since: float,
        facets: int,
    ) -> None:
        """Write the next row, all but what hangs on it."""
        place = self.place
        self.times[place * TIMES + AT] = at
        self.times[place * TIMES + ARRIVED] = arrived
        self.times[place * TIMES + SINCE] = since
        self.wholes[place * WHOLES + FLOW] = flow
        self.wholes[place * WHOLES + TOPIC] = topic
        self.wholes[place * WHOLES + COUNT] = count
        self.wholes[place * WHOLES + SIZE] = size
        self.wholes[place * WHOLES + FACETS] = facets
        self.place = place + 1
        self.written += 1

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
        """Add a row with all that is to be said, after `keeps` said so."""
        number = self.topic_number if topic is self.topic else self.called(topic)
        last = self.place - 1
        if (
            self.place > self.begin
            and self.times[last * TIMES + AT] == at
            and self.times[last * TIMES + SINCE] == since
            and self.joins(last, flow, number, count, size, arrived, facets)
        ):
            return
        self.fill(flow, number, count, size, at, arrived, since, facets)

    def settle(self, outlet: Outlet, outcome: int, now: float) -> None:
        """What the outlet was given has left, or never will: `outcome` is SENT or CUT."""
        place = outlet.first_row
        outlet.first_row = END
        outlet.last_row = END
        if outlet.notes is not None:
            self.write_notes(outlet, outcome, now)
        if not self.closing:
            settled = 0
            while place != END:
                self.times[place * TIMES + AT] = now
                self.wholes[place * WHOLES + FACETS] |= outcome
                place = self.wholes[place * WHOLES + NEXT]
                settled += 1
            self.block.hanging -= settled
            return
        while place != END:
            self.times[place * TIMES + AT] = now
            self.wholes[place * WHOLES + FACETS] |= outcome
            self.blocks[place // LENGTH].hanging -= 1
            place = self.wholes[place * WHOLES + NEXT]
        self.close_settled()

    def close_settled(self) -> None:
        """Hand over the full blocks of which no row hangs any more."""
        for block in [block for block in self.closing if not block.hanging]:
            self.closing.remove(block)
            self.hand_over(block)

    def turn(self) -> bool:
        """Hand over the block and begin another; False if none is free."""
        if self.deaf:
            self.deaf -= 1
            return False
        self.reclaim()
        if not self.free:
            self.deaf = PATIENCE
            return False
        self.sweep()
        full = self.block
        full.rows = self.place - self.begin
        # The one that came back last, of which most is still near the processor.
        self.block = self.free.pop()
        self.begin = self.block.index * LENGTH
        self.place = self.begin
        self.end = self.begin + LENGTH
        self.number += 1
        self.topic = None
        if full.hanging:
            self.closing.append(full)
        else:
            self.hand_over(full)
        return True

    def finish(self) -> None:
        """Hand over all that there is. What hangs never gets a time, and is passed over."""
        self.block.rows = self.place - self.begin
        for block in [*self.closing, self.block]:
            block.hollow += block.hanging
            self.lost += block.hanging
            if block.rows:
                self.hand_over(block)

    def sweep(self) -> None:
        """Forget outlets without rows; of blocks that were full long ago no row shall hang."""
        staying = []
        for outlet in self.outlets:
            if self.closing:
                self.move(outlet)
            if outlet.first_row == END and outlet.notes is None:
                outlet.tape = None
            else:
                staying.append(outlet)
        self.outlets = staying
        self.close_settled()

    def move(self, outlet: Outlet) -> None:
        """Turn rows of full blocks that hang at an outlet into notes: a slow connection."""
        place = outlet.first_row
        names: dict[int, list[bytes]] = {}
        while place != END and not self.begin <= place < self.end:
            block = self.blocks[place // LENGTH]
            topics = names.setdefault(block.index, [])
            if not topics:
                topics.extend(block.topics)
            if outlet.notes is None:
                outlet.notes = []
            outlet.notes.append(
                Note(
                    block.flows[self.wholes[place * WHOLES + FLOW]],
                    topics[self.wholes[place * WHOLES + TOPIC]],
                    self.wholes[place * WHOLES + COUNT],
                    self.wholes[place * WHOLES + SIZE],
                    self.times[place * TIMES + ARRIVED],
                    self.wholes[place * WHOLES + FACETS],
                )
            )
            block.hanging -= 1
            block.hollow += 1
            self.written -= 1  # it becomes a row once more, or none
            # Whoever reads the block passes over a row that stands for nothing.
            self.wholes[place * WHOLES + COUNT] = 0
            place = self.wholes[place * WHOLES + NEXT]
        outlet.first_row = place
        if place == END:
            outlet.last_row = END

    def write_notes(self, outlet: Outlet, outcome: int, now: float) -> None:
        """Rows that had been moved out of the arena."""
        notes = outlet.notes or []
        outlet.notes = None
        numbers: dict[Introduction, int] = {}
        block = self.number
        for note in notes:
            if not self.ready():
                continue
            if block != self.number:
                block = self.number
                numbers.clear()
            number = numbers.get(note.flow)
            if number is None:
                number = numbers[note.flow] = len(self.block.flows)
                self.block.flows.append(note.flow)
            self.put(
                number,
                note.topic,
                note.count,
                note.size,
                now,
                note.arrived,
                0.0,
                note.facets | outcome,
            )


def facets(outcome: int, reason: int, rank: int, qos: int, retained: bool) -> int:
    """What a row says in few bits, as one number."""
    return outcome | (reason << 8) | (rank << 16) | (qos << 24) | (0x08000000 if retained else 0)
