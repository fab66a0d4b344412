"""Figures for docs/decisions/0005-storage.md: `python -m store.measure DIRECTORY` in tests/server.

The broker's thread is an asyncio loop. Per message it records what a QoS 1 message to a persistent
session takes: the message, its delivery, and, `lag` messages later, that both may go.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import get_args

from headgate.core.journal import StoredDelivery, StoredMessage
from headgate.server.store import Durability, LogStore, Store
from headgate.server.store.changes import Changes

PAYLOAD = bytes(64)
PER_TURN = 100
UNCOMMITTED = 20_000
SECONDS = 2.0


class Meter:
    """One store and what its writer's thread costs."""

    def __init__(self, durability: Durability, directory: Path) -> None:
        self.directory = directory / "log"
        loop = asyncio.get_running_loop()
        self.committed = asyncio.Event()
        self.key = 0
        arguments = (
            durability,
            loop.call_soon_threadsafe,
            lambda position: self.committed.set(),
            lambda error: loop.stop(),
        )
        self.store: Store = LogStore(self.directory, *arguments)
        self.store.load()
        self.commits: list[tuple[float, float]] = []
        """(seconds, CPU seconds of the writer's thread) of each commit."""
        apply = self.store._medium.apply

        def metered(changes: Changes) -> None:
            start, cpu = time.perf_counter(), time.thread_time()
            apply(changes)
            self.commits.append((time.perf_counter() - start, time.thread_time() - cpu))

        self.store._medium.apply = metered  # type: ignore[method-assign]

    def record(self, lag: int) -> None:
        self.key = key = self.key + 1
        self.store.save_message(
            StoredMessage(key, b"sensors/7/temp", PAYLOAD, b"", 1, False, 2, 0.0, 1.5, "publisher")
        )
        client_id = f"subscriber-{key % 10}"
        self.store.save_delivery(
            StoredDelivery(client_id, key, key, "sensors/#", 1, key % 65535 + 1, False)
        )
        if key > lag:
            self.store.drop_delivery(f"subscriber-{(key - lag) % 10}", key - lag)
            self.store.drop_message(key - lag)

    def close(self) -> None:
        self.store.close()
        shutil.rmtree(self.directory)


async def sustained(meter: Meter, lag: int) -> str:
    store, began = meter.store, time.perf_counter()
    broker_cpu = time.thread_time()
    while time.perf_counter() - began < SECONDS:
        for _ in range(PER_TURN):
            meter.record(lag)
        store.flush()
        await asyncio.sleep(0)
        while store.position - store.durable > 4 * UNCOMMITTED:
            meter.committed.clear()
            await meter.committed.wait()
    broker_cpu = time.thread_time() - broker_cpu
    store.close()
    seconds = time.perf_counter() - began
    waits = sorted(commit[0] * 1e3 for commit in meter.commits)
    writer_cpu = sum(commit[1] for commit in meter.commits)
    return (
        f"{meter.key / seconds:8.0f} messages/s {store.position / seconds:9.0f} changes/s, "
        f"commit p50 {waits[len(waits) // 2]:6.2f} p99 {waits[len(waits) * 99 // 100]:6.1f} "
        f"max {waits[-1]:6.1f} ms, CPU per message: writer {writer_cpu / meter.key * 1e6:5.2f}, "
        f"broker {broker_cpu / meter.key * 1e6:5.2f} µs"
    )


async def at_rest(meter: Meter) -> str:
    waits = []
    for _ in range(300):
        began = time.perf_counter()
        meter.record(100)
        meter.committed.clear()
        meter.store.flush()
        await meter.committed.wait()
        waits.append((time.perf_counter() - began) * 1e6)
        await asyncio.sleep(0.001)
    waits.sort()
    return f"p50 {waits[150]:.0f} p99 {waits[297]:.0f} µs from change to report"


async def main() -> None:
    directory = Path(sys.argv[1])
    for durability in get_args(Durability):
        for lag, name in ((1 << 60, "a queue that grows"), (1000, "acknowledged 1000 later")):
            meter = Meter(durability, directory)
            print(f"{durability:5} {name}: {await sustained(meter, lag)}", flush=True)
            meter.close()
        if durability != "none":
            meter = Meter(durability, directory)
            print(f"{durability:5} at rest: {await at_rest(meter)}", flush=True)
            meter.close()
    assert threading.active_count() == 1


if __name__ == "__main__":
    asyncio.run(main())
