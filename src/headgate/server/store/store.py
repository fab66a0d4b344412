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
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Literal, Protocol

from headgate.core.journal import Saved
from headgate.server.store.changes import Changes, Recorder

Durability = Literal["fsync", "os", "none"]
"""What must happen to a change before it counts as kept (docs/durability.md)."""

WRITE_BEHIND_SECONDS = 0.1
"""With `none` nobody waits for the disk, so it is asked no more often than this.

A batch is encoded in one go, under the interpreter's lock: much longer would be felt."""

logger = logging.getLogger(__name__)


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
        # Between the threads
        self._batches: SimpleQueue[tuple[int, Changes] | None] = SimpleQueue()
        self._closing = threading.Event()
        self._failure: Exception | None = None
        self._writer = threading.Thread(target=self._write, name="headgate-store", daemon=True)

    @property
    def durable(self) -> int:
        return self._durable if self._promises else self.position

    def load(self) -> Saved:
        """Read what survived and start the writer. Call it once, before anything is recorded."""
        saved = self._medium.load()
        self._reserved_key = saved.last_key
        self._writer.start()
        return saved

    def flush(self) -> None:
        """Send what was recorded on its way, if the way is free. Call it once per loop turn."""
        if self._writer_is_free and self.position != self._handed_over:
            self._hand_over()

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
        self._medium.close()
        if self._failure is not None:
            self._fail(self._failure)
        elif self._durable != self._handed_over:
            self._advance(self._handed_over)

    def _hand_over(self) -> None:
        batch = self._batch
        self._batch = Changes()
        self._handed_over = self.position
        if self._failed:
            return  # Nothing may follow what was lost; the batch is let go to bound the memory.
        self._writer_is_free = False
        self._batches.put((self.position, batch))

    def _committed(self, position: int) -> None:
        """In the broker's thread: the writer is done with the batch up to `position`."""
        if self._closed:
            return  # `close` reported it already.
        self._writer_is_free = True
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
                position, batch = handed_over
                if not batch.is_empty():
                    self._medium.apply(batch)
                if not self._promises:
                    self._closing.wait(WRITE_BEHIND_SECONDS)
                self._report(partial(self._committed, position))
        except Exception as error:
            self._failure = error
            self._report(partial(self._fail, error))

    def _report(self, call: Callable[[], None]) -> None:
        try:
            self._post(call)
        except Exception as error:
            # The broker's loop was closed before the store. What is still handed over must be
            # written all the same; `close` reports the outcome.
            logger.debug("the broker's loop no longer takes reports: %s", error)
