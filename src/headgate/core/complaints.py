"""What an operator has to know of unwelcome clients, without a line for each of them."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

BURST = 10.0
"""Lines at once."""
RATE = 0.2
"""Lines per second after that: a client that tries again for ever does not fill a disk."""


class Complaints:
    """Writes them to the log, and how many were left out."""

    def __init__(self, verb: str = "was thrown out", level: int = logging.WARNING) -> None:
        self._verb = verb
        self._level = level
        self._allowance = BURST
        self._since = 0.0
        self._unsaid = 0

    def add(self, who: str, why: str, now: float) -> None:
        """It happened to somebody."""
        if now > self._since:
            earned = (now - self._since) * RATE
            self._allowance = min(BURST, self._allowance + earned)
            self._since = now
        if self._allowance < 1.0:
            self._unsaid += 1
            return
        self._allowance -= 1.0
        others = f" (and {self._unsaid} others before)" if self._unsaid else ""
        self._unsaid = 0
        log.log(self._level, "%s %s: %s%s", who, self._verb, why, others)
