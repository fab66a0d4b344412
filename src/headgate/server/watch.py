"""Links with a rate, given or found: sees what stays on the path; the pace makes up for it.

Fifty times a second, less often if there are thousands of connections, and only while something is
sent, the watch asks the kernel how much of what went to each client is not acknowledged yet. What
follows from it is in `core/restraint.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from headgate.core.broker import Broker
from headgate.core.link import HEADERS, SEGMENT, Link
from headgate.core.restraint import Restraint
from headgate.core.session import Session
from headgate.server.connection import Connection
from headgate.server.estimator import Estimator
from headgate.server.tcp import transfer, unacknowledged

log = logging.getLogger(__name__)

INTERVAL = 0.02
SILENT, NONE = 0.1, 1.0
"""The same while nothing is sent, and while there is no such link."""
COST = 1e-4
"""Seconds between two looks for each connection: asking takes some 3 % of that."""
SLICE = 200
"""Connections asked in one turn of the loop: a fraction of a millisecond."""
PAUSE = 0.001
STALLED = 0.3
"""Seconds without an acknowledgement after which a connection waits for its receiver, not for the
path."""
QUIET = 600.0
"""Seconds between two complaints about one link."""


@dataclass(slots=True)
class Progress:
    """Of one connection that has more under way than one acknowledgement may hold back."""

    acknowledged: int
    closed: int
    seen: float


@dataclass(slots=True)
class Path:
    """What is known of one link."""

    link: Link
    looked: float
    restraint: Restraint = field(default_factory=Restraint)
    known: dict[Connection, Progress] = field(default_factory=dict)
    sent: float = 0.0
    complained: float = 0.0


@dataclass(slots=True)
class Look:
    """Under way to the connections asked so far."""

    members: Iterator[Session]
    known: dict[Connection, Progress] = field(default_factory=dict)
    under_way: float = 0.0
    trips: float = 0.0
    """Shortest round trips, each times the bytes that are under way there."""


class Watch:
    """Watches every link that has a rate, also those that a new configuration brings."""

    def __init__(self, broker: Broker, estimator: Estimator, now: float) -> None:
        self.broker = broker
        self.estimator = estimator
        self._paths: dict[Link, Path] = {}
        broker.schedule(now + INTERVAL, self._begin)

    def _begin(self, now: float) -> None:
        links = self.broker.links
        self._paths = {link: self._paths.get(link) or Path(link, now) for link in links}
        busy = [
            path
            for path in self._paths.values()
            if self._has_rate(path.link) and (path.link.sent != path.sent or path.known)
        ]
        members = sum(len(path.link.members) for path in busy)
        rest = INTERVAL if busy else SILENT if self._paths else NONE
        self.broker.schedule(now + max(rest, members * COST), self._begin)
        for path in self._paths.values():
            if path in busy:
                path.sent = path.link.sent
                self._look(path, Look(iter(list(path.link.members))), now)
            else:
                path.looked = now

    def _has_rate(self, link: Link) -> bool:
        return link.rate > 0.0 and (not link.estimated or self.estimator.is_steady(link))

    def _look(self, path: Path, look: Look, now: float) -> None:
        """Ask about some connections, then about the others in later turns."""
        for asked, session in enumerate(look.members, 1):
            connection = session.channel and session.channel.connection
            if connection and connection.open and connection.rest is None:
                self._ask(path, look, connection, now)
            if asked == SLICE:
                self.broker.schedule(now + PAUSE, lambda at: self._look(path, look, at))
                return
        path.known = look.known
        self._judge(path, look, now)

    def _ask(self, path: Path, look: Look, connection: Connection, now: float) -> None:
        """Count what is under way to one client, with its headers."""
        waiting = unacknowledged(connection.fd)
        if waiting <= SEGMENT:
            return  # a receiver may keep us waiting for the acknowledgement of that
        found = transfer(connection.fd)
        if found is None:
            return
        before = path.known.get(connection)
        after = Progress(found.acknowledged, found.closed, now)
        if before is not None and found.acknowledged == before.acknowledged:
            after.seen = before.seen
        look.known[connection] = after
        waits_for_receiver = before is not None and found.closed > before.closed
        if now - after.seen <= STALLED and not waits_for_receiver:
            size = waiting + HEADERS * max(found.in_flight, 1.0)
            look.under_way += size
            look.trips += size * found.shortest * 1e-6

    def _judge(self, path: Path, look: Look, now: float) -> None:
        link = path.link
        seconds, path.looked = now - path.looked, now
        if seconds <= 0.0 or not self._has_rate(link):
            return
        link.refill(now)
        restraint = path.restraint
        link.withhold(
            restraint.excess(
                seconds,
                under_way=look.under_way,
                ahead=link.burst - link.tokens,
                rate=link.rate,
                spare=link.burst,
                trip=look.trips / look.under_way if look.under_way else 0.0,
            )
        )
        if restraint.exhausted and not link.estimated and now - path.complained > QUIET:
            path.complained = now
            log.warning(
                "link %s takes less than its rate of %.0f bit/s: is that too high?",
                link.name,
                link.rate * 8,
            )
