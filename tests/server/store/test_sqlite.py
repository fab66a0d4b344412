"""What concerns the SQLite database alone; the rest is tested with every way to store."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from headgate.errors import StorageError

from .broker import open_sqlite
from .samples import message
from .test_damage import fill, keys


def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"certainly not a database " * 100)
    with pytest.raises(StorageError, match=f"{path} cannot be opened"):
        open_sqlite(tmp_path)
    assert path.read_bytes().startswith(b"certainly")
    path.unlink()
    open_sqlite(tmp_path).close()  # The lock was let go.


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "state.db")
    database.execute("CREATE TABLE holiday (photo BLOB)")
    database.close()
    with pytest.raises(StorageError, match="another program"):
        open_sqlite(tmp_path)


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    open_sqlite(tmp_path).close()
    database = sqlite3.connect(tmp_path / "state.db")
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StorageError, match=r"newer Headgate .*99"):
        open_sqlite(tmp_path)


def test_a_damaged_page_of_a_database_is_told_at_the_start(tmp_path: Path) -> None:
    fill(open_sqlite(tmp_path), range(1, 200))
    path = tmp_path / "state.db"
    data = bytearray(path.read_bytes())
    for page in range(2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 16] = b"\xff" * 16
    path.write_bytes(data)
    store = open_sqlite(tmp_path)
    with pytest.raises(StorageError, match="is damaged"):
        store.load()
    store.close()


def test_a_database_shrinks_after_a_peak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.server.store.sqlite.SHRINK_PAGES", 100)
    fill(open_sqlite(tmp_path, "os"), range(0))
    store = open_sqlite(tmp_path, "os")
    store.load()
    for key in range(1, 3000):
        store.save_message(message(key, payload=bytes(1000)))
    store.close()
    peak = (tmp_path / "state.db").stat().st_size
    store = open_sqlite(tmp_path, "os")
    store.load()
    for key in range(1, 2999):
        store.drop_message(key)
    store.close()
    assert keys(open_sqlite(tmp_path, "os")) == [2999]
    assert (tmp_path / "state.db").stat().st_size < peak / 5
