"""Files that are not what they should be: one sentence that says so, and nothing destroyed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headgate.errors import StorageError
from headgate.server.store import LogStore, Store

from .broker import PATIENCE, Broker, Opens, open_log
from .samples import message


def fill(store: Store, keys: range) -> None:
    """One commit per message."""
    broker = Broker()
    store._post = broker.calls.put
    store.load()
    for key in keys:
        store.save_message(message(key))
        broker.settle(store)
    store.close()


def keys(store: Store) -> list[int]:
    saved = store.load()
    store.close()
    return [stored.key for stored in saved.messages]


def test_a_second_broker_is_refused_by_name(open_store: Opens, tmp_path: Path) -> None:
    first = open_store(tmp_path)
    with pytest.raises(StorageError, match=rf"{tmp_path} is in use .*process {os.getpid()}"):
        open_store(tmp_path)
    first.close()
    open_store(tmp_path).close()


def test_the_lock_ends_with_its_process(open_store: Opens, tmp_path: Path) -> None:
    hold = (
        "import os, sys; from pathlib import Path;"
        "from headgate.server.store.lock import DirectoryLock;"
        "lock = DirectoryLock(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    holder = subprocess.run([sys.executable, "-c", hold, str(tmp_path)], check=False)
    assert holder.returncode == -9
    open_store(tmp_path).close()


def test_a_directory_that_cannot_be_made_is_named(open_store: Opens, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file cannot be used"):
        open_store(tmp_path / "file")


def test_a_file_that_is_no_journal_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.1"
    path.write_bytes(b"certainly not a journal " * 100)
    store = open_log(tmp_path)
    with pytest.raises(StorageError, match=f"{path} is not a journal"):
        store.load()
    store.close()
    assert path.read_bytes().startswith(b"certainly")


def test_a_newer_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal.1").write_bytes(b"headgate journal 99\n")
    store = open_log(tmp_path)
    with pytest.raises(StorageError, match=r"newer Headgate .*99"):
        store.load()
    store.close()


def test_a_journal_that_is_missing_in_between_is_told(tmp_path: Path) -> None:
    fill(open_log(tmp_path), range(1, 3))
    shutil.copy(tmp_path / "journal.1", tmp_path / "journal.3")
    store = open_log(tmp_path)
    with pytest.raises(StorageError, match=r"journal\.2 is missing"):
        store.load()
    store.close()


def test_a_record_cut_anywhere_is_dropped_and_the_rest_kept(tmp_path: Path) -> None:
    fill(open_log(tmp_path / "whole"), range(1, 4))
    whole = (tmp_path / "whole" / "journal.1").read_bytes()
    ends = [0]
    for count in (1, 2, 3):
        fill(open_log(tmp_path / str(count)), range(1, count + 1))
        ends.append((tmp_path / str(count) / "journal.1").stat().st_size)
    assert ends[-1] == len(whole)
    for cut in range(1, len(whole), 13):
        directory = tmp_path / f"cut-{cut}"
        directory.mkdir()
        (directory / "journal.1").write_bytes(whole[:cut])
        survivors = sum(end <= cut for end in ends[1:])
        assert keys(open_log(directory)) == list(range(1, survivors + 1))
        # And it goes on from there.
        fill(open_log(directory, "os"), range(10, 11))
        assert keys(open_log(directory, "os")) == [*range(1, survivors + 1), 10]
        shutil.rmtree(directory)


def test_zeros_where_the_file_system_had_grown_the_file_are_an_unclean_end(tmp_path: Path) -> None:
    fill(open_log(tmp_path), range(1, 4))
    with (tmp_path / "journal.1").open("ab") as file:
        file.write(bytes(5000))
    assert keys(open_log(tmp_path)) == [1, 2, 3]
    fill(open_log(tmp_path), range(4, 5))
    assert keys(open_log(tmp_path)) == [1, 2, 3, 4]


def test_damage_that_no_crash_explains_is_refused(tmp_path: Path) -> None:
    fill(open_log(tmp_path), range(1, 4))
    path = tmp_path / "journal.1"
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    store = open_log(tmp_path)
    with pytest.raises(StorageError, match=rf"damaged at byte \d+ .*truncate -s \d+ {path}"):
        store.load()
    store.close()
    assert path.read_bytes() == data
    # Without fsync a power cut can write a later page and lose an earlier one: still a prefix.
    assert keys(open_log(tmp_path, "os")) == []


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    fill(open_log(tmp_path), range(1, 4))
    (tmp_path / "journal.1").rename(tmp_path / "snapshot.1")
    assert keys(open_log(tmp_path)) == [1, 2, 3]
    os.truncate(tmp_path / "snapshot.1", 300)
    store = open_log(tmp_path)
    with pytest.raises(StorageError, match=r"snapshot\.1 is damaged"):
        store.load()
    store.close()


def test_left_overs_of_a_compaction_are_removed(tmp_path: Path) -> None:
    fill(open_log(tmp_path), range(1, 4))
    shutil.copy(tmp_path / "journal.1", tmp_path / "snapshot.1")
    (tmp_path / "snapshot.1.4711.new").write_bytes(b"half a snap")
    assert keys(open_log(tmp_path)) == [1, 2, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal.2", "lock", "snapshot.1"]


def test_a_log_stays_small_whatever_goes_through_it(tmp_path: Path) -> None:
    broker = Broker()
    store = LogStore(
        tmp_path,
        "os",
        broker.calls.put,
        broker.commits.append,
        broker.failures.append,
        compact_bytes=100_000,
    )
    store.load()
    key = 0
    snapshots: set[str] = set()

    deadline = time.monotonic() + PATIENCE
    while len(snapshots) < 3:
        assert time.monotonic() < deadline, "it was not compacted in time"
        key += 1
        store.save_message(message(key))
        if key > 100:
            store.drop_message(key - 100)
        broker.settle(store)
        assert len(list(tmp_path.glob("journal.*"))) <= 3
        snapshots.update(path.name for path in tmp_path.glob("snapshot.*") if path.suffix != ".new")
    store.close()
    assert keys(open_log(tmp_path)) == list(range(key - 99, key + 1))
    journals = list(tmp_path.glob("journal.*"))
    assert len(journals) <= 2
    assert len(list(tmp_path.glob("snapshot.*"))) == 1
