"""What the kernel knows of a TCP connection (struct tcp_info, linux/tcp.h)."""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from typing import NamedTuple

from headgate.core.link import HEADERS

LAYOUT = struct.Struct("=24xI92xQ20xI24xQ8xI")
"""Up to `tcpi_delivered` (Linux 4.18); what lies between is skipped."""
COUNT = struct.Struct("i")


class Transfer(NamedTuple):
    """One connection at one moment."""

    in_flight: int
    """Segments that were sent and not acknowledged."""
    acknowledged: int
    """Bytes, since the beginning."""
    shortest: int
    """Microseconds of the shortest round trip."""
    closed: int
    """Microseconds, since the beginning, in which the receiver's window did not let us send."""
    delivered: int
    """Segments that arrived, since the beginning."""

    @property
    def on_wire(self) -> int:
        """Bytes acknowledged since the beginning, with their headers."""
        return self.acknowledged + HEADERS * self.delivered


def transfer(descriptor: int) -> Transfer | None:
    """None for what is not TCP."""
    borrowed = socket.socket(fileno=descriptor)
    try:
        data = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:
        return None
    finally:
        borrowed.detach()
    return Transfer._make(LAYOUT.unpack_from(data)) if len(data) >= LAYOUT.size else None


def unacknowledged(descriptor: int) -> int:
    """Bytes in the kernel that the peer has not acknowledged (tcp(7), SIOCOUTQ)."""
    try:
        answer: bytes = fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(COUNT.size))
    except OSError:
        return 0
    return int(COUNT.unpack(answer)[0])
