"""A raw-socket MQTT client: blocking while a shape is set up, driven by epoll while it runs."""

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count

from bench import packets
from bench.target import Effort

SETUP_TIMEOUT = 20.0
RECEIVE_SIZE = 256 * 1024

_client_numbers = count()
# One buffer serves every client that needs no memory between two reads.
SCRATCH = bytearray(RECEIVE_SIZE)


class BrokerError(Exception):
    """The broker closed a connection, refused a request or did not answer in time."""


class Client:
    """One connection. Subclasses say in `readable` what the bytes that arrive mean."""

    def __init__(
        self,
        address: tuple[str, int],
        keep_alive: int = 0,
        source: str = "",
        client_id: str = "",
        lasting: bool = False,
    ) -> None:
        try:
            self.socket = socket.create_connection(
                address, SETUP_TIMEOUT, (source, 0) if source else None
            )
        except OSError as error:
            raise BrokerError(f"cannot connect to {address[0]}:{address[1]}: {error}") from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unsent: deque[memoryview] = deque()
        self._epoll: select.epoll | None = None
        name = client_id or f"bench-{next(_client_numbers)}"
        self.request(packets.connect(name, keep_alive, lasting), packets.CONNACK_ACCEPTED)

    # -- while the shape is set up: blocking ---------------------------------------------

    def request(self, packet: bytes, expected: bytes) -> None:
        """Send one packet and insist on one exact answer."""
        self.socket.sendall(packet)
        self.expect(expected)

    def expect(self, expected: bytes) -> None:
        """Receive exactly these bytes."""
        try:
            received = self.receive_exactly(len(expected))
        except TimeoutError:
            raise BrokerError(f"no answer within {SETUP_TIMEOUT:.0f} s") from None
        if received != expected:
            raise BrokerError(f"expected {expected[:16].hex()}…, received {received[:16].hex()}…")

    def receive_exactly(self, size: int) -> bytes:
        """Block until `size` bytes arrived."""
        received = bytearray()
        while len(received) < size:
            part = self.socket.recv(size - len(received))
            if not part:
                raise BrokerError("the broker closed a connection")
            received += part
        return bytes(received)

    def subscribe(self, filters: Sequence[str], qos: int) -> None:
        """Subscribe and insist on the QoS asked for."""
        self.request(packets.subscribe(filters, qos), packets.suback(len(filters), qos))

    # -- while it runs: never blocks -----------------------------------------------------

    def attach(self, epoll: select.epoll) -> None:
        """Leave blocking mode."""
        self.socket.setblocking(False)
        self._epoll = epoll
        epoll.register(self.socket.fileno(), select.EPOLLIN)

    @property
    def congested(self) -> bool:
        """Whether bytes wait because the kernel's buffer is full."""
        return bool(self._unsent)

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send whole packets, in order; what the kernel does not take waits here."""
        if self._unsent:
            self._unsent.append(memoryview(data))
            return
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self._unsent.append(memoryview(data)[sent:])
            self._watch(select.EPOLLIN | select.EPOLLOUT)

    def flush(self) -> None:
        """Send what waited."""
        while self._unsent:
            data = self._unsent[0]
            try:
                sent = self.socket.send(data)
            except BlockingIOError:
                return
            if sent < len(data):
                self._unsent[0] = data[sent:]
                return
            self._unsent.popleft()
        self._watch(select.EPOLLIN)

    def _watch(self, events: int) -> None:
        assert self._epoll is not None
        self._epoll.modify(self.socket.fileno(), events)

    def receive(self, buffer: bytearray | memoryview) -> int:
        """Read what is there, at most the buffer's size."""
        try:
            received = self.socket.recv_into(buffer)
        except BlockingIOError:
            return 0
        except ConnectionError as error:
            raise BrokerError(f"a connection broke: {error}") from None
        if not received:
            raise BrokerError("the broker closed a connection")
        return received

    def readable(self) -> None:
        """Bytes arrived."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave without ceremony; the broker of the shape ends with it."""
        self.socket.close()


class PacketClient(Client):
    """A client whose incoming packets matter one run at a time."""

    sizes: dict[int, int]  # head of each packet that may arrive → its size

    def __init__(
        self, address: tuple[str, int], client_id: str = "", lasting: bool = False
    ) -> None:
        super().__init__(address, client_id=client_id, lasting=lasting)
        self.sizes = {}
        self._buffer = bytearray(64 * 1024)
        self._view = memoryview(self._buffer)
        self._filled = 0

    def readable(self) -> None:
        """Answer every run of whole packets with one write, keep the part of the last packet."""
        buffer, filled = self._buffer, self._filled
        end = filled + self.receive(self._view[filled:] if filled else buffer)
        if end == self.sizes.get(buffer[0]):  # one packet, as always in single-message shapes
            self._filled = 0
            reply = self.arrived(buffer, packets.Run(buffer[0], 0, 1))
        else:
            found, done = packets.runs(buffer, end, self.sizes)
            reply = b"".join([self.arrived(buffer, run) for run in found])
            self._filled = end - done
            if self._filled and done:
                buffer[: self._filled] = buffer[done:end]
        if reply:
            self.send(reply)

    def arrived(self, buffer: bytearray, run: packets.Run) -> bytes | bytearray:
        """A run of equal packets arrived: what to answer."""
        raise NotImplementedError


class Loop:
    """The driver's event loop: level-triggered epoll, one read per ready client and turn."""

    def __init__(self, clients: Sequence[Client]) -> None:
        self.epoll = select.epoll()
        self.waited = 0.0
        self._clients = {client.socket.fileno(): client for client in clients}
        for client in clients:
            client.attach(self.epoll)

    def turn(self, timeout: float = 0.05) -> bool:
        """Serve every client that is ready; whether there was one."""
        begin = time.perf_counter()
        events = self.epoll.poll(timeout)
        self.waited += time.perf_counter() - begin
        for descriptor, event in events:
            client = self._clients[descriptor]
            if event & select.EPOLLOUT:
                client.flush()
            if event & ~select.EPOLLOUT:
                client.readable()
        return bool(events)

    def close(self) -> None:
        """Close every client."""
        self.epoll.close()
        for client in self._clients.values():
            client.close()


def drain(loop: Loop, effort: Effort, done: Callable[[], bool]) -> None:
    """Wait for what is still under way, not for ever: what a broker dropped never comes."""
    limit = time.perf_counter() + effort.drain
    quiet = time.perf_counter() + effort.silence
    while not done() and (now := time.perf_counter()) < min(limit, quiet):
        if loop.turn():
            quiet = now + effort.silence
