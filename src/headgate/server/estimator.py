"""Links whose rate nobody gave: estimated from what the kernel knows of their connections.

Ten times a second the estimator looks at every TCP connection of an `auto` link: how much was
acknowledged, how long a round trip takes compared with the shortest one seen, and how much waits
unsent. As long as no queue builds up on the path the link is not paced at all. When one does, the
link is paced at what was really delivered, so that the queue moves from the path into the broker,
where priorities count. From then on the pace follows the path: a little up while there is more to
send and the path stays short, down to what is delivered as soon as it grows long.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field

from headgate.core.broker import Broker
from headgate.core.link import Link
from headgate.core.scheduler import pump
from headgate.core.session import Session

INTERVAL = 0.1
SMOOTHING = 0.3
"""Weight of the newest measurement of the delivered rate."""
GROWTH = 1.04
"""How much faster to try, each interval in which there is more to send and the path is short."""
LONG_PATH = 0.008
"""Seconds of queueing on the path that count as congestion, or half the shortest round trip."""
RELIEF = 0.85
"""Pace during congestion, of what is delivered: the path's queue has to drain."""
LEAST = 2_000.0
"""Bytes per second below which no path is believed to be."""

# struct tcp_info, linux/tcp.h: what lies between is skipped.
TCP_INFO = struct.Struct("=68xI48xQ16xII")
"""rtt (µs), bytes acknowledged, bytes not sent, shortest rtt (µs)."""


@dataclass(slots=True)
class Path:
    """What is known of one estimated link."""

    link: Link
    acknowledged: dict[int, int] = field(default_factory=dict)
    """By connection, identified by its session."""
    delivered: float = 0.0
    """Bytes per second, smoothed."""
    sent: float = 0.0


@dataclass(slots=True)
class Reading:
    """All connections of a link at one moment."""

    delivered: int = 0
    queueing: float = 0.0
    """Seconds by which the median round trip exceeds the shortest."""
    shortest: float = 0.0
    active: int = 0


class Estimator:
    def __init__(self, broker: Broker, now: float) -> None:
        self.broker = broker
        self._paths = [Path(link) for link in broker.links if link.estimated]
        self._looked = now
        if self._paths:
            broker.schedule(now + INTERVAL, self._look)

    def _look(self, now: float) -> None:
        elapsed = now - self._looked
        self._looked = now
        if elapsed > 0.0:
            members: dict[str, list[Session]] = {path.link.name: [] for path in self._paths}
            for channel in self.broker.channels:
                session = channel.session
                if session is not None and session.link is not None:
                    members.get(session.link.name, []).append(session)
            for path in self._paths:
                self._follow(path, read(path, members[path.link.name]), elapsed, now)
        self.broker.schedule(now + INTERVAL, self._look)

    def _follow(self, path: Path, reading: Reading, elapsed: float, now: float) -> None:
        link = path.link
        rate = reading.delivered / elapsed
        if rate > 0.0:
            path.delivered += SMOOTHING * (rate - path.delivered)
        used = (link.sent - path.sent) / elapsed
        path.sent = link.sent
        if reading.queueing > max(LONG_PATH, 0.5 * reading.shortest):
            pace = max(LEAST, RELIEF * path.delivered)
            if link.rate == 0.0 or pace < link.rate:
                self._pace(link, pace, now)
        elif link.rate and (link.waiting or used > 0.9 * link.rate):
            self._pace(link, link.rate * GROWTH, now)

    def _pace(self, link: Link, rate: float, now: float) -> None:
        unpaced = link.rate == 0.0
        link.pace(rate)
        if unpaced:
            for session in self.broker.sessions.values():
                if session.link is link:
                    for flow in session.flows.values():
                        flow.refresh()
        self.broker.wait_for_pace(link, pump(link, now))


def read(path: Path, sessions: list[Session]) -> Reading:
    """Ask the kernel about every connection of a link."""
    reading = Reading()
    seen: dict[int, int] = {}
    delays: list[float] = []
    for session in sessions:
        connection = session.channel.connection
        information = None if connection is None else tcp_information(connection.fd)
        if information is None:
            continue
        rtt, acknowledged, _, shortest = information
        seen[id(session)] = acknowledged
        progress = acknowledged - path.acknowledged.get(id(session), acknowledged)
        if progress > 0:
            reading.active += 1
            reading.delivered += progress
            delays.append((rtt - shortest) * 1e-6)
            reading.shortest = max(reading.shortest, shortest * 1e-6)
    path.acknowledged = seen
    if delays:
        delays.sort()
        reading.queueing = delays[len(delays) // 2]
    return reading


def tcp_information(descriptor: int) -> tuple[int, int, int, int] | None:
    """rtt, bytes acknowledged, bytes not sent, shortest rtt; None for what is not TCP."""
    borrowed = socket.socket(fileno=descriptor)
    try:
        data = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    except OSError:
        return None
    finally:
        borrowed.detach()
    if len(data) < TCP_INFO.size:
        return None
    rtt, acknowledged, unsent, shortest = TCP_INFO.unpack_from(data)
    return rtt, acknowledged, unsent, shortest
