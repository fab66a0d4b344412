"""Where segments go: a folder, or an object store that Arrow knows.

A reader must never see half a segment. In a folder it is written under a name that readers pass
over, synced, and renamed; an object store shows an object when it is whole, and a file system that
does not, HDFS for instance, is treated like a folder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

STALE = 3600.0
"""Seconds after which a half-written segment has no writer any more."""

WHOLE = ("s3", "gcs", "abfs")
"""File systems, as Arrow calls them, that show an object only when it is complete."""


class Stored(NamedTuple):
    """A segment that was published."""

    path: str
    """Below the place: `messages/date=2026-11-17/….parquet`; the last part begins with its time."""
    size: int
    written: float

    @property
    def age_key(self) -> str:
        return self.path.rpartition("/")[2]


class Place(Protocol):
    def open(self, path: str) -> pa.NativeFile:
        """A file for a segment that nobody sees yet."""

    def publish(self, path: str) -> int:
        """The file is complete and closed: show it; returns its size."""

    def withdraw(self, path: str) -> None:
        """The file that was opened is not going to be complete."""

    def remove(self, path: str) -> None: ...

    def has(self, path: str) -> bool:
        """Was it published?"""

    def segments(self) -> Iterator[Stored]: ...


def place_of(where: str) -> Place:
    if where.startswith("file://"):
        return Folder(Path(urlsplit(where).path))
    return ObjectStore(where) if "://" in where else Folder(Path(where))


class Folder:
    def __init__(self, root: Path) -> None:
        self.root = root
        for half in root.glob("*/*/.*.parquet"):
            if time.time() - half.stat().st_mtime > STALE:
                half.unlink(missing_ok=True)

    def open(self, path: str) -> pa.NativeFile:
        half = self._half(path)
        make(half.parent)
        return pa.OSFile(str(half), "wb")

    def publish(self, path: str) -> int:
        half = self._half(path)
        size = sync(half)
        half.rename(self.root / path)
        sync(half.parent)
        return size

    def withdraw(self, path: str) -> None:
        self._half(path).unlink(missing_ok=True)

    def remove(self, path: str) -> None:
        file = self.root / path
        file.unlink(missing_ok=True)
        if not any(file.parent.iterdir()):
            file.parent.rmdir()

    def has(self, path: str) -> bool:
        return (self.root / path).exists()

    def segments(self) -> Iterator[Stored]:
        for file in self.root.glob("*/date=*/[!.]*.parquet"):
            found = file.stat()
            yield Stored(str(file.relative_to(self.root)), found.st_size, found.st_mtime)

    def _half(self, path: str) -> Path:
        file = self.root / path
        return file.with_name(f".{file.name}")


class ObjectStore:
    """Whatever Arrow knows by a URL.

    What goes to a store that shows an object when its upload is complete is gathered in memory
    until then, up to `segment_size`: an upload that Arrow began it also completes, be it half, when
    the file is given up.
    """

    def __init__(self, url: str) -> None:
        found, root = fs.FileSystem.from_uri(url)
        self.files = fs.SubTreeFileSystem(root, found)
        self._whole = found.type_name in WHOLE
        self._gathered: dict[str, pa.BufferOutputStream] = {}

    def open(self, path: str) -> pa.NativeFile:
        if self._whole:
            self._gathered[path] = pa.BufferOutputStream()
            return self._gathered[path]
        self.files.create_dir(path.rpartition("/")[0], recursive=True)
        return self.files.open_output_stream(self._half(path), compression=None)

    def publish(self, path: str) -> int:
        if self._whole:
            with self.files.open_output_stream(path, compression=None) as upload:
                upload.write(self._gathered.pop(path).getvalue())
        else:
            self.files.move(self._half(path), path)
        return int(self.files.get_file_info(path).size or 0)

    def withdraw(self, path: str) -> None:
        self._gathered.pop(path, None)
        if not self._whole and self.files.get_file_info(self._half(path)).is_file:
            self.files.delete_file(self._half(path))

    def _half(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        return f"{folder}/.{name}"

    def remove(self, path: str) -> None:
        self.files.delete_file(path)

    def has(self, path: str) -> bool:
        return bool(self.files.get_file_info(path).is_file)

    def segments(self) -> Iterator[Stored]:
        selector = fs.FileSelector("", recursive=True, allow_not_found=True)
        for info in self.files.get_file_info(selector):
            hidden = info.base_name.startswith(".")
            if info.is_file and info.path.endswith(".parquet") and not hidden:
                yield Stored(info.path, info.size, info.mtime.timestamp() if info.mtime else 0.0)


def make(folder: Path) -> None:
    """A folder, and those above it, that survive a loss of power."""
    if not folder.exists():
        make(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync(path: Path) -> int:
    """Have a file or folder survive a loss of power; returns its size."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
