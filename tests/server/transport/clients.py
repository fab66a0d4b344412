"""Peers that speak each transport, blocking, to be run in a thread beside the loop."""

from __future__ import annotations

import socket
import ssl
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    Request,
)

from headgate.config.addresses import Address

from .certificates import TestCertificates

LIMIT = 20.0


class Client(Protocol):
    """The peer's end of a connection."""

    socket: socket.socket

    def send(self, data: bytes) -> None: ...

    def receive(self) -> bytes:
        """Some bytes, or `b""` once the broker has said goodbye."""

    def goodbye(self) -> None:
        """Say that no more will be sent, as the protocol has it; receiving goes on where it can."""

    def close(self) -> None: ...


def receive_exactly(client: Client, size: int) -> bytes:
    """That many bytes, or fewer if the broker ends."""
    parts = bytearray()
    while len(parts) < size and (data := client.receive()):
        parts += data
    return bytes(parts)


def receive_all(client: Client) -> bytes:
    """Everything until the broker ends."""
    parts = bytearray()
    while data := client.receive():
        parts += data
    return bytes(parts)


def connect_socket(address: Address, small: bool = False) -> socket.socket:
    """A connected socket, on demand with small kernel buffers.

    A window far below the loopback's segment size would make TCP crawl in steps of its timers.
    """
    family = socket.AF_UNIX if address.path else socket.AF_INET
    if ":" in address.host:
        family = socket.AF_INET6
    connected = socket.socket(family, socket.SOCK_STREAM)
    if small:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    if not address.path:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.settimeout(LIMIT)
    connected.connect(address.path or (address.host, address.port))
    return connected


def client_context(
    certificates: TestCertificates, *, with_certificate: bool = False
) -> ssl.SSLContext:
    """Trusts the test's authority and checks the server's name."""
    context = ssl.create_default_context(cafile=certificates.ca)
    if with_certificate:
        context.load_cert_chain(certificates.client, certificates.client_key)
    return context


class PlainClient:
    """Nothing between the socket and MQTT."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        return self.socket.recv(65536)

    def goodbye(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.socket.close()


class TlsClient(PlainClient):
    """TLS by OpenSSL, through Python's own socket wrapper."""

    def __init__(
        self,
        connected: socket.socket,
        context: ssl.SSLContext,
        session: ssl.SSLSession | None = None,
    ) -> None:
        self.tls = context.wrap_socket(connected, server_hostname="localhost", session=session)
        super().__init__(self.tls)

    def goodbye(self) -> None:
        self.socket = self.tls.unwrap()


class DuplexTlsClient(PlainClient):
    """TLS whose two directions may be used by two threads, which an SSLSocket does not allow.

    OpenSSL works on memory under a lock; the sockets' waiting happens outside of it.
    """

    def __init__(self, connected: socket.socket, context: ssl.SSLContext) -> None:
        super().__init__(connected)
        self._lock = threading.Lock()
        self._order = threading.Lock()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._session = context.wrap_bio(
            self._incoming, self._outgoing, server_hostname="localhost"
        )
        while True:
            try:
                self._session.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.socket.sendall(self._outgoing.read())
                self._incoming.write(self.socket.recv(65536))
        self.socket.sendall(self._outgoing.read())

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        for start in range(0, len(data), 65536):
            with self._order:
                with self._lock:
                    self._session.write(view[start : start + 65536])
                    ciphertext = self._outgoing.read()
                self.socket.sendall(ciphertext)

    def receive(self) -> bytes:
        while True:
            with self._lock:
                try:
                    return self._session.read(65536)
                except ssl.SSLWantReadError:
                    pass
            ciphertext = self.socket.recv(65536)
            if not ciphertext:
                return b""
            with self._lock:
                self._incoming.write(ciphertext)

    def goodbye(self) -> None:
        with self._lock:
            with suppress(ssl.SSLWantReadError):
                self._session.unwrap()
            ciphertext = self._outgoing.read()
        self.socket.sendall(ciphertext)


class RefusedError(Exception):
    """The broker did not open the WebSocket."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP status {status}")
        self.status = status


class WebSocketClient:
    """RFC 6455 by wsproto, over another client."""

    def __init__(
        self,
        below: PlainClient,
        path: str = "/mqtt",
        subprotocols: Sequence[str] = ("mqtt",),
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        self.below = below
        self.socket = below.socket
        self.protocol = WSConnection(ConnectionType.CLIENT)
        self.events: deque[Event] = deque()
        below.send(
            self.protocol.send(
                Request(
                    host="localhost",
                    target=path,
                    subprotocols=list(subprotocols),
                    extra_headers=list(headers),
                )
            )
        )
        opened = self.next_event()
        if isinstance(opened, RejectConnection):
            raise RefusedError(opened.status_code)
        assert isinstance(opened, AcceptConnection)
        self.subprotocol = opened.subprotocol

    def next_event(self) -> Event | None:
        """The broker's next frame; None when the connection is gone."""
        while not self.events:
            data = self.below.receive()
            if not data:
                return None
            self.protocol.receive_data(data)
            self.events.extend(self.protocol.events())
        return self.events.popleft()

    def send(self, data: bytes) -> None:
        # Frames of odd sizes: neither packets nor the broker's reads are aligned with them.
        for start in range(0, len(data), 50_021):
            self.send_event(BytesMessage(data=data[start : start + 50_021]))

    def send_event(self, event: Event) -> None:
        self.below.send(self.protocol.send(event))

    def receive(self) -> bytes:
        while True:
            event = self.next_event()
            if isinstance(event, BytesMessage):
                if event.data:
                    return bytes(event.data)
            elif event is None or isinstance(event, CloseConnection):
                return b""
            else:
                assert isinstance(event, Ping | Pong), event

    def goodbye(self) -> None:
        self.send_event(CloseConnection(code=1000))

    def close(self) -> None:
        self.below.close()
