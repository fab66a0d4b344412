"""One data directory, one broker."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from headgate.errors import StorageError

NAME = "lock"

PATIENCE = 1.0
"""Seconds to wait for the lock. A broker that was killed while it started its compaction leaves the
lock to that child for the moment until the child has become another program."""


class DirectoryLock:
    """Held until `release` or the end of the process, however it ends: the kernel keeps it."""

    def __init__(self, directory: Path) -> None:
        self._file = -1
        path = directory / NAME
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(
                f"the data directory {directory} cannot be used: {error.strerror}"
            ) from error
        try:
            lock(file)
        except OSError as error:
            owner = os.pread(file, 32, 0).decode("ascii", "replace").strip()
            os.close(file)
            raise StorageError(
                f"the data directory {directory} is in use by another broker"
                f"{f' (process {owner})' if owner else ''}: stop it or choose another data_dir"
            ) from error
        with contextlib.suppress(OSError):  # The number is a courtesy; a full disk may refuse it.
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file = file

    def release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def lock(file: int) -> None:
    """Take the lock of an open file, with some patience."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
