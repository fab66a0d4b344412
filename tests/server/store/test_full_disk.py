"""A disk that takes no more: told once, nothing acknowledged is lost, nothing hangs."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from headgate.errors import StorageError

from .broker import PATIENCE, Broker, open_log
from .numbered import Reference
from .samples import message
from .test_kill import FOLDER

LIMIT = 300_000


def test_a_full_disk_is_told_and_costs_nothing_that_was_durable(tmp_path: Path) -> None:
    """No file of the child may grow past a limit: the kernel then refuses the write."""
    command = [sys.executable, "-m", f"{__package__}.numbered", "log", "fsync", str(tmp_path), "0"]
    child = subprocess.run(
        command,
        cwd=FOLDER,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT)),
        capture_output=True,
        text=True,
        timeout=PATIENCE * 3,
        check=False,
    )
    assert child.returncode == 3, child.stderr
    *positions, failure = child.stdout.splitlines()
    assert failure.count("StorageError") == 1
    assert "could not be written" in failure
    assert not child.stderr

    store = open_log(tmp_path)
    saved = store.load()
    store.close()
    reference = Reference()
    while reference.position < max(int(positions[-1]), int(saved.values["number"])):
        reference.advance()
    for _ in range(8):
        if reference.equals(saved):
            break
        reference.advance()
    assert reference.equals(saved)


def test_after_a_failure_nothing_is_written_and_nothing_becomes_durable(tmp_path: Path) -> None:
    broker = Broker()
    store = open_log(tmp_path, broker=broker)
    store.load()
    store.save_message(message(1))
    broker.settle(store)
    # The disk goes away: the descriptor now refuses every write.
    file = store._medium._file  # type: ignore[attr-defined]
    null = os.open("/dev/full", os.O_WRONLY)
    os.dup2(null, file)
    os.close(null)
    store.save_message(message(2))
    store.flush()
    broker.until(lambda: bool(broker.failures))
    for key in range(3, 100):
        store.save_message(message(key))
        store.flush()
    assert store._batch.is_empty()  # What can no longer be kept is not piled up either.
    store.close()
    assert [type(failure) for failure in broker.failures] == [StorageError]
    assert "No space left on device" in str(broker.failures[0])
    assert (store.durable, broker.commits) == (1, [1])
    again = open_log(tmp_path)
    assert again.load().messages == [message(1)]
    again.close()


def test_a_failure_during_close_is_told_before_it_returns(tmp_path: Path) -> None:
    broker = Broker()
    store = open_log(tmp_path, broker=broker)
    store.load()
    file = store._medium._file  # type: ignore[attr-defined]
    null = os.open("/dev/full", os.O_WRONLY)
    os.dup2(null, file)
    os.close(null)
    store.save_message(message(1))
    store.close()
    assert len(broker.failures) == 1
    assert (store.durable, broker.commits) == (0, [])
    while not broker.calls.empty():
        broker.calls.get()()
    assert len(broker.failures) == 1
