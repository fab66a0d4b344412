"""The files of the log in their directory.

    journal.1, journal.2, …   batches in the order they were committed; only the last one grows
    snapshot.2                what the batches of all files up to journal.2 add up to

Each step leaves a directory that can be loaded: a snapshot takes effect by being renamed, and only
then do the files that it replaces go.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import StorageError
from headgate.server.store.records import Reader
from headgate.server.store.state import State


@dataclass(frozen=True, slots=True)
class LogDirectory:
    path: Path

    def journal(self, number: int) -> Path:
        return self.path / f"journal.{number}"

    def snapshot(self, number: int) -> Path:
        return self.path / f"snapshot.{number}"

    def unfinished_snapshot(self, number: int, process: int) -> Path:
        """Named after its writer: that of a broker that was killed may still be at work."""
        return self.path / f"snapshot.{number}.{process}.new"

    def last_snapshot(self) -> int:
        """0 if there is none yet."""
        return max(self._numbers("snapshot"), default=0)

    def journals_after(self, snapshot: int) -> list[int]:
        """The numbers of the journals that `snapshot` does not cover, in order."""
        found = sorted(number for number in self._numbers("journal") if number > snapshot)
        for expected, number in enumerate(found, snapshot + 1):
            if number != expected:
                raise StorageError(
                    f"{self.journal(expected)} is missing although {self.journal(number)} is there:"
                    " restore it, or move all of them away to start empty"
                )
        return found

    def install(self, snapshot: int, process: int) -> None:
        """Make the snapshot that `process` has finished the one that counts."""
        self.unfinished_snapshot(snapshot, process).rename(self.snapshot(snapshot))
        self.sync()
        self.remove_obsolete()

    def remove_obsolete(self) -> None:
        """What a snapshot has replaced, and what a compaction that was cut short has left."""
        last = self.last_snapshot()
        for number in self._numbers("journal"):
            if number <= last:
                self.journal(number).unlink(missing_ok=True)
        for number in self._numbers("snapshot"):
            if number < last:
                self.snapshot(number).unlink(missing_ok=True)
        for path in self.path.glob("snapshot.*.new"):
            path.unlink(missing_ok=True)

    def sync(self) -> None:
        """Names are data too: a new or renamed file survives a power cut only after this."""
        file = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def _numbers(self, kind: str) -> list[int]:
        suffixes = (path.name.partition(".")[2] for path in self.path.glob(f"{kind}.*"))
        return [int(suffix) for suffix in suffixes if suffix.isascii() and suffix.isdecimal()]


def add_complete(state: State, path: Path) -> None:
    """Add all batches of a file that was finished before any crash could have hurt it."""
    reader = Reader(path)
    for changes in reader:
        state.apply(changes)
    if reader.end < reader.size:
        raise damage(reader)


def damage(reader: Reader) -> StorageError:
    return StorageError(
        f"{reader.path} is damaged at byte {reader.end} of {reader.size}, and not by an unclean"
        f" end: restore a copy, or `truncate -s {reader.end} {reader.path}` to give up the rest"
    )
