"""The thread between the loop and the encoder: it waits for the pipe so that the loop need not."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple

import msgspec

from headgate.server.recorder import frames
from headgate.server.recorder.settings import Settings

log = logging.getLogger(__name__)

PATIENCE = 30.0
"""Seconds that the encoder has to finish its segments when the broker ends."""

PIPE = 1024 * 1024
"""Bytes in the pipe: names of a block's flows and topics in one piece."""

BREATH = 10.0
"""Seconds before an encoder that failed is started again."""

MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 26), "MALLOC_TRIM_THRESHOLD_": str(1 << 26)}
"""The encoder keeps what it frees: columns come and go, and fresh memory costs as much as they."""


class Item(NamedTuple):
    """A frame to write."""

    data: bytes
    records: int
    block: int = -1
    """The number of the block that the encoder is going to read; -1 if there is none."""
    done: Callable[[], None] | None = None


class Feeder:
    """Starts the encoder, feeds it, and starts it again if it fails."""

    def __init__(self, settings: Settings) -> None:
        self.lost = 0
        """Records that no encoder took."""
        self._settings = settings
        self._queue: SimpleQueue[Item | None] = SimpleQueue()
        self._encoder: subprocess.Popen[bytes] | None = None
        self._rests_until = 0.0
        self._lent: dict[int, int] = {}
        """Blocks that the encoder has not given back, and how many records they have."""
        self._back: deque[int] = deque()
        self._returns = -1
        self._looking = threading.Lock()
        """Held by whoever reads, opens or closes the pipe by which blocks come back."""
        self._thread = threading.Thread(target=self._feed, name="headgate-feeder", daemon=True)
        self._thread.start()

    def put(self, data: bytes, records: int, done: Callable[[], None]) -> None:
        """Have a frame of so many records written.

        When it is not needed any more `done` is called, in the other thread.
        """
        self._queue.put(Item(data, records, done=done))

    def lend(self, data: bytes, records: int, block: int) -> None:
        """Have a block of so many records read; `reclaim` says when that is done."""
        self._queue.put(Item(data, records, block))

    def reclaim(self) -> list[int]:
        """Blocks that can be filled again. Waits for nobody."""
        if self._looking.acquire(blocking=False):
            try:
                if not self._look():
                    # Only whoever writes would notice, and with no free block nobody does.
                    self._close_returns()
                    self._queue.put(Item(b"", 0))
            finally:
                self._looking.release()
        back = []
        while self._back:
            back.append(self._back.popleft())
        return back

    def close(self) -> None:
        """Write what was put, and wait until the last segments are published."""
        self._rests_until = 0.0
        self._queue.put(None)
        self._thread.join(PATIENCE)
        if not self._finish() and self._settings.spool:
            # What was captured is safe, but until the next start nobody would see it.
            self._start()
            self._finish()
        with self._looking:
            self._close_returns()

    def _finish(self) -> bool:
        """Have the encoder end; False if there was none, or it failed."""
        encoder = self._encoder
        self._encoder = None
        if encoder is None:
            return False
        assert encoder.stdin is not None
        encoder.stdin.close()
        try:
            return encoder.wait(PATIENCE) == 0
        except subprocess.TimeoutExpired:
            log.error("the encoder of the records does not end: it goes on by itself")
            return True

    def _feed(self) -> None:
        self._start()
        while (item := self._queue.get()) is not None:
            try:
                if item.data:
                    self._write(item)
                elif self._encoder is not None and self._returns < 0:
                    raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            except OSError as error:
                self._bury(error)
            finally:
                if item.done is not None:
                    item.done()

    def _write(self, item: Item) -> None:
        """Feed the encoder, if there is one for now."""
        if self._encoder is None and time.monotonic() >= self._rests_until:
            self._start()
        if item.block >= 0:
            self._lent[item.block] = item.records
        if self._encoder is None:
            self._lose(item)
            return
        assert self._encoder.stdin is not None
        try:
            frames.write(self._encoder.stdin.fileno(), item.data)
        except OSError:
            self._lose(item)
            raise

    def _lose(self, item: Item) -> None:
        if item.block < 0:
            self.lost += item.records
        else:
            self._write_off(item.block)

    def _write_off(self, block: int) -> None:
        self.lost += self._lent.pop(block)
        self._back.append(block)

    def _start(self) -> None:
        try:
            encoder, returns = start(self._settings)
        except OSError as error:
            self._bury(error)
            return
        with self._looking:
            self._close_returns()
            self._returns = returns
        self._encoder = encoder

    def _bury(self, error: OSError) -> None:
        encoder = self._encoder
        self._encoder = None
        self._rests_until = time.monotonic() + BREATH
        status = None if encoder is None else encoder.wait(PATIENCE)
        with self._looking:
            self._look()
            self._close_returns()
            for block in list(self._lent):
                self._write_off(block)
        log.error(
            "the encoder of the records ended (%s, status %s); records are lost until it is "
            "started again in %g s",
            error.strerror,
            status,
            BREATH,
        )

    def _look(self) -> bool:
        """Take back what the encoder has read; False if it has ended."""
        if self._returns < 0:
            return True
        try:
            numbers = os.read(self._returns, 256)
        except BlockingIOError:
            return True
        for block in numbers:
            del self._lent[block]
            self._back.append(block)
        return bool(numbers)

    def _close_returns(self) -> None:
        if self._returns >= 0:
            os.close(self._returns)
            self._returns = -1


def start(settings: Settings) -> tuple[subprocess.Popen[bytes], int]:
    """The encoder, in a session of its own: what ends the broker must not end it.

    Also the pipe by which it gives blocks back.
    """
    command = [sys.executable, "-m", "headgate.server.recorder.encoder"]
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    told = msgspec.structs.replace(settings, returns=writing)
    try:
        encoder = subprocess.Popen(  # noqa: S603 (our own module)
            [*command, msgspec.json.encode(told).decode()],
            stdin=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **MEMORY},
            pass_fds=[one for one in (settings.arena, writing) if one >= 0],
        )
    except OSError:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    assert encoder.stdin is not None
    with contextlib.suppress(OSError):  # more than this user may have
        fcntl.fcntl(encoder.stdin, fcntl.F_SETPIPE_SZ, PIPE)
    return encoder, reading
