"""Batches in an append-only log, one write each.

The broker's memory is the index, so nothing is ever looked up here: the files are read once, at the
start. When the log has outgrown what it stands for, a new file is begun and the older ones are
added up in the background. `docs/decisions/0005-storage.md` says why this and not a database.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

from headgate.core.journal import Saved
from headgate.errors import StorageError
from headgate.server.store import records
from headgate.server.store.changes import Changes
from headgate.server.store.compaction import Compaction
from headgate.server.store.files import LogDirectory, add_complete, damage
from headgate.server.store.lock import DirectoryLock
from headgate.server.store.state import State
from headgate.server.store.store import Durability, Store

COMPACT_BYTES = 64 << 20
"""A log smaller than this is left alone; a larger one may grow to the size of its snapshot."""

logger = logging.getLogger(__name__)


class LogFiles:
    """The log in `path`, a directory that it holds the lock of."""

    def __init__(self, path: Path, durability: Durability, compact_bytes: int) -> None:
        self._lock = DirectoryLock(path)
        self._directory = LogDirectory(path)
        self._durability = durability
        self._compact_bytes = compact_bytes
        # The file that grows
        self._number = 0
        self._file = -1
        self._end = 0
        # What compaction is about
        self._older_bytes = 0
        """In journals before the one that grows."""
        self._compact_at = compact_bytes
        self._compaction: Compaction | None = None

    def load(self) -> Saved:
        try:
            with contextlib.suppress(PermissionError):
                LogDirectory(self._directory.path.parent).sync()  # The directory may be new.
            self._directory.remove_obsolete()
            state = self._read()
            self._file = self._open(self._number)
        except OSError as error:
            raise StorageError(f"{self._directory.path} cannot be read: {error}") from error
        return state.saved()

    def apply(self, changes: Changes) -> None:
        header, body = records.record(changes)
        try:
            # With O_DSYNC the call returns when the data is on disk: one system call, hence one
            # wait for the interpreter's lock, where write and fdatasync would be two.
            size = records.write(self._file, header, body)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._end)
            raise StorageError(
                f"{self._directory.journal(self._number)} could not be written: {error.strerror}"
            ) from error
        self._end += size
        self._compact()

    def close(self) -> None:
        if self._compaction is not None:
            self._compaction.cancel()
            self._compaction = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._lock.release()

    def _read(self) -> State:
        state = State()
        snapshot = self._directory.last_snapshot()
        if snapshot:
            add_complete(state, self._directory.snapshot(snapshot))
            self._compact_at = self._limit(snapshot)
        *complete, self._number = self._directory.journals_after(snapshot) or [snapshot + 1]
        for number in complete:
            path = self._directory.journal(number)
            add_complete(state, path)
            self._older_bytes += path.stat().st_size
        path = self._directory.journal(self._number)
        if path.exists():
            self._read_last(state, path)
        return state

    def _read_last(self, state: State, path: Path) -> None:
        """The only file that an unclean end can have left unfinished."""
        reader = records.Reader(path)
        for changes in reader:
            state.apply(changes)
        # With fsync no record is begun before the one before it is on disk, so a bad record with
        # something behind it is not the trace of a crash. Without, a power cut can leave that.
        if reader.damaged and self._durability == "fsync":
            raise damage(reader)
        if reader.end < reader.size:
            logger.warning(
                "%s: %d bytes of an unfinished commit dropped", path, reader.size - reader.end
            )
            os.truncate(path, reader.end)

    def _open(self, number: int) -> int:
        """Open a journal to append to it, and begin it if it is new."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        if self._durability == "fsync":
            flags |= os.O_DSYNC
        file = os.open(self._directory.journal(number), flags, 0o600)
        try:
            end = os.fstat(file).st_size
            if end == 0:
                end = records.write(file, records.MAGIC)
            os.fsync(file)
            self._directory.sync()
        except OSError:
            os.close(file)
            raise
        self._end = end
        return file

    def _compact(self) -> None:
        """Compaction is a convenience: if it fails, the log goes on growing and tries later."""
        try:
            if self._compaction is None:
                if self._older_bytes + self._end > self._compact_at:
                    self._begin_compaction()
            elif not self._compaction.is_running():
                self._end_compaction(self._compaction)
        except OSError as error:
            logger.warning("%s could not be compacted: %s", self._directory.path, error)
            self._compaction = None
            self._compact_at = 2 * (self._older_bytes + self._end)

    def _begin_compaction(self) -> None:
        # A journal must be safe before the next one is begun: what survives is a prefix.
        os.fsync(self._file)
        before, end = self._file, self._end
        try:
            self._file = self._open(self._number + 1)
        except OSError:
            # Only the last journal may grow, so a next one that is not used must not stay.
            self._directory.journal(self._number + 1).unlink(missing_ok=True)
            raise
        os.close(before)
        self._number += 1
        self._older_bytes += end
        self._compaction = Compaction(self._directory, self._number - 1)

    def _end_compaction(self, compaction: Compaction) -> None:
        self._compaction = None
        if compaction.install():
            self._older_bytes = 0
            self._compact_at = self._limit(self._number - 1)
        else:
            self._compact_at = 2 * (self._older_bytes + self._end)

    def _limit(self, snapshot: int) -> int:
        return max(self._compact_bytes, self._directory.snapshot(snapshot).stat().st_size)


class LogStore(Store):
    """A store in an append-only log in the directory `path`."""

    def __init__(
        self,
        path: Path,
        durability: Durability,
        post: Callable[[Callable[[], None]], None],
        on_commit: Callable[[int], None],
        on_failure: Callable[[Exception], None],
        *,
        compact_bytes: int = COMPACT_BYTES,
    ) -> None:
        medium = LogFiles(path, durability, compact_bytes)
        super().__init__(medium, durability, post, on_commit, on_failure)
