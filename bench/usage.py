"""Who used the processors while something was measured."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.target import Target, machine_cpu_seconds


@dataclass(frozen=True)
class Used:
    """In cores."""

    broker: float | None
    driver: float
    others: float


class Usage:
    """From its making until `stop`. `helpers` are processes of the driver beside this one."""

    def __init__(self, broker: Target, helpers: Sequence[Target]) -> None:
        self._broker = broker
        self._helpers = helpers
        self._begin = self._read()

    def _read(self) -> tuple[float, float | None, float, float]:
        driver = time.process_time() + sum(helper.cpu_seconds() or 0.0 for helper in self._helpers)
        return time.perf_counter(), self._broker.cpu_seconds(), driver, machine_cpu_seconds()

    def stop(self) -> Used:
        """What each used, on average."""
        begin, broker, driver, machine = self._begin
        end, broker_end, driver_end, machine_end = self._read()
        elapsed = end - begin
        used = 0.0 if broker is None or broker_end is None else broker_end - broker
        own = driver_end - driver
        others = max(0.0, machine_end - machine - own - used)
        share = None if broker is None else used / elapsed
        return Used(share, own / elapsed, others / elapsed)
