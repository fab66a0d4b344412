"""TLS over a TCP socket, with the ciphertext in our own hands.

OpenSSL works on two memory buffers and never touches the socket. Against wrapping the socket
itself that was measured (Python 3.11, OpenSSL 3.0) to cost the same for bulk data and a quarter of
the CPU time for many small records, because one system call brings hundreds of records instead of
two bringing one. It also takes away two traps: decrypted bytes that hide from epoll inside OpenSSL,
and the rule that a write which could not finish must be repeated with the very same bytes.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from msgspec.structs import replace

from headgate.core.access import Peer
from headgate.server.transport.stream import READ_SIZE, StreamError

RECORD = 16 * 1024
"""The largest TLS record, and so the most that is encrypted before the kernel has room for it:
what is encrypted can no longer be overtaken by something urgent."""

_FEED = 64 * 1024
"""Ciphertext handed to OpenSSL at once. Its buffer never shrinks, so this is memory per peer."""

# The broker has one thread, and no read leaves anything in these: all streams share them.
# Plaintext may also hold a record whose beginning came with the read before.
_ciphertext = memoryview(bytearray(READ_SIZE))
_plaintext = memoryview(bytearray(READ_SIZE + 2 * RECORD))

_EXPLANATIONS = {
    "HTTP_REQUEST": "it sent HTTP, this listener expects TLS",
    "WRONG_VERSION_NUMBER": "it sent something that is not TLS",
    "UNSUPPORTED_PROTOCOL": "its TLS version is older than this listener accepts",
    "NO_SHARED_CIPHER": "it offers no cipher that this listener accepts",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has no certificate, this listener requires one",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the authority of our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it refuses our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it refuses our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired",
}


class TlsStream:
    """The server's side of a TLS connection. The handshake progresses within `read()`."""

    __slots__ = (
        "_ended",
        "_established",
        "_incoming",
        "_outgoing",
        "_session",
        "_shut_down",
        "_socket",
        "_unsent",
        "has_pending",
        "peer",
    )

    def __init__(self, connected: socket.socket, peer: Peer, context: ssl.SSLContext) -> None:
        """Own `connected`; `context` is kept until the connection ends."""
        connected.setblocking(False)
        self._socket = connected
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unsent = b""  # ciphertext that the kernel had no room for
        self._established = False
        self._ended = False  # the peer said close_notify
        self._shut_down = False  # and so did we
        self.has_pending = False
        self.peer = peer

    @property
    def wants_write(self) -> bool:
        return bool(self._unsent)

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> bytes | None:
        if self._ended:
            self.has_pending = False
            return b""
        try:
            received = self._socket.recv_into(_ciphertext)
        except BlockingIOError:
            return None
        if received == 0:
            # Without close_notify the end may be an attacker's. MQTT does not care: only a
            # DISCONNECT packet ends a connection in a regular way [MQTT-3.14.4-1].
            return b""
        if self._shut_down:
            return None
        size = self._decrypt(received)
        self._flush_quietly()
        if size:
            self.has_pending = self._ended  # nobody polls for an end that we have read already
            return bytes(_plaintext[:size])
        return b"" if self._ended else None

    def write(self, data: bytes | memoryview) -> int:
        if not self._flush() or not self._established:
            return 0
        size = len(data)
        view = memoryview(data)
        taken = 0
        while taken < size:
            try:
                taken += self._session.write(view[taken : taken + RECORD])
            except ssl.SSLError as error:
                raise self._failure(error) from None
            if not self._flush():
                break
        return taken

    def shut_down(self) -> None:
        if self._shut_down:
            return
        self._shut_down = True
        with suppress(ssl.SSLError):  # SSLWantRead: nobody waits for the peer's (RFC 8446 §6.1)
            self._session.unwrap()
        self._flush_quietly()

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def _decrypt(self, received: int) -> int:
        """Decrypt what was received into the shared buffer and return the size of it."""
        session, incoming = self._session, self._incoming
        size = 0
        for start in range(0, received, _FEED):
            incoming.write(_ciphertext[start : min(start + _FEED, received)])
            try:
                if not self._established:
                    self._shake_hands()
                while incoming.pending or session.pending():
                    got = cast(int, session.read(RECORD, _plaintext[size:]))
                    if not got:
                        self._ended = True
                        return size
                    size += got
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                self._flush_quietly()  # the alert tells the peer why
                raise self._failure(error) from None
        return size

    def _shake_hands(self) -> None:
        self._session.do_handshake()
        self._established = True
        name = _common_name(self._session.getpeercert())
        if name is not None:
            self.peer = replace(self.peer, certificate_name=name)

    def _flush(self) -> bool:
        """Hand ciphertext to the kernel; True if none is left."""
        while True:
            if not self._unsent:
                if not self._outgoing.pending:
                    break
                self._unsent = self._outgoing.read()
            try:
                sent = self._socket.send(self._unsent)
            except BlockingIOError:
                return False
            self._unsent = self._unsent[sent:]
        if self._shut_down:
            with suppress(OSError):  # the peer was faster
                self._socket.shutdown(socket.SHUT_WR)
        return True

    def _flush_quietly(self) -> None:
        """Flush where an error must not hide what was read before it; the next call reports it."""
        with suppress(OSError):
            self._flush()

    def _failure(self, error: ssl.SSLError) -> StreamError:
        if isinstance(error, ssl.SSLCertVerificationError):
            why = f"its certificate is not accepted: {error.verify_message}"
        else:
            reason = error.reason or "unknown error"
            why = _EXPLANATIONS.get(reason, reason.lower().replace("_", " "))
        return StreamError(f"TLS with {self.peer.address} failed: {why}")


def _common_name(certificate: Mapping[str, Any] | None) -> str | None:
    """The common name of a verified certificate; OpenSSL gives no fields of any other."""
    for group in (certificate or {}).get("subject", ()):
        for key, value in group:
            if key == "commonName":
                return str(value)
    return None
