"""TCP and Unix sockets, with nothing in between: one system call for a read, one for a write."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

try:
    import cython
except ModuleNotFoundError:  # compiled or not, it is not needed to run
    from headgate import uncompiled as cython

from headgate.core.access import Peer
from headgate.server.transport.stream import READ_SIZE

SMALL_READ = 4096
"""What a connection reads at once that has little to say."""


class PlainStream:
    """A connected stream socket. It keeps no bytes of its own.

    It holds the bare descriptor: a socket object costs two system calls more for each connection,
    and as much memory as the rest of the stream.
    """

    def __init__(self, descriptor: int, peer: Peer) -> None:
        """Own `descriptor`. Its options are the listener's: Linux hands them on at accept."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._size = SMALL_READ
        self.peer = peer
        self.wants_write = False
        self.has_pending = False

    def fileno(self) -> int:
        return self._descriptor

    def read(self) -> bytes | None:
        # A large buffer costs page faults: it is for connections that fill a small one.
        data: bytes | None
        if cython.compiled and self._size == SMALL_READ:
            data = receive(self._descriptor)  # type: ignore[name-defined]  # noqa: F821 (plain.pxd)
            if data is None:
                return None
        else:
            try:
                data = os.read(self._descriptor, self._size)
            except BlockingIOError:
                return None
        self._size = READ_SIZE if len(data) >= SMALL_READ else SMALL_READ
        return data

    def write(self, data: bytes | memoryview) -> int:
        if cython.compiled and len(data) <= SMALL_READ and isinstance(data, bytes):
            return transmit(self._descriptor, data)  # type: ignore[name-defined, no-any-return]  # noqa: F821
        try:
            return os.write(self._descriptor, data)  # Python ignores SIGPIPE
        except BlockingIOError:
            return 0

    def shut_down(self) -> None:
        with suppress(OSError):  # the peer was faster
            connected = socket.socket(fileno=self._descriptor)
            try:
                connected.shutdown(socket.SHUT_WR)
            finally:
                connected.detach()

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            with suppress(OSError):  # a reset can surface here; the descriptor is gone all the same
                os.close(descriptor)


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
