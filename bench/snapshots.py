"""`python -m bench snapshots`: which part of the broker's time snapshots take.

While somebody subscribes to `$SYS/headgate/snapshot`, the broker looks at every flow once in each
interval. A broker that is saturated handles messages in all the rest of its time: so the part of
an interval that a snapshot takes is the part of the throughput that it costs. That is measured in
the core alone, as CPU time, with some or all of 10,000 flows in use since the last snapshot. The
goal is 5 %.

`observed` is a contender for `python -m bench broker`: Headgate with somebody who listens.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator
from functools import partial
from statistics import median

from bench import brokers
from bench.brokers import Broker
from bench.policy import (
    CLIENTS,
    FLOWS_EACH,
    REPETITIONS,
    SOON,
    Connection,
    Turns,
    cpu_of,
    opened,
    populated,
)
from bench.target import Target
from headgate import is_compiled
from headgate.config import Configuration
from headgate.core.accounting import settle
from headgate.core.broker import Broker as Core
from headgate.core.outlet import Outlet
from headgate.core.snapshots import TOPIC, Snapshots
from headgate.wire.codec import encode
from headgate.wire.packets import Publish, Suback, Subscribe, SubscriptionOptions, Version

GOAL = 0.05
USED = (0, 100, 1000, CLIENTS * FLOWS_EACH)
"""Flows that had messages since the last snapshot."""


def core(interval: float) -> dict[int, Turns]:
    """CPU seconds of a snapshot, by how many flows were in use: the median of several."""
    broker = populated()
    publisher, watcher = opened(broker, "publisher"), opened(broker, "watcher")
    asked = Subscribe(1, [(TOPIC, SubscriptionOptions(0))])
    watcher.receive(encode(asked, Version.V5), 1.0)
    now = 1.0
    Snapshots(broker, interval, now)
    found: dict[int, Turns] = {}
    for used in USED:
        rounds = []
        for _ in range(REPETITIONS):
            for flow in range(used):
                number, index = divmod(flow, FLOWS_EACH)
                message = Publish(f"site/{number}/sensor/{index}/x", b"x")
                publisher.receive(encode(message, Version.V5), now)
            written(broker, now)
            turns = []
            now = broker.timers.due
            while broker.timers.due < now + SOON:
                now = broker.timers.due
                turns.append(cpu_of(partial(broker.timers.run, now)))
            assert written(broker, now)[watcher.outlet].count(b'"client"') >= used
            rounds.append(turns)
        found[used] = Turns(median(map(max, rounds)), median(map(sum, rounds)))
    return found


def written(broker: Core, now: float) -> dict[Outlet, bytes]:
    """What each client is sent, as if the sockets took all of it."""
    board = broker.board[:]
    broker.board.clear()
    data = {}
    for outlet in board:
        outlet.listed = False
        data[outlet] = outlet.take()
        settle(outlet, now)
    return data


class Observed(Broker):
    """A broker whose snapshots somebody listens to."""

    @contextlib.contextmanager
    def running(self) -> Iterator[Target]:
        """Start it, subscribe, and read whatever comes."""
        with super().running() as target:
            watcher = Connection(target.address, "watcher")
            watcher.send(Subscribe(1, [(TOPIC, SubscriptionOptions(0))]))
            assert watcher.expect(Suback).reasons == [0]
            reading = threading.Thread(target=drain, args=(watcher.socket,), daemon=True)
            reading.start()
            try:
                yield target
            finally:
                watcher.socket.shutdown(socket.SHUT_RDWR)
                reading.join()
                watcher.socket.close()


def drain(source: socket.socket) -> None:
    source.settimeout(None)
    with contextlib.suppress(OSError):
        while source.recv(65536):
            pass


def observed() -> Broker:
    plain = brokers.headgate()
    return Observed("observed", plain.version, plain.command)


def main() -> int:
    interval = Configuration().snapshot_interval
    compiled = "compiled" if is_compiled() else "not compiled"
    print(f"{CLIENTS * FLOWS_EACH:,} flows, a snapshot every {interval:g} s, {compiled}; ms of CPU")
    print(f"{'flows in use':>14}{'longest turn':>14}{'all turns':>12}{'part':>9}")
    parts = []
    for used, turns in core(interval).items():
        part = turns.all / interval
        parts.append(part)
        mark = "✓" if part < GOAL else "✗"
        print(f"{used:14,}{turns.longest * 1e3:14.1f}{turns.all * 1e3:12.1f}{part:9.1%} {mark}")
    return 0 if max(parts) < GOAL else 1
