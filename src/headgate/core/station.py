"""What the server looks at in every turn of its loop, message or none: kept where C reaches it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.core.link import Pool
from headgate.core.outlet import Outlet
from headgate.core.timers import Timers

if TYPE_CHECKING:
    from headgate.core.channel import Channel


class Station:
    """The broker, as far as a turn without events is concerned."""

    def __init__(self, memory: int) -> None:
        self.pool = Pool(memory)
        self.timers = Timers()
        self.board: list[Outlet] = []
        """Connections that have something to be written at the end of this turn."""
        self.closing: list[Channel] = []
        """Connections that the core is done with."""
