"""Adds up the older files of a log in a process of its own.

Reading and writing all that is stored takes seconds of Python. In a thread the broker would feel
every one of them through the interpreter's lock; in a child process it costs a second core some
time. The child only ever writes a file that does not count yet: killing it, or losing its parent,
changes nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from pathlib import Path

from headgate.errors import StorageError
from headgate.server.store import records
from headgate.server.store.files import LogDirectory, add_complete
from headgate.server.store.state import State

MESSAGES_PER_RECORD = 1000

logger = logging.getLogger(__name__)


def write_snapshot(directory: LogDirectory, last: int) -> None:
    """Add up the snapshot and the journals up to number `last`; leave it to be installed."""
    state = State()
    snapshot = directory.last_snapshot()
    if snapshot:
        add_complete(state, directory.snapshot(snapshot))
    for number in directory.journals_after(snapshot):
        if number <= last:
            add_complete(state, directory.journal(number))
    path = directory.unfinished_snapshot(last, os.getpid())
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        records.write(file, records.MAGIC)
        for batch in state.batches(MESSAGES_PER_RECORD):
            records.write(file, *records.record(batch))
        os.fsync(file)
    finally:
        os.close(file)


class Compaction:
    """A running child process, seen from the store's writer."""

    def __init__(self, directory: LogDirectory, last: int) -> None:
        self._directory = directory
        self._last = last
        run = f"from {__name__} import main; main()"
        command = [sys.executable, "-P", "-c", run, str(directory.path), str(last)]
        # In a session of its own, so that Ctrl-C reaches the broker alone.
        self._process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, start_new_session=True
        )

    def is_running(self) -> bool:
        return self._process.poll() is None

    def install(self) -> bool:
        """Put the result in place. Without one, warn and return False: nothing is lost."""
        if self._process.returncode != 0:
            logger.warning(
                "the journal in %s could not be compacted (status %d); it goes on growing",
                self._directory.path,
                self._process.returncode,
            )
            return False
        self._directory.install(self._last, self._process.pid)
        return True

    def cancel(self) -> None:
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            path = self._directory.unfinished_snapshot(self._last, self._process.pid)
            path.unlink(missing_ok=True)


def main() -> None:
    directory, last = sys.argv[1:]
    os.nice(10)
    try:
        write_snapshot(LogDirectory(Path(directory)), int(last))
    except (OSError, StorageError) as error:
        sys.exit(f"headgate: compaction: {error}")
