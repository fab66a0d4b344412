"""Links whose rate nobody gave: looks at what the kernel knows, and paces as `Capacity` says.

Ten times a second, less often if there are thousands of connections, the estimator asks the kernel
about every TCP connection of an `auto` link. What it makes of the answers is in `core/capacity.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from headgate.core.broker import Broker
from headgate.core.capacity import Capacity, Phase, Reading
from headgate.core.link import HEADERS, Link
from headgate.core.scheduler import pump
from headgate.core.session import Session
from headgate.server.connection import Connection
from headgate.server.tcp import Transfer, transfer, unacknowledged

log = logging.getLogger(__name__)

INTERVAL = 0.1
COST = 1e-4
"""Seconds between two looks for each connection: asking takes some 5 % of that."""
SLICE = 200
"""Connections asked in one turn of the loop: about a millisecond."""
PAUSE = 0.001
EAGER = 0.9
"""Of the pace: who uses more of it would use more than it."""


@dataclass(slots=True)
class Sums:
    """Of the connections asked in one look."""

    delivered: int = 0
    backlog: int = 0
    round_trips: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Path:
    """What is known of one estimated link."""

    link: Link
    capacity: Capacity = field(default_factory=Capacity)
    known: dict[Connection, Transfer] = field(default_factory=dict)
    """Each connection as it was at the last look."""
    sent: float = 0.0
    looked: float = 0.0


class Estimator:
    """Watches every link that is `auto`, also those that a new configuration brings."""

    def __init__(self, broker: Broker, now: float) -> None:
        self.broker = broker
        self._paths: dict[Link, Path] = {}
        broker.schedule(now + INTERVAL, self._begin)

    def is_steady(self, link: Link) -> bool:
        """Is the link paced at what it was found to take, and neither tried out nor drained?"""
        path = self._paths.get(link)
        return path is not None and path.capacity.phase is Phase.CRUISE

    def _begin(self, now: float) -> None:
        wanted = [link for link in self.broker.links if link.estimated]
        self._paths = {link: self._paths.get(link) or Path(link, looked=now) for link in wanted}
        members = sum(len(link.members) for link in wanted)
        self.broker.schedule(now + max(INTERVAL, members * COST), self._begin)
        for path in self._paths.values():
            self._look(path, iter(list(path.link.members)), Sums(), {}, now)

    def _look(
        self,
        path: Path,
        members: Iterator[Session],
        sums: Sums,
        known: dict[Connection, Transfer],
        now: float,
    ) -> None:
        """Ask about some connections, then about the others in later turns."""
        for asked, session in enumerate(members, 1):
            connection = session.channel and session.channel.connection
            found = transfer(connection.fd) if connection and connection.open else None
            if found is not None:
                known[connection] = found
                held = unacknowledged(connection.fd)
                add(sums, path.known.get(connection), found, held)
            if asked == SLICE:
                self.broker.schedule(
                    now + PAUSE, lambda at: self._look(path, members, sums, known, at)
                )
                return
        path.known = known
        self._follow(path, sums, now)

    def _follow(self, path: Path, sums: Sums, now: float) -> None:
        link = path.link
        seconds, path.looked = now - path.looked, now
        sent, path.sent = link.sent - path.sent, link.sent
        if seconds <= 0.0 or not link.estimated:
            return
        trips = sorted(sums.round_trips)
        reading = Reading(
            seconds=seconds,
            sent=sent,
            delivered=sums.delivered,
            backlog=sums.backlog,
            round_trip=trips[len(trips) // 2] * 1e-6 if trips else 0.0,
            eager=link.waiting > 0 or sent > EAGER * link.rate * seconds > 0.0,
        )
        before = path.capacity.phase
        pace = path.capacity.follow(reading)
        if (before is Phase.FREE) != (path.capacity.phase is Phase.FREE):
            log.info("link %s: paced at %.0f bit/s", link.name, pace * 8)
        if pace != link.rate:
            self._pace(link, pace, now)

    def _pace(self, link: Link, rate: float, now: float) -> None:
        changed = (link.rate == 0.0) != (rate == 0.0)
        link.pace(rate)
        if changed:
            for session in link.members:
                for flow in session.flows.values():
                    flow.refresh()
        self.broker.wait_for_pace(link, pump(link, now))


def add(sums: Sums, before: Transfer | None, after: Transfer, held: int) -> None:
    """Count what a connection did since the last look, and the bytes that the kernel still holds.

    What is under way is bytes and headers, not full segments: a thousand clients with a message
    of some bytes each would look like a queue of a megabyte and a half.
    """
    sums.round_trips.append(after.shortest)
    if before is not None:
        sums.delivered += after.on_wire - before.on_wire
        if after.closed > before.closed:
            return  # it waits for its receiver, not for the path
    sums.backlog += held + after.in_flight * HEADERS
