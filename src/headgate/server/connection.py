"""A connection: the stream and the channel of one client, and the bytes between them."""

from __future__ import annotations

import logging
import select
from typing import TYPE_CHECKING

from headgate.core.accounting import settle
from headgate.core.broker import Broker
from headgate.core.channel import Channel
from headgate.core.states import CHECKING, CLOSING, OPENING
from headgate.errors import ProtocolViolation
from headgate.server.transport.listener import Listener
from headgate.server.transport.plain import PlainStream
from headgate.server.transport.stream import Stream, StreamError

if TYPE_CHECKING:
    from headgate.server.reactor import Reactor

log = logging.getLogger(__name__)

READ = select.EPOLLIN
WRITE = select.EPOLLOUT

LINGER = 1.0
"""Seconds that a client has to read why we close."""

BULK = 4096
"""Bytes of one read from which on a client is one that says much."""

UNREAD = 1024 * 1024
"""Answers that a client may leave unread before we stop reading from it."""


class Connection:
    def __init__(
        self,
        reactor: Reactor,
        broker: Broker,
        listener: Listener,
        stream: Stream,
        channel: Channel,
    ) -> None:
        self.reactor = reactor
        self.broker = broker
        self.stream = stream
        self.plain = stream if isinstance(stream, PlainStream) else None
        """The stream, if nothing is between us and the socket."""
        self.channel = channel
        self.outlet = channel.outlet
        self.outlet.connection = self
        channel.connection = self
        self.listener = listener
        self.fd = stream.fileno()
        self.events = READ
        self.pending = False
        self.bulky = False
        self.rest: memoryview | None = None
        self.open = True

    def fetch(self, now: float) -> bool:
        """The socket has something for us, or its end; True if there is something to process."""
        channel = self.channel
        plain = self.plain
        try:
            data = self.stream.read() if plain is None else plain.read()
        except (OSError, StreamError):
            self.close(now)
            return False
        if data is None:
            if self.wants_write():
                self.watch()
            return False
        if not data:
            self.close(now)
            return False
        if channel.state >= CLOSING:
            return False  # what comes after DISCONNECT is not for us [MQTT-3.14.4-2]
        if channel.state == OPENING:
            channel.peer = self.stream.peer  # TLS knows the client's certificate by now
        channel.counters.bytes_received += len(data)
        self.bulky = len(data) >= BULK
        if plain is None and self.stream.has_pending:
            self.reactor.again(self)
        return channel.take(data, now)

    def process(self, now: float) -> None:
        """Have the core handle what was fetched."""
        channel = self.channel
        try:
            channel.process(now)
        except Exception:
            # Our fault, not the client's; but it must not become everybody's.
            log.exception("a packet of %s could not be handled", channel.peer)
            error = ProtocolViolation("the broker failed to handle this packet", 0x83)
            self.broker.fail(channel, error, now)
            return
        if channel.unfinished and channel.take(b"", now):
            self.reactor.stand_in_line(self)
        if channel.resume_at > now:
            self.broker.schedule(channel.resume_at, self.resume)
            self.watch()
        elif (
            channel.state == CHECKING
            or channel.waits
            or self.events != READ
            or self.outlet.size > UNREAD
            or self.wants_write()
        ):
            self.watch()

    def wants_write(self) -> bool:
        """The stream has to write something of its own, as TLS does."""
        return self.plain is None and self.stream.wants_write

    def resume(self, now: float) -> None:
        """The publish rate allows reading again."""
        self.channel.resume_at = 0.0
        if self.open:
            self.watch()

    def writable(self, now: float) -> None:
        """The socket takes bytes again."""
        if self.rest is not None:
            try:
                taken = self.stream.write(self.rest)
            except (OSError, StreamError):
                self.close(now)
                return
            self.channel.counters.bytes_sent += taken
            self.outlet.size -= taken
            if taken < len(self.rest):
                self.rest = self.rest[taken:]
                return
            self.rest = None
        elif self.wants_write():
            try:
                self.stream.write(b"")
            except (OSError, StreamError):
                self.close(now)
                return
        self.flush(now)

    def flush(self, now: float) -> None:
        """Write all that was gathered, with one call."""
        outlet = self.outlet
        if self.rest is not None or not self.open or outlet.held:
            return
        if outlet.pieces:
            data = outlet.take()
            try:
                taken = self.stream.write(data) if self.plain is None else self.plain.write(data)
            except (OSError, StreamError):
                self.close(now)
                return
            self.channel.counters.bytes_sent += taken
            if taken < len(data):
                outlet.clear = False
                outlet.size -= taken
                self.rest = memoryview(data)[taken:]
                self.watch()
                return
        settle(outlet, now)
        session = self.channel.session
        if session is not None and session.link is not None:
            self.broker.drained(session, now)
        if self.events != READ or self.wants_write():
            self.watch()

    def watch(self) -> None:
        """Tell the poller what we wait for."""
        if not self.open:
            return
        channel = self.channel
        events = 0
        if self.rest is not None or self.wants_write():
            events = WRITE
        if (
            channel.state != CHECKING
            and not channel.waits
            and channel.resume_at == 0.0
            and self.outlet.size <= UNREAD
        ):
            events |= READ
        if events != self.events:
            self.events = events
            self.reactor.modify(self.fd, events)

    def finish(self, now: float) -> None:
        """The core is done with this connection: write what is left, then close."""
        self.flush(now)
        if not self.open:
            return
        if self.channel.said_goodbye and self.rest is None:
            self.close(now)
            return
        # Closed while there is unread input, a socket sends a reset that can destroy our last
        # words: the reason code. So wait for the client's end, for a while.
        if self.rest is None:
            self.stream.shut_down()
        self.broker.schedule(now + LINGER, self.close)
        self.watch()

    def close(self, now: float) -> None:
        """The connection is over."""
        if self.open:
            self.open = False
            self.reactor.forget(self)
            self.stream.close()
            self.broker.lost(self.channel, now)
            self.channel.connection = None
            self.outlet.connection = None
