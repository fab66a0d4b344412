"""Runs, and which of them count."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from bench.congestion.devices import Published
from bench.congestion.evaluating import Conditions
from bench.congestion.measuring import observe
from bench.congestion.workload import Workload
from bench.figures import Times
from bench.network import MEGABIT, Line, Namespace
from bench.planemqx import contenders
from bench.planemqx.contenders import Contender, Demands
from bench.planemqx.evaluating import Found, evaluate
from bench.usage import Used

IN_TIME_MS = 5.0
"""A run counts if the driver sent 99 % of the messages of the measured time less than this late:
otherwise the machine stood still, and response times are the machine's."""


@dataclass(frozen=True)
class Setting:
    """Under which conditions contenders are compared."""

    rate: float
    load: float
    demands: Demands

    def __str__(self) -> str:
        where = f"{self.rate / MEGABIT:g} Mbit/s, load {self.load:g}"
        return where if self.demands is Demands.PAPER else f"{where}, {self.demands} requirements"


@dataclass(frozen=True)
class Run:
    """One contender in one setting."""

    contender: str
    version: str
    setting: Setting
    seed: int
    found: Found
    driver_late: Times
    utilisation: float
    frames_lost: int
    used: Used

    @property
    def counts(self) -> bool:
        """By the rule above."""
        return self.driver_late.p99 < IN_TIME_MS

    @property
    def title(self) -> str:
        return f"{self.contender}, {self.setting}"


def _lateness(published: Published, conditions: Conditions) -> Times:
    begin = published.start + int(conditions.warm_up * 1e9)
    measured = zip(published.time, published.late, strict=True)
    return Times.of([late / 1e9 for moment, late in measured if moment >= begin])


def attempts(
    contender: Contender,
    setting: Setting,
    workload: Workload,
    line: Line,
    conditions: Conditions,
    place: Namespace,
    again: int,
) -> Iterator[Run]:
    """Runs until one counts, `again` times more at most; every one is told."""
    asking = contenders.asking(workload, setting.demands, setting.load, setting.rate)
    broker = contenders.broker(contender, asking, setting.rate, place.near)
    for _ in range(1 + again):
        offset = time.time() - time.monotonic()
        seen = observe(broker, asking, line, setting.load, conditions, place)
        run = Run(
            str(contender),
            broker.version,
            setting,
            conditions.seed,
            evaluate(asking, seen, conditions, offset),
            _lateness(seen.published, conditions),
            seen.utilisation,
            seen.frames_lost,
            seen.used,
        )
        yield run
        if run.counts:
            return
