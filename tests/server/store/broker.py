"""A broker's thread reduced to what a store sees of it: a queue of calls, run one by one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol

from headgate.server.store import Durability, LogStore, Store

PATIENCE = 20.0


class Broker:
    """Runs in the test's thread. `turn` until what the test waits for has happened."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.commits: list[int] = []
        self.failures: list[Exception] = []

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            try:
                self.calls.get(timeout=deadline - time.monotonic())()
            except (Empty, ValueError):
                raise AssertionError("the store did not report in time") from None

    def settle(self, store: Store) -> None:
        """Until all that was recorded is durable."""
        store.flush()
        self.until(lambda: store.durable == store.position)


class Opens(Protocol):
    def __call__(
        self, path: Path, durability: Durability = ..., broker: Broker | None = ...
    ) -> Store: ...


def open_log(path: Path, durability: Durability = "fsync", broker: Broker | None = None) -> Store:
    broker = broker or Broker()
    return LogStore(
        path, durability, broker.calls.put, broker.commits.append, broker.failures.append
    )


def open_small_log(
    path: Path, durability: Durability = "fsync", broker: Broker | None = None
) -> Store:
    """A log that is compacted all the time."""
    broker = broker or Broker()
    return LogStore(
        path,
        durability,
        broker.calls.put,
        broker.commits.append,
        broker.failures.append,
        compact_bytes=4096,
    )


KINDS: dict[str, Opens] = {"log": open_log, "small-log": open_small_log}
