"""A broker that does nothing: it shows how fast the driver and the kernel are without one.

It answers CONNECT and SUBSCRIBE, looks at the topic of the first message of a connection, and
from then on passes bytes through and returns acknowledgements in runs. It keeps no state and is
wrong as a broker; as a measure of the harness it says: a real broker's figure that comes near
this one is limited by the driver.
"""

import contextlib
import select
import socket
import sys

from bench import packets
from bench.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Run

_READ = 128 * 1024
_ANSWER_TO_PUBLISH = {0x32: PUBACK, 0x34: PUBREC}
_ANSWER = {PUBREL: PUBCOMP, PUBREC: PUBREL}


class Connection:
    """One client of the relay."""

    def __init__(self, relay: "Relay", accepted: socket.socket) -> None:
        self.socket = accepted
        self._relay = relay
        self._buffer = bytearray(_READ)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._outgoing = bytearray()
        self._sizes = dict.fromkeys((PUBACK, PUBREC, PUBREL, PUBCOMP), 4)
        self._offset = 0
        self._route: list[Connection] = []

    def readable(self) -> bool:
        """Serve what arrived; False when the client left."""
        try:
            received = self.socket.recv_into(self._view[self._filled :])
        except ConnectionError:
            return False
        if not received:
            return False
        end = self._filled + received
        done = 0
        if self._buffer[0] not in self._sizes:
            done = self._meet(end)
        if not done and self._buffer[0] in self._sizes:
            found, done = packets.runs(self._buffer, end, self._sizes)
            for run in found:
                self._pass(run)
        self._filled = end - done
        if self._filled and done:
            self._buffer[: self._filled] = self._buffer[done:end]
        return True

    def _meet(self, end: int) -> int:
        """The first packet of its kind: bytes done with, none if such packets come in runs.

        Clients wait for the answer to CONNECT and SUBSCRIBE, so nothing follows those.
        """
        head = self._buffer[0]
        length, at, shift = 0, 1, 0
        while at < end:
            digit = self._buffer[at]
            length |= (digit & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if digit < 0x80:
                break
        if at + length > end or end < 2:
            return 0  # the rest is still to come
        if head & 0xF0 == 0x30:
            topic_end = at + 2 + int.from_bytes(self._buffer[at : at + 2], "big")
            self._sizes[head] = at + length
            self._offset = topic_end
            self._route = self._relay.subscribers(self._buffer[at + 2 : topic_end].decode())
            return 0
        if head == 0x10:
            self.send(packets.CONNACK_ACCEPTED)
        elif head == 0x82:
            filter_end = at + 4 + int.from_bytes(self._buffer[at + 2 : at + 4], "big")
            self._relay.subscribe(self, self._buffer[at + 4 : filter_end].decode())
            self.send(packets.suback(1, self._buffer[filter_end]))
        return at + length

    def _pass(self, run: Run) -> None:
        size = self._sizes[run.head]
        if run.head & 0xF0 == 0x30:
            data = self._view[run.start : run.start + run.length * size]
            for subscriber in self._route:
                subscriber.send(data)
            if answer := _ANSWER_TO_PUBLISH.get(run.head):
                self.send(packets.answers(self._buffer, run, size, self._offset, answer))
        elif answer := _ANSWER.get(run.head):
            self.send(packets.answers(self._buffer, run, 4, 2, answer))

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send or keep what the kernel does not take."""
        if self._outgoing:
            self._outgoing += data
            return
        sent = 0
        with contextlib.suppress(BlockingIOError, ConnectionError):
            sent = self.socket.send(data)
        if sent < len(data):
            self._outgoing += memoryview(data)[sent:]
            self._relay.watch(self, select.EPOLLIN | select.EPOLLOUT)

    def flush(self) -> None:
        """Send what was kept."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            del self._outgoing[: self.socket.send(self._outgoing)]
        if not self._outgoing:
            self._relay.watch(self, select.EPOLLIN)


class Relay:
    """The listener and its connections."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._epoll = select.epoll()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._connections: dict[int, Connection] = {}
        self._subscribers: dict[str, list[Connection]] = {}

    def subscribe(self, connection: Connection, topic_filter: str) -> None:
        """Remember; nobody ever unsubscribes from a relay."""
        self._subscribers.setdefault(topic_filter, []).append(connection)

    def subscribers(self, topic: str) -> list[Connection]:
        """Whose filter is the topic, or has `+` for its last level: the shapes need no more."""
        parent = topic.rpartition("/")[0]
        return self._subscribers.get(topic, []) + self._subscribers.get(f"{parent}/+", [])

    def watch(self, connection: Connection, events: int) -> None:
        """Ask for these events."""
        self._epoll.modify(connection.socket.fileno(), events)

    def serve(self) -> None:
        """Until killed."""
        while True:
            for descriptor, event in self._epoll.poll():
                connection = self._connections.get(descriptor)
                if connection is None:
                    self._accept()
                    continue
                if event & select.EPOLLOUT:
                    connection.flush()
                if event & ~select.EPOLLOUT and not connection.readable():
                    del self._connections[descriptor]
                    self._epoll.unregister(descriptor)
                    connection.socket.close()

    def _accept(self) -> None:
        accepted, _ = self._listener.accept()
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections[accepted.fileno()] = Connection(self, accepted)
        self._epoll.register(accepted.fileno(), select.EPOLLIN)


if __name__ == "__main__":
    Relay(int(sys.argv[1])).serve()
