"""The event loop: one thread, one poll, one write per connection and turn.

A turn reads everything that is ready, lets the broker work for a moment, and then writes once to
each connection that has something to say. Our own loop rather than asyncio's, because a message
then costs two system calls and nothing else (docs/decisions/0003-own-event-loop.md).
"""

from __future__ import annotations

import logging
import os
import select
import time
from collections import Counter, deque
from collections.abc import Callable
from time import monotonic

try:
    import cython
except ModuleNotFoundError:  # compiled or not, it is not needed to run
    from headgate import uncompiled as cython

from headgate.core.broker import Broker
from headgate.core.channel import Channel
from headgate.core.outlet import Outlet
from headgate.server.connection import Connection
from headgate.server.transport.listener import Listener

log = logging.getLogger(__name__)

ACCEPTS = 64
"""Connections taken from one listener in one turn, so that a flood of them starves nobody."""

EVENTS = 8192
"""Sockets looked at in one turn: all that are ready, or an urgent message would wait for the next.
To be asked about costs a socket less than a microsecond."""

CROWD = 16
"""Ready sockets from which on it matters whose is read first."""

HASTY = 256
"""Connections remembered for having said something urgent."""

LONGEST_SLEEP = 3600.0

FINE = 0.01
"""Waits shorter than this are timed finely."""

NEXT = 0.0001
"""Seconds for which the loop stays awake for the next message, if the last one came that soon. To
be woken costs about as much (docs/decisions/0056-awake-for-the-next.md)."""

SHORT = 0.0003
"""Seconds of processing after which the loop looks whether something urgent came meanwhile."""

PASSING = 1e-6
"""Seconds by which a connection makes a turn longer that has more for us but stands in line: to
pass it by costs a small part of that, and so do a thousand of them."""


class Reactor:
    def __init__(self) -> None:
        self.offset = time.time() - monotonic()
        self.after_turn: Callable[[], None] = lambda: None
        self.epoll = select.epoll()
        self.poller = self.epoll.fileno()
        self.connections: dict[int, Connection] = {}
        self.listeners: dict[int, Listener] = {}
        self.resting: set[Listener] = set()
        self.crowd: Counter[Listener] = Counter()
        self.more: list[Connection] = []
        self.line: list[Connection] = []
        self.bulk: list[Connection] = []
        self.hasty: dict[int, Connection] = {}
        """Those that said something urgent lately: they are read first."""
        self.posted: deque[Callable[[], None]] = deque()
        self.alarm = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.epoll.register(self.alarm, select.EPOLLIN)
        self.running = False
        self.alone = len(os.sched_getaffinity(0)) == 1
        """There is one processor: who stays awake keeps others from sending."""
        self.lively = False
        """The last wait was a short one."""

    def clock(self) -> float:
        """Seconds since the epoch that never go back."""
        if cython.compiled:
            return seconds() + self.offset  # type: ignore[name-defined, no-any-return]  # noqa: F821 (reactor.pxd)
        return monotonic() + self.offset

    # From any thread

    def post(self, call: Callable[[], None]) -> None:
        """Have `call` run in the loop's thread, soon."""
        self.posted.append(call)
        os.eventfd_write(self.alarm, 1)

    def stop(self) -> None:
        """Leave `run` at the end of the turn."""
        self.running = False

    # Sockets

    def listen(self, listener: Listener) -> None:
        self.listeners[listener.fileno()] = listener
        self.epoll.register(listener.fileno(), select.EPOLLIN)

    def deafen(self, listener: Listener) -> None:
        """Stop accepting from a listener."""
        known = self.listeners.pop(listener.fileno(), None)
        if known is not None and listener not in self.resting:
            self.epoll.unregister(listener.fileno())

    def modify(self, fd: int, events: int) -> None:
        self.epoll.modify(fd, events)

    def forget(self, connection: Connection) -> None:
        self.hasty.pop(connection.fd, None)
        if self.connections.pop(connection.fd, None) is not None:
            self.epoll.unregister(connection.fd)
            self.crowd[connection.listener] -= 1

    def again(self, connection: Connection) -> None:
        """The connection has more to read, though its socket may not say so."""
        self.more.append(connection)

    # The loop

    def run(self, broker: Broker) -> None:
        """Turn until `stop`."""
        self.running = True
        timers = broker.timers
        board = broker.board
        while self.running:
            if self.line or self.bulk or self.more or board or broker.closing:
                timeout = 0.0
            else:
                timeout = min(max(timers.due - self.clock(), 0.0), LONGEST_SLEEP)
                if 0.0 < timeout < FINE:
                    # epoll counts in milliseconds, a paced link in microseconds.
                    select.select([self.epoll], [], [], timeout)
                    timeout = 0.0
            passed = self.read(broker, self.poll(timeout))
            if self.line or self.bulk:
                self.work(SHORT + PASSING * passed)
            now = self.clock()
            self.send(broker, now)
            if broker.closing:
                self.finish(broker, now)
            self.after_turn()

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        """Descriptors that are ready, and for what, at the latest after `timeout` seconds."""
        if timeout == 0.0 or self.alone:
            return self.look(timeout)
        begin = self.clock()
        events: list[tuple[int, int]] = []
        if self.lively:
            while not events and self.clock() - begin < NEXT:
                events = self.look(0.0)
        if not events:
            events = self.look(timeout)
        self.lively = self.clock() - begin < NEXT
        return events

    def look(self, timeout: float) -> list[tuple[int, int]]:
        """As `poll`, asleep."""
        if cython.compiled:
            return ready(self.poller, timeout)  # type: ignore[name-defined, no-any-return]  # noqa: F821 (reactor.pxd)
        return self.epoll.poll(timeout, EVENTS)

    def read(self, broker: Broker, events: list[tuple[int, int]]) -> int:
        """Fetch from every connection that has something for us, unless it still stands in line.

        What is urgent in it is routed and written at once. The rest waits in line for `work`.
        Where many have something, those come first that had something urgent before: to read from
        a thousand sockets takes milliseconds.
        Returns how many have more for us but stand in line.
        """
        now = self.clock()
        passed = 0
        later: list[Connection] = []
        if self.more:
            waiting, self.more = self.more, []
            for connection in waiting:
                if connection.pending:
                    self.more.append(connection)
                else:
                    self.fetch(broker, connection, now)
        if self.hasty and len(events) > CROWD:
            for event in events:
                if event[0] in self.hasty:
                    connection = self.hasty[event[0]]
                    if event[1] != 4 and not connection.pending:
                        self.fetch(broker, connection, now)
        for event in events:
            fd = event[0]
            mask = event[1]
            known = self.connections.get(fd)
            if known is not None:
                connection = known
                if mask != 4:  # anything but EPOLLOUT alone is input, an end or an error
                    if connection.pending:
                        passed += 1
                    elif connection.bulky:
                        later.append(connection)
                    else:
                        self.fetch(broker, connection, now)
                if mask & 4 and connection.open:
                    connection.writable(now)
            elif fd == self.alarm:
                os.eventfd_read(self.alarm)
            elif fd in self.listeners:
                self.accept(broker, self.listeners[fd], now)
        # Whoever says much seldom says it urgently: first those that say little.
        for connection in later:
            self.fetch(broker, connection, now)
        while self.posted:
            call = self.posted.popleft()
            try:
                call()
            except Exception:  # contained, and told
                log.exception("something that was handed over could not be done")
        return passed

    def fetch(self, broker: Broker, connection: Connection, now: float) -> None:
        """Read from a connection whose last bytes are processed; what is urgent leaves at once."""
        if connection.open and connection.fetch(now):
            self.stand_in_line(connection)
            if broker.pool.hurry:
                if len(self.hasty) >= HASTY:
                    self.hasty.clear()
                self.hasty[connection.fd] = connection
                self.send(broker, self.clock())

    def stand_in_line(self, connection: Connection) -> None:
        """A connection has something to process, or has more than it may process in one go."""
        connection.pending = True
        if connection.bulky:
            self.bulk.append(connection)
        else:
            self.line.append(connection)

    def work(self, limit: float) -> None:
        """Process what was fetched for `limit` seconds or a little longer.

        Those that say little come first; of those that say much at least one, so that none starves.
        """
        now = self.clock()
        if self.line:
            self.line = self.work_on(self.line, now, now + limit)
        if self.bulk:
            self.bulk = self.work_on(self.bulk, now, now + limit)

    def work_on(self, line: list[Connection], now: float, end: float) -> list[Connection]:
        """Process those in `line` until `end`, at least one; returns who still waits."""
        done = 0
        # Who has more than may be processed in one go stands in line again, behind the others.
        while done < len(line):
            connection = line[done]
            done += 1
            connection.pending = False
            if connection.open:
                connection.process(now)
            if self.clock() > end:
                break
        return line[done:]

    def send(self, broker: Broker, now: float) -> None:
        """Let timers and paced links have their say, then write what is to be written."""
        broker.pool.hurry = False
        if broker.timers.due <= now:
            broker.timers.run(now)
        if broker.pool.paced:
            broker.pace(now)
        if broker.board:
            self.write(broker.board, now)

    def write(self, board: list[Outlet], now: float) -> None:
        """Write once to every connection that has something to say."""
        waiting = board[:]
        board.clear()
        for outlet in waiting:
            outlet.listed = False
            if outlet.connection is not None:  # it may have ended since
                connection = outlet.connection
                connection.flush(now)

    def finish(self, broker: Broker, now: float) -> None:
        """Close what the core is done with."""
        closing, broker.closing = broker.closing, []
        for channel in closing:
            if channel.connection is not None:
                channel.connection.finish(now)

    def accept(self, broker: Broker, listener: Listener, now: float) -> None:
        for _ in range(ACCEPTS):
            try:
                stream = listener.accept()
            except OSError:
                self.rest(broker, listener, now)
                return
            if stream is None:
                return
            most = listener.config.max_connections
            if (most and self.crowd[listener] >= most) or broker.is_full():
                broker.counters.connections_refused += 1
                stream.close()
                continue
            channel = broker.open(stream.peer, now)
            connection = Connection(self, broker, listener, stream, channel)
            self.connections[connection.fd] = connection
            self.crowd[listener] += 1
            self.epoll.register(connection.fd, select.EPOLLIN)

    def rest(self, broker: Broker, listener: Listener, now: float) -> None:
        """The system has no room for another connection: look again in a second."""
        self.resting.add(listener)
        self.epoll.unregister(listener.fileno())

        def wake(_: float) -> None:
            self.resting.discard(listener)
            if listener.fileno() in self.listeners:
                self.epoll.register(listener.fileno(), select.EPOLLIN)

        broker.schedule(now + 1.0, wake)

    def channels(self) -> list[Channel]:
        return [connection.channel for connection in self.connections.values()]

    def close(self) -> None:
        for connection in list(self.connections.values()):
            connection.close(self.clock())
        self.epoll.close()
        os.close(self.alarm)
