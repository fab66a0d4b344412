"""The outgoing side of one connection.

Everything for one client is gathered here during a turn of the loop and written with one call at
its end. The server takes `pieces`; what the kernel did not accept it keeps, and then `clear` is
false: messages wait in their flows' queues, where a more important one can still overtake them.
"""

from __future__ import annotations

from typing import Any

ROOM = 256 * 1024
"""Bytes that may be gathered before messages have to wait in their queues."""


NOWHERE = 0xFFFFFFFF
"""No row of the tape."""


class Outlet:
    def __init__(self, board: list[Outlet], version: int) -> None:
        self.board = board
        self.version = version
        self.pieces: list[bytes] = []
        self.marks: list[tuple[Any, int, float]] = []
        self.marked: Any = None
        self.marked_count = 0
        self.marked_arrival = 0.0
        # What was gathered, in the arena of the tape, from row to row; older rows are notes.
        self.tape: Any = None
        self.first_row = NOWHERE
        self.last_row = NOWHERE
        self.notes: list[Any] | None = None
        self.size = 0
        self.room = ROOM
        self.clear = True
        self.listed = False
        self.held = False
        """What is gathered is not to be written yet."""
        self.connection: Any = None
        self.packet_limit = 0x0FFFFFFF
        self.alias_limit = 0
        self.aliases: dict[bytes, int] = {}

    def put(self, piece: bytes) -> None:
        """Add bytes to what is written at the end of this turn."""
        self.pieces.append(piece)
        self.size += len(piece)
        if self.size >= self.room:
            self.clear = False
        if not self.listed:
            self.listed = True
            self.board.append(self)

    def hold(self) -> None:
        """Gather, but write nothing before `release`: the first piece promises what is not sure."""
        self.held = True
        self.listed = True  # it does not get onto the board by itself

    def release(self) -> None:
        """Write all that was gathered at the end of this turn."""
        self.held = False
        self.listed = True
        self.board.append(self)

    def mark(self, flow: Any, count: int, arrived: float) -> None:
        """Remember that `count` messages of `flow` go out with the bytes put so far."""
        if flow is self.marked and arrived == self.marked_arrival:
            self.marked_count += count
            return
        if self.marked is not None:
            self.marks.append((self.marked, self.marked_count, self.marked_arrival))
        self.marked = flow
        self.marked_count = count
        self.marked_arrival = arrived

    def take(self) -> bytes:
        """All that was gathered, for one write."""
        pieces = self.pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return data

    def alias(self, topic: bytes) -> int:
        """The alias under which the client knows `topic`; negative if it must be told first.

        Aliases are given first come, first served, and never taken back (MQTT 5 §3.3.2.3.4).
        """
        known = self.aliases.get(topic, 0)
        if known:
            return known
        if len(self.aliases) >= self.alias_limit:
            return 0
        fresh = len(self.aliases) + 1
        self.aliases[topic] = fresh
        return -fresh
