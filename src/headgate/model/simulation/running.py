"""Runs replications of a network, in threads: the kernel does not hold the interpreter's lock."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.errors import ConfigurationError
from headgate.model.simulation import kernel
from headgate.model.simulation.layout import Status
from headgate.model.simulation.memory import Builder, with_more_messages
from headgate.model.simulation.network import Network
from headgate.model.simulation.statistics import Measurement, Replication

Progress = Callable[[float], None]
"""Called now and then with the part that is done, 0 to 1."""

_BUDGET = 1_000_000
_MOST_MESSAGES = 1 << 25
"""Messages on their way at once: 2 GiB. More means an overloaded queue and a long horizon."""


def simulate(
    network: Network,
    *,
    horizon: float,
    warmup: float = 0.0,
    replications: int = 1,
    batches: int = 20,
    seed: int = 1,
    workers: int | None = None,
    drain: bool = False,
    records: bool = False,
    progress: Progress | None = None,
) -> Measurement:
    """Simulate `horizon` seconds; measure what leaves the network after `warmup`.

    With `drain`, sources stop at the horizon and the rest is delivered and counted too: for traces.
    The result depends on the network and the seed alone, not on `workers`.
    """
    if not 0 <= warmup < horizon:
        raise ConfigurationError(
            f"the warm-up ({warmup:g} s) must be shorter than the simulated time ({horizon:g} s)"
        )
    if replications < 1 or batches < 1 or not 0 <= seed < 2**64:
        raise ConfigurationError("a simulation needs a replication, a batch and a seed >= 0")
    builder = Builder(network)
    done = [0.0] * replications

    def one(replication: int) -> Replication:
        def advance(part: float) -> None:
            done[replication] = part
            if progress is not None:
                progress(sum(done) / replications)

        memory = builder.memory(
            horizon=horizon,
            warmup=warmup,
            batches=batches,
            seed=seed,
            replication=replication,
            drain=drain,
            keep_records=records,
        )
        return _run(memory, horizon, advance)

    started = time.perf_counter()
    threads = min(replications, workers or os.cpu_count() or 1)
    if threads == 1:
        results = [one(replication) for replication in range(replications)]
    else:
        with ThreadPoolExecutor(threads) as pool:
            results = list(pool.map(one, range(replications)))
    return Measurement(results, horizon - warmup, time.perf_counter() - started)


def _run(memory: kernel.Memory, horizon: float, advance: Progress) -> Replication:
    kept: list[NDArray[Any]] = []
    while True:
        status = kernel.run(memory, _BUDGET)
        control = memory.control
        if status == Status.MESSAGES_FULL:
            room = 2 * len(memory.messages)
            if room > _MOST_MESSAGES:
                raise ConfigurationError(
                    f"{len(memory.messages)} messages wait after {control['now'][0]:.4g} simulated "
                    "seconds: a queue is overloaded; shorten the time, drop more, or raise a rate"
                )
            memory = with_more_messages(memory, room)
        elif status == Status.RECORDS_FULL:
            count = int(control["records"][0])
            kept.append(memory.records[:count].copy())
            control["records"] = 0
            # What is on its way could all leave at once: there must be room for it.
            needed = 2 * int(control["on_their_way"][0] + control["widest"][0])
            if needed > len(memory.records):
                memory = memory._replace(records=np.zeros(2 * needed, memory.records.dtype))
        else:
            advance(min(1.0, float(control["now"][0]) / horizon))
            if status == Status.DONE:
                break
    records = None
    if control["keep_records"][0]:
        kept.append(memory.records[: int(control["records"][0])].copy())
        records = np.concatenate(kept)
    return Replication(
        streams=memory.streams,
        batches=memory.batches,
        histogram=memory.histogram,
        records=records,
        events=int(control["events"][0]),
        on_their_way=int(control["on_their_way"][0]),
    )
