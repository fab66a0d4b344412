"""Who waits for whom: the broker's thread for nobody, an acknowledgement for its commit."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from headgate.server.store.changes import Changes
from headgate.server.store.log import LogFiles
from headgate.server.store.store import Durability, Store

from .broker import PATIENCE, Broker, Opens, open_log
from .samples import MESSAGE, SESSION, WILL, delivery, message


class GatedLog(LogFiles):
    """The log, but each commit begins only when the test lets it."""

    def __init__(self, path: Path, durability: Durability) -> None:
        super().__init__(path, durability, 1 << 20)
        self.batches: list[Changes] = []
        self.began = threading.Semaphore(0)
        self.may_go_on = threading.Semaphore(0)

    def apply(self, changes: Changes) -> None:
        self.batches.append(changes)
        self.began.release()
        assert self.may_go_on.acquire(timeout=PATIENCE)
        super().apply(changes)


class Gated:
    def __init__(self, path: Path, durability: Durability = "fsync") -> None:
        self.broker = Broker()
        self.log = GatedLog(path, durability)
        self.store = Store(
            self.log,
            durability,
            self.broker.calls.put,
            self.broker.commits.append,
            self.broker.failures.append,
        )
        self.store.load()

    def begins(self) -> None:
        assert self.log.began.acquire(timeout=PATIENCE)


def test_what_comes_during_a_commit_is_the_next_commit(tmp_path: Path) -> None:
    gated = Gated(tmp_path)
    store, broker = gated.store, gated.broker
    store.save_message(message(1))
    store.flush()
    gated.begins()  # At once: nothing else had to arrive.
    for key in range(2, 100):
        store.save_message(message(key))
        store.flush()
    assert store.durable == 0
    gated.log.may_go_on.release()
    broker.until(lambda: store.durable == 1)
    assert broker.commits == [1]
    # The report of the first has handed over the second; no further flush was needed.
    gated.begins()
    gated.log.may_go_on.release()
    broker.until(lambda: store.durable == 99)
    assert broker.commits == [1, 99]
    assert [len(batch.saved_messages) for batch in gated.log.batches] == [1, 98]
    store.close()


def test_what_is_dropped_before_its_commit_is_never_written(tmp_path: Path) -> None:
    gated = Gated(tmp_path)
    store, broker = gated.store, gated.broker
    store.save_message(message(1))
    store.save_delivery(delivery("app", 1))
    store.flush()
    gated.begins()
    for key in range(2, 50):  # Published, sent, acknowledged, all during that commit.
        store.save_message(message(key))
        store.save_delivery(delivery("app", key))
        store.assign_packet_id("app", key, key)
        store.release_delivery("app", key)
        store.drop_delivery("app", key)
        store.drop_message(key)
    gated.log.may_go_on.release()
    broker.until(lambda: store.durable == store.position)
    assert len(gated.log.batches) == 1
    assert broker.commits == [2, store.position]
    store.close()


def test_a_report_runs_in_the_brokers_thread(open_store: Opens, tmp_path: Path) -> None:
    broker = Broker()
    store = open_store(tmp_path, broker=broker)
    store.load()
    store.save_message(message(1))
    store.flush()
    call = broker.calls.get(timeout=PATIENCE)
    # It was posted but not run: nothing changes behind the broker's back.
    assert (store.durable, broker.commits) == (0, [])
    call()
    assert (store.durable, broker.commits) == (1, [1])
    store.close()


def test_recording_alone_hands_nothing_over(tmp_path: Path) -> None:
    gated = Gated(tmp_path)
    gated.store.save_message(message(1))
    gated.store.save_session(SESSION)
    assert not gated.log.began.acquire(timeout=0.05)
    gated.store.flush()
    gated.begins()
    gated.log.may_go_on.release()
    gated.broker.until(lambda: gated.store.durable == 2)
    gated.store.close()


def test_close_commits_and_reports_what_was_not_flushed(open_store: Opens, tmp_path: Path) -> None:
    broker = Broker()
    store = open_store(tmp_path, broker=broker)
    store.load()
    store.save_message(message(1))
    store.flush()
    store.save_message(message(2))
    store.close()
    assert (store.durable, broker.commits[-1]) == (2, 2)
    while not broker.calls.empty():  # Reports that were under way must not go back.
        broker.calls.get()()
    assert (store.durable, broker.commits[-1]) == (2, 2)
    store.close()
    again = open_store(tmp_path)
    assert again.load().messages == [message(1), message(2)]
    again.close()


def test_a_store_that_was_never_loaded_can_be_closed(open_store: Opens, tmp_path: Path) -> None:
    open_store(tmp_path).close()
    open_store(tmp_path).close()


def test_the_broker_may_go_before_the_store(open_store: Opens, tmp_path: Path) -> None:
    """A loop that is closed refuses calls; what it handed over before is kept all the same."""

    def refuse(call: object) -> None:
        raise OSError("Bad file descriptor")

    broker = Broker()
    store = open_store(tmp_path, broker=broker)
    store._post = refuse
    store.load()
    store.save_message(message(1))
    store.flush()
    store.save_message(message(2))
    store.close()
    assert not broker.failures
    again = open_store(tmp_path)
    assert len(again.load().messages) == 2
    again.close()


def test_with_none_nothing_waits_and_writes_come_behind(tmp_path: Path) -> None:
    gated = Gated(tmp_path, "none")
    store = gated.store
    store.save_message(message(1))
    assert store.durable == store.position == 1
    store.flush()
    gated.begins()
    gated.log.may_go_on.release()
    for key in range(2, 2000):
        store.save_message(message(key))
        store.flush()
    assert store.durable == store.position
    gated.log.may_go_on.release()
    gated.broker.until(lambda: len(gated.log.batches) == 2 and not gated.broker.calls.qsize())
    assert [len(batch.saved_messages) for batch in gated.log.batches] == [1, 1998]
    store.save_message(message(2000))
    gated.log.may_go_on.release()
    store.close()  # It does not wait for its time either.
    assert gated.broker.commits == []
    again = open_log(tmp_path)
    assert len(again.load().messages) == 2000
    again.close()


@pytest.mark.parametrize(
    ("durability", "synced"), [("fsync", True), ("os", False), ("none", False)]
)
def test_a_commit_is_synced_if_the_durability_says_so(
    durability: Durability, synced: bool, tmp_path: Path
) -> None:
    log = LogFiles(tmp_path / "log", durability, 1 << 20)
    log.load()
    flags = fcntl.fcntl(log._file, fcntl.F_GETFL)
    assert bool(flags & os.O_DSYNC) == synced
    log.close()


def test_a_large_session_is_dropped_without_work_in_the_brokers_thread(
    open_store: Opens, tmp_path: Path
) -> None:
    broker = Broker()
    store = open_store(tmp_path, "os", broker)
    store.load()
    store.save_session(SESSION)
    store.save_will(WILL)
    for key in range(1, 20_001):
        store.save_delivery(delivery("app", key))
    broker.settle(store)
    before = store.position
    store.drop_session("app")
    assert store.position == before + 1  # One change, however much goes with it.
    store.save_retained(MESSAGE)
    store.close()
    again = open_store(tmp_path)
    saved = again.load()
    assert (saved.sessions, saved.deliveries, saved.wills) == ([], [], [])
    assert saved.retained == [MESSAGE]
    again.close()
