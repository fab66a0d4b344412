"""The event loop: one thread, one poll, one write per connection and turn.

A turn reads everything that is ready, lets the broker work, and then writes once to each
connection that has something to say. Our own loop rather than asyncio's, because a message then
costs two system calls and nothing else (docs/decisions/0003-own-event-loop.md).
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable

from headgate.core.broker import Broker
from headgate.core.channel import Channel
from headgate.server.connection import Connection
from headgate.server.transport.listener import Listener

ACCEPTS = 64
"""Connections taken from one listener in one turn, so that a flood of them starves nobody."""

EVENTS = 1024
"""Sockets looked at in one turn."""


class Clock:
    """Seconds since the epoch that never go back."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        return time.monotonic() + self._offset


class Reactor:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.broker: Broker | None = None
        self.after_turn: Callable[[], None] = lambda: None
        self._poll = select.epoll()
        self._connections: dict[int, Connection] = {}
        self._listeners: dict[int, Listener] = {}
        self._resting: set[Listener] = set()
        self._again: list[Connection] = []
        self._posted: deque[Callable[[], None]] = deque()
        self._alarm = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._alarm, select.EPOLLIN)
        self._running = False

    # From any thread

    def post(self, call: Callable[[], None]) -> None:
        """Have `call` run in the loop's thread, soon."""
        self._posted.append(call)
        os.eventfd_write(self._alarm, 1)

    def stop(self) -> None:
        """Leave `run` at the end of the turn."""
        self._running = False

    # Sockets

    def listen(self, listener: Listener) -> None:
        self._listeners[listener.fileno()] = listener
        self._poll.register(listener.fileno(), select.EPOLLIN)

    def deafen(self, listener: Listener) -> None:
        """Stop accepting from a listener."""
        if self._listeners.pop(listener.fileno(), None) is not None and (
            listener not in self._resting
        ):
            self._poll.unregister(listener.fileno())

    def modify(self, fd: int, events: int) -> None:
        self._poll.modify(fd, events)

    def forget(self, connection: Connection) -> None:
        if self._connections.pop(connection.fd, None) is not None:
            self._poll.unregister(connection.fd)

    def again(self, connection: Connection) -> None:
        """The connection has more to read, though its socket may not say so."""
        self._again.append(connection)

    # The loop

    def run(self, broker: Broker) -> None:
        """Turn until `stop`."""
        self.broker = broker
        self._running = True
        clock = self.clock
        deadline = 0.0
        while self._running:
            busy = self._again or broker.board or broker.closing
            timeout = 0.0 if busy else max(0.0, min(deadline - clock(), 3600.0))
            self._turn(broker, self._poll.poll(timeout, EVENTS))
            deadline = broker.tick(clock())
            self._write(broker)
            self.after_turn()

    def _turn(self, broker: Broker, events: list[tuple[int, int]]) -> None:
        now = self.clock()
        if self._again:
            waiting, self._again = self._again, []
            for reader in waiting:
                if reader.open:
                    reader.readable(now)
        connections = self._connections
        for fd, mask in events:
            connection = connections.get(fd)
            if connection is not None:
                if mask != select.EPOLLOUT:
                    connection.readable(now)
                if mask & select.EPOLLOUT and connection.open:
                    connection.writable(now)
            elif fd == self._alarm:
                os.eventfd_read(self._alarm)
            elif fd in self._listeners:
                self._accept(broker, self._listeners[fd], now)
        while self._posted:
            self._posted.popleft()()

    def _write(self, broker: Broker) -> None:
        board = broker.board
        if board:
            now = self.clock()
            waiting = board[:]
            board.clear()
            for outlet in waiting:
                outlet.listed = False
                outlet.connection.flush(now)
        if broker.closing:
            now = self.clock()
            closing, broker.closing = broker.closing, []
            for channel in closing:
                channel.connection.finish(now)

    def _accept(self, broker: Broker, listener: Listener, now: float) -> None:
        for _ in range(ACCEPTS):
            try:
                stream = listener.accept()
            except OSError:
                self._rest(broker, listener, now)
                return
            if stream is None:
                return
            channel = broker.open(stream.peer, now)
            connection = Connection(self, broker, stream, channel)
            self._connections[connection.fd] = connection
            self._poll.register(connection.fd, select.EPOLLIN)

    def _rest(self, broker: Broker, listener: Listener, now: float) -> None:
        """The system has no room for another connection: look again in a second."""
        self._resting.add(listener)
        self._poll.unregister(listener.fileno())

        def wake(_: float) -> None:
            self._resting.discard(listener)
            if listener.fileno() in self._listeners:
                self._poll.register(listener.fileno(), select.EPOLLIN)

        broker.schedule(now + 1.0, wake)

    def channels(self) -> list[Channel]:
        return [connection.channel for connection in self._connections.values()]

    def close(self) -> None:
        for connection in list(self._connections.values()):
            connection.close(self.clock())
        self._poll.close()
        os.close(self._alarm)
