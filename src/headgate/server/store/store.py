"""Group commit: the broker's thread records, one other thread writes, nobody waits for a lock.

The broker's thread fills a batch. `flush`, once per turn of the event loop, hands the batch to the
writer if the writer has nothing to do; otherwise it goes on growing until the writer reports back.
So a lone change is on its way to the disk at the end of the turn that made it, and under load a
commit holds all that happened during the one before.

Batches change hands only in the broker's thread and through one queue: there is no state that both
threads touch, hence no lock on the path of a message.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Literal, Protocol

from headgate.core.journal import Saved
from headgate.errors import StorageError
from headgate.server.store.changes import Captures, Changes, Recorder
from headgate.server.store.spool import MARK, Spool

Durability = Literal["fsync", "os", "none"]
"""What must happen to a change before it counts as kept (docs/durability.md)."""

WRITE_BEHIND_SECONDS = 0.1
"""With `none` nobody waits for the disk, so it is asked no more often than this.

A batch is encoded in one go, under the interpreter's lock: much longer would be felt."""

RETRY_SECONDS = 1.0
"""Between two attempts to write what was captured to a disk that is full."""

logger = logging.getLogger(__name__)


class Look:
    """Asks the writer to look after the spool though nothing was recorded."""


class Medium(Protocol):
    """Where batches end up: the log, or what a user's package provides instead.

    `load` runs first, then `apply` in the writer's thread, then `close`.
    """

    def load(self) -> Saved:
        """All that survived; a `StorageError` if that cannot be told."""

    def apply(self, changes: Changes) -> None:
        """Keep all of the batch, or raise and keep nothing of it."""

    def close(self) -> None:
        """Let go of files and locks. Nothing that was applied depends on it."""


class Store(Recorder):
    """A `Journal` on disk.

    `post` hands a call over to the broker's thread (`loop.call_soon_threadsafe`). There,
    `on_commit` tells how far the journal is durable, and `on_failure`, at most once, that the disk
    refused: from then on nothing is written and nothing becomes durable.
    """

    def __init__(
        self,
        medium: Medium,
        durability: Durability,
        post: Callable[[Callable[[], None]], None],
        on_commit: Callable[[int], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        super().__init__()
        self._medium = medium
        self._post = post
        self._on_commit = on_commit
        self._on_failure = on_failure
        self._promises = durability != "none"
        # The broker's thread
        self._durable = 0
        self._handed_over = 0
        self._writer_is_free = True
        self._failed = False
        self._closed = False
        # Captured messages
        self.spool: Spool | None = None
        """Where they are kept; set before `load`, if there are any."""
        self.captures_lost = 0
        """Messages not captured because there was no room on the disk. The writer counts."""
        self.stalled = False
        """Publishers of guaranteed captures wait for room on the disk. The writer says so."""
        self._looking = False
        # Between the threads
        self._batches: SimpleQueue[tuple[int, Changes, Captures] | Look | None] = SimpleQueue()
        self._closing = threading.Event()
        self._failure: Exception | None = None
        self._writer = threading.Thread(target=self._write, name="headgate-store", daemon=True)

    @property
    def durable(self) -> int:
        return self._durable if self._promises else self.position

    @property
    def crowded(self) -> bool:
        return super().crowded or (self.spool is not None and self.spool.is_full)

    def load(self) -> Saved:
        """Read what survived and start the writer. Call it once, before anything is recorded."""
        saved = self._medium.load()
        self._reserved_key = saved.last_key
        if self.spool is not None:
            try:
                self.spool.recover(saved.values.get(MARK))
            except OSError as error:
                folder = self.spool.settings.folder
                raise StorageError(f"{folder} cannot be read: {error.strerror}") from error
        self._writer.start()
        return saved

    def flush(self) -> None:
        """Send what was recorded on its way, if the way is free. Call it once per loop turn."""
        if self._writer_is_free and self.position != self._handed_over:
            self._hand_over()

    def look_after_spool(self) -> None:
        """Have a spool file completed that is old enough. Call it every second or so."""
        if self.spool is not None and not self._looking:
            self._looking = True
            self._batches.put(Look())

    def close(self) -> None:
        """Commit all that was recorded and let go of the files. Called in the broker's thread.

        What becomes durable, or fails, is reported before this returns.
        """
        if self._closed:
            return
        self._closed = True
        if self._writer.ident is not None:
            self._closing.set()
            if self.position != self._handed_over:
                self._hand_over()
            self._batches.put(None)
            self._writer.join()
            self._close_spool()
        self._medium.close()
        if self._failure is not None:
            self._fail(self._failure)
        elif self._durable != self._handed_over:
            self._advance(self._handed_over)

    def _close_spool(self) -> None:
        """The writer has ended. What it could not commit is for the next start to judge."""
        if self.spool is None:
            return
        if self._failure is not None:
            self.spool.abandon()
            return
        try:
            self.spool.seal()
        except StorageError as error:
            self._failure = error

    def _hand_over(self) -> None:
        batch, captures = self._batch, self._captures
        self._batch = Changes()
        self._captures = Captures()
        self._handed_over = self.position
        if self._failed:
            return  # Nothing may follow what was lost; the batch is let go to bound the memory.
        self._writer_is_free = False
        self._batches.put((self.position, batch, captures))

    def _committed(self, position: int, captured: int) -> None:
        """In the broker's thread: the writer is done with the batch up to `position`."""
        if self._closed:
            return  # `close` reported it already.
        self._writer_is_free = True
        self._captured_size -= captured
        self.flush()
        self._advance(position)

    def _advance(self, position: int) -> None:
        self._durable = position
        if self._promises:
            self._on_commit(position)

    def _fail(self, error: Exception) -> None:
        """In the broker's thread: the writer has given up."""
        if not self._failed:
            self._failed = True
            self._writer_is_free = True
            self._on_failure(error)

    def _write(self) -> None:
        """The writer's thread. It ends when told to, or by reporting why it cannot go on."""
        try:
            while (handed_over := self._batches.get()) is not None:
                if isinstance(handed_over, Look):
                    self._look()
                    continue
                position, batch, captures = handed_over
                if captures.size:
                    self._keep(captures, batch)
                if not batch.is_empty():
                    self._medium.apply(batch)
                if captures.size and self.spool is not None:
                    self.spool.seal_if_due(time.time())
                if not self._promises:
                    self._closing.wait(WRITE_BEHIND_SECONDS)
                self._report(partial(self._committed, position, captures.size))
        except Exception as error:
            self._failure = error
            self._report(partial(self._fail, error))

    def _look(self) -> None:
        assert self.spool is not None
        self.spool.seal_if_due(time.time())
        self.spool.look()
        self._looking = False

    def _keep(self, captures: Captures, batch: Changes) -> None:
        """Have what was captured on the disk before the batch that it belongs to.

        Without room, what may be lost is lost, and for the rest the batch waits: nothing that is
        in it is acknowledged meanwhile.
        """
        assert self.spool is not None
        while captures.guaranteed or captures.noted:
            try:
                mark = self.spool.append(captures.guaranteed, captures.noted)
            except OSError as error:
                self.captures_lost += len(captures.noted)
                captures.noted = []
                if not self.stalled:
                    logger.error("captured messages cannot be kept: %s", error.strerror)
                self.stalled = True
                if captures.guaranteed and self._closing.wait(RETRY_SECONDS):
                    raise StorageError(
                        f"captured messages could not be kept: {error.strerror}"
                    ) from error
            else:
                if mark is not None:
                    batch.saved_values[MARK] = mark
                if self.stalled:
                    logger.info("captured messages are kept again")
                self.stalled = False
                return

    def _report(self, call: Callable[[], None]) -> None:
        try:
            self._post(call)
        except Exception as error:
            # The broker's loop was closed before the store. What is still handed over must be
            # written all the same; `close` reports the outcome.
            logger.debug("the broker's loop no longer takes reports: %s", error)
