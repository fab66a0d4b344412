"""The thread between the loop and the encoder: it waits for the pipe so that the loop need not."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

import msgspec

from headgate.server.recorder import frames
from headgate.server.recorder.settings import Settings

log = logging.getLogger(__name__)

PATIENCE = 30.0
"""Seconds that the encoder has to finish its segments when the broker ends."""

PIPE = 1024 * 1024
"""Bytes in the pipe: a block takes two changes between the processes, not two dozen."""

BREATH = 10.0
"""Seconds before an encoder that failed is started again."""

Pieces = list[memoryview | bytes]


class Feeder:
    """Starts the encoder, feeds it, and starts it again if it fails."""

    def __init__(self, settings: Settings) -> None:
        self.lost = 0
        """Records that no encoder took."""
        self._settings = settings
        self._queue: SimpleQueue[tuple[Pieces, int, Callable[[], None]] | None] = SimpleQueue()
        self._encoder: subprocess.Popen[bytes] | None = None
        self._rests_until = 0.0
        self._thread = threading.Thread(target=self._feed, name="headgate-feeder", daemon=True)
        self._thread.start()

    def put(self, pieces: Pieces, records: int, done: Callable[[], None]) -> None:
        """Have a frame of so many records written.

        When it is not needed any more `done` is called, in the other thread.
        """
        self._queue.put((pieces, records, done))

    def close(self) -> None:
        """Write what was put, and wait until the last segments are published."""
        self._queue.put(None)
        self._thread.join(PATIENCE)
        encoder = self._encoder
        if encoder is None:
            return
        assert encoder.stdin is not None
        encoder.stdin.close()
        try:
            encoder.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            log.error("the encoder of the records does not end: it goes on by itself")

    def _feed(self) -> None:
        while (item := self._queue.get()) is not None:
            pieces, records, done = item
            try:
                if not self._write(pieces):
                    self.lost += records
            except OSError as error:
                self.lost += records
                self._bury(error)
            finally:
                done()

    def _write(self, pieces: Pieces) -> bool:
        """Feed the encoder; False if there is none for now."""
        if self._encoder is None:
            if time.monotonic() < self._rests_until:
                return False
            self._encoder = start(self._settings)
        assert self._encoder.stdin is not None
        frames.write(self._encoder.stdin.fileno(), pieces)
        return True

    def _bury(self, error: OSError) -> None:
        encoder = self._encoder
        self._encoder = None
        self._rests_until = time.monotonic() + BREATH
        status = None if encoder is None else encoder.wait(PATIENCE)
        log.error(
            "the encoder of the records ended (%s, status %s); records are lost until it is "
            "started again in %g s",
            error.strerror,
            status,
            BREATH,
        )


def start(settings: Settings) -> subprocess.Popen[bytes]:
    """The encoder, in a session of its own: what ends the broker must not end it."""
    command = [sys.executable, "-m", "headgate.server.recorder.encoder"]
    encoder = subprocess.Popen(  # noqa: S603 (our own module)
        [*command, msgspec.json.encode(settings).decode()],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    assert encoder.stdin is not None
    with contextlib.suppress(OSError):  # more than this user may have
        fcntl.fcntl(encoder.stdin, fcntl.F_SETPIPE_SZ, PIPE)
    return encoder
