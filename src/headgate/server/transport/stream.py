"""The face that every transport shows to the reactor."""

from __future__ import annotations

from typing import Protocol

from headgate.core.access import Peer
from headgate.errors import HeadgateError

READ_SIZE = 64 * 1024
"""The most that one read takes from the kernel: hundreds of packets for one system call.

More would not be faster, and what is read is processed before anything urgent can overtake it.
"""


class StreamError(HeadgateError):
    """The peer broke the transport below MQTT (TLS, HTTP, WebSocket), told in one sentence.

    What the protocol owes the peer (a TLS alert, an HTTP status, a WebSocket close frame) was
    already written as far as the kernel took it. Only `close()` remains to be called.
    """


class Stream(Protocol):
    """A non-blocking, ordered stream of bytes to and from one peer.

    Level-triggered polling is all a stream needs: a `read()` leaves nothing readable behind in
    user space, unless `has_pending` says so. Poll for writing while `wants_write` is true or the
    caller itself has something left to write.
    """

    @property
    def peer(self) -> Peer:
        """Who is at the other end. TLS replaces it once, when its handshake is done."""

    @property
    def wants_write(self) -> bool:
        """The stream itself has bytes to write; `write(b"")` moves them along."""

    @property
    def has_pending(self) -> bool:
        """`read()` has more to give although the socket may not poll as readable."""

    def fileno(self) -> int: ...

    def read(self) -> bytes | None:
        """Bytes for MQTT; None if there are none now; `b""` if the peer will send no more.

        Returns about `READ_SIZE` bytes at most. A handshake below MQTT progresses in here.
        Raises `OSError` or `StreamError`; then only `close()` may follow.
        """

    def write(self, data: bytes | memoryview) -> int:
        """Take as much of `data` as may go now, and return how much; 0 if the kernel is full.

        The stream owns what it has taken, even where the kernel has not: the caller may forget or
        change its buffer, and may pass other bytes the next time. What a stream owns is bounded.
        Raises `OSError` or `StreamError`; then only `close()` may follow.
        """

    def shut_down(self) -> None:
        """Say goodbye after all that was taken, and send no more. Best effort, never raises.

        While `wants_write` stays true, part of it still waits for the kernel.
        """

    def close(self) -> None:
        """Give the descriptor back. What the kernel has not taken is lost. Never raises."""
