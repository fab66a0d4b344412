"""TCP and Unix sockets, with nothing in between: one system call for a read, one for a write."""

from __future__ import annotations

import socket
from contextlib import suppress

from headgate.core.access import Peer
from headgate.server.transport.stream import READ_SIZE

SMALL_READ = 4096
"""What a connection reads at once that has little to say."""


class PlainStream:
    """A connected stream socket. It keeps no bytes of its own."""

    def __init__(self, connected: socket.socket, peer: Peer) -> None:
        """Own `connected`. Its options are the listener's: Linux hands them on at accept."""
        connected.setblocking(False)
        self._socket = connected
        self._size = SMALL_READ
        self.peer = peer
        self.wants_write = False
        self.has_pending = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> bytes | None:
        # A large buffer costs page faults: it is for connections that fill a small one.
        try:
            data = self._socket.recv(self._size)
        except BlockingIOError:
            return None
        self._size = READ_SIZE if len(data) >= SMALL_READ else SMALL_READ
        return data

    def write(self, data: bytes | memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    def shut_down(self) -> None:
        with suppress(OSError):  # the peer was faster
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        with suppress(OSError):  # a reset can surface here; the descriptor is gone all the same
            self._socket.close()


def set_options(sock: socket.socket, notsent_lowat: int) -> None:
    """Set what every MQTT connection wants, on a connected or a listening TCP socket.

    The broker batches by itself, so Nagle's delay buys nothing. A small `notsent_lowat` keeps the
    backlog in the broker's queues, where an urgent message can still overtake it; 0 leaves the
    kernel's default. Keep-alive finds peers that vanished without MQTT keep-alive.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if notsent_lowat:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, notsent_lowat)
