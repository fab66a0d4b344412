"""MQTT over WebSocket (MQTT 5 §6, RFC 6455), on top of a plain or a TLS stream."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from headgate.core.access import Peer
from headgate.server.transport.stream import Stream, StreamError
from headgate.server.transport.websocket_frames import (
    CloseCode,
    FrameDecoder,
    FrameError,
    binary_header,
    close_frame,
    pong_frame,
)
from headgate.server.transport.websocket_handshake import OpeningHandshake

FRAME = 16 * 1024
"""The most payload put into one frame: once begun, a frame has to be finished before anything
urgent, and what the kernel does not take of it waits here."""


class WebSocketStream:
    """The server's side of a WebSocket whose binary messages are one stream of bytes.

    MQTT packets and frames need not be aligned [MQTT-6.0.0-2], so neither is waited for.
    """

    __slots__ = (
        "_below",
        "_closing",
        "_decoder",
        "_ended",
        "_handshake",
        "_unsent",
        "has_pending",
    )

    def __init__(
        self, below: Stream, path: str = "/mqtt", origins: Collection[str] = frozenset()
    ) -> None:
        """Own `below`; serve `path`, to pages of `origins` only if there are any."""
        self._below = below
        self._handshake: OpeningHandshake | None = OpeningHandshake(path, origins)
        self._decoder = FrameDecoder()
        self._unsent = b""  # the end of a frame that the stream below had no room for
        self._closing = b""  # our close frame, as long as it is not on its way
        self._ended = False  # no more frames go out
        self.has_pending = False

    @property
    def peer(self) -> Peer:
        return self._below.peer

    @property
    def wants_write(self) -> bool:
        return bool(self._unsent or self._closing or self._decoder.ping is not None) or (
            self._below.wants_write
        )

    def fileno(self) -> int:
        return self._below.fileno()

    def read(self) -> bytes | None:
        if self._decoder.closed is not None:
            return self._answer_close()
        data = self._below.read()
        self.has_pending = self._below.has_pending
        if not data:
            return data
        if self._handshake is not None:
            data = self._open(self._handshake, data)
        payload = self._decode(data)
        if self._decoder.ping is not None:
            self._flush_quietly()
        if payload:
            self.has_pending |= self._decoder.closed is not None  # to be reported by the next read
            return payload
        return None if self._decoder.closed is None else self._answer_close()

    def write(self, data: bytes | memoryview) -> int:
        if not self._flush() or self._handshake is not None:
            return 0
        if self._ended and data:
            raise StreamError("the WebSocket is closed")
        view = memoryview(data)
        size = len(view)
        taken = 0
        while taken < size:
            payload = view[taken : taken + FRAME]
            frame = binary_header(len(payload)) + payload
            sent = self._below.write(frame)
            if sent == 0:
                break
            taken += len(payload)
            if sent < len(frame):
                self._unsent = frame[sent:]
                break
        return taken

    def shut_down(self) -> None:
        self._say_goodbye(CloseCode.NORMAL)

    def close(self) -> None:
        self._below.close()

    def _open(self, handshake: OpeningHandshake, data: bytes) -> bytes:
        """Progress in the handshake; returns the frames that came after it."""
        answer = handshake.receive(data)
        if answer is None:
            return b""
        self._unsent = answer.reply
        if answer.refusal:
            self._ended = True
            self._flush_quietly()
            raise StreamError(f"WebSocket with {self.peer.address} refused: {answer.refusal}")
        self._handshake = None
        self._flush_quietly()
        return answer.rest

    def _decode(self, data: bytes) -> bytes:
        try:
            return self._decoder.decode(data)
        except FrameError as error:
            self._decoder.ping = None
            self._say_goodbye(error.code)
            raise StreamError(f"WebSocket with {self.peer.address} failed: {error}") from None

    def _answer_close(self) -> bytes:
        """Echo the peer's close frame (RFC 6455 §5.5.1), after all that went before it."""
        assert self._decoder.closed is not None
        self.has_pending = False
        self._say_goodbye(self._decoder.closed)
        return b""

    def _say_goodbye(self, code: int) -> None:
        if self._ended:
            return
        self._ended = True
        if self._handshake is None:
            self._closing = close_frame(code)
        self._flush_quietly()

    def _flush_quietly(self) -> None:
        """Flush where an error must not hide what was read before it; the next write reports it."""
        with suppress(OSError, StreamError):
            self._flush()

    def _flush(self) -> bool:
        """Hand over what waits here, in order; True if nothing is left."""
        while True:
            if not self._unsent:
                self._unsent = self._next_control_frame()
                if not self._unsent:
                    break
            sent = self._below.write(self._unsent)
            if sent == 0:
                return False
            self._unsent = self._unsent[sent:]
        if self._ended:
            self._below.shut_down()
        if self._below.wants_write:
            self._below.write(b"")
        return not self._below.wants_write

    def _next_control_frame(self) -> bytes:
        ping = self._decoder.ping
        if ping is not None:
            self._decoder.ping = None
            return pong_frame(ping)
        frame, self._closing = self._closing, b""
        return frame
