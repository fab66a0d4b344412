"""Whoever wants to know of connections and commands as they happen: the recorder, or nobody.

Unlike a hook (core/hooks.py) it is ours, is told why, and must not fail.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headgate.core.control import Planned
    from headgate.core.session import Session


class Parting(StrEnum):
    """Why a connection ended."""

    DISCONNECT = "disconnect"
    """The client said so."""
    LOST = "lost"
    """The network ended it, without a word."""
    SILENT = "silent"
    """The client did not keep its keep alive."""
    TAKEN_OVER = "taken-over"
    """The client connected again."""
    SHUTDOWN = "shutdown"
    """The broker ended."""
    DISMISSED = "dismissed"
    """The broker would not go on, because of an error or a limit."""


class Captured(NamedTuple):
    """How the capture of messages goes."""

    taken: int
    """Messages since the start."""
    lost: int
    """Messages for which there was no room, beyond those."""
    waiting: int
    """Bytes on disk that are not yet in a segment."""
    stalled: bool
    """Publishers wait because there is no room."""


class Observer:
    """Nobody: everything is ignored. Called in the loop's thread."""

    def tally(self) -> tuple[int, int]:
        """Records that were written, and those that were lost, since the start."""
        return 0, 0

    def captures(self) -> Captured:
        """How the capture of messages goes, if there is any."""
        return Captured(0, 0, 0, stalled=False)

    def connected(self, session: Session, present: bool, now: float) -> None:
        """A client is here; `present` if it has a session from before."""

    def parted(self, session: Session, why: Parting, now: float) -> None:
        """A client's connection is over."""

    def session_ended(self, session: Session, now: float) -> None:
        """A client's session is forgotten."""

    def commanded(
        self, command: str, client: str, answer: dict[str, object], payload: bytes, now: float
    ) -> None:
        """The control channel was told something, and gave this answer."""

    def planned(self, plan: Planned, client: str, payload: bytes, now: float) -> None:
        """A controller says what it decided."""
