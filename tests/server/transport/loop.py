"""Just enough of a reactor to drive streams in a test, in the test's own thread."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from headgate.errors import HeadgateError
from headgate.server.transport.listener import Listener
from headgate.server.transport.stream import Stream

LIMIT = 20.0
"""Seconds after which a test that waits has failed."""


@dataclass(eq=False)
class Served:
    """One accepted connection and what has happened to it."""

    stream: Stream
    echo: bool = False
    received: bytearray = field(default_factory=bytearray)
    to_send: bytearray = field(default_factory=bytearray)
    ended: bool = False
    error: Exception | None = None
    paused: bool = False
    """Do not read: what the peer sends stays in the kernel."""

    def read(self) -> None:
        data = self.stream.read()
        if data is None:
            return
        if data == b"":
            self.ended = True
            return
        self.received += data
        if self.echo:
            self.to_send += data

    def write(self) -> None:
        taken = self.stream.write(bytes(self.to_send[: 256 * 1024]))
        del self.to_send[:taken]


class Loop:
    """Level-triggered, like the broker's reactor."""

    def __init__(self, listener: Listener, *, echo: bool = False) -> None:
        self.listener = listener
        self.echo = echo
        self.served: list[Served] = []
        self._epoll = select.epoll()
        self._epoll.register(listener.fileno(), select.EPOLLIN)
        self._masks: dict[int, tuple[Served, int]] = {}

    def turn(self, seconds: float = 0.02) -> None:
        """Wait for something to happen and deal with it."""
        for fd, event in self._epoll.poll(seconds):
            if fd == self.listener.fileno():
                while (stream := self.listener.accept()) is not None:
                    self._adopt(stream)
            elif fd in self._masks:
                self._serve(self._masks[fd][0], event)
        for served, _ in list(self._masks.values()):
            self._poll_for(served)

    def until(self, condition: Callable[[], object], what: str = "it") -> None:
        """Turn until `condition` holds."""
        deadline = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            self.turn()

    def only(self) -> Served:
        """The one connection of this test, once it is accepted."""
        self.until(lambda: self.served, "a connection")
        assert len(self.served) == 1
        return self.served[0]

    def drop(self, served: Served) -> None:
        """Close a connection, as the reactor does."""
        with suppress(KeyError):
            del self._masks[served.stream.fileno()]
        served.stream.close()

    def close(self) -> None:
        for served in self.served:
            served.stream.close()
        self.listener.close()
        self._epoll.close()

    def _adopt(self, stream: Stream) -> None:
        served = Served(stream, self.echo)
        self.served.append(served)
        self._masks[stream.fileno()] = (served, 0)
        self._epoll.register(stream.fileno(), 0)
        self._poll_for(served)

    def _serve(self, served: Served, event: int) -> None:
        readable = event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR)
        try:
            if readable and not served.paused and not served.ended:
                served.read()
                while served.stream.has_pending and not served.ended:
                    served.read()
            if served.to_send or served.stream.wants_write:
                served.write()
        except (OSError, HeadgateError) as error:
            served.error = error
            self.drop(served)

    def _poll_for(self, served: Served) -> None:
        fd = served.stream.fileno()
        if fd < 0:
            return
        mask = 0 if served.paused or served.ended else select.EPOLLIN
        if served.to_send or served.stream.wants_write:
            mask |= select.EPOLLOUT
        if self._masks[fd][1] != mask:
            self._epoll.modify(fd, mask)
            self._masks[fd] = (served, mask)
