"""Wills: what a client asked to be said in its name if it goes without a word (MQTT 5 §3.1.2.5)."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.message import Message
from headgate.core.timers import Alarm

WILL = 320
"""Bytes that a will takes besides its texts (`python -m bench memory`)."""


@dataclass(slots=True)
class PendingWill:
    """A will and when it is to be published."""

    message: Message
    delay: int
    """Seconds to wait after the connection was lost (will delay interval)."""
    due: float = 0.0
    """When it will be published; 0 while its client is connected."""
    alarm: Alarm | None = None

    @property
    def size(self) -> int:
        """Bytes that it takes while it waits."""
        return WILL + self.message.size
