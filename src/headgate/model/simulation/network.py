"""What is simulated, in the simulator's own nouns: sources, streams and stations.

`headgate.model.simulation.of_scenario` makes one from a scenario and a policy; tests and benchmarks
build theirs by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from headgate.errors import ConfigurationError
from headgate.model.distributions import Distribution
from headgate.model.simulation.layout import ArrivalKind

ONE_BYTE = Distribution.constant(1.0)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How a source publishes; make one with the methods named after the processes."""

    kind: ArrivalKind
    interval: float
    jitter: float = 0.0
    on: float = 0.0
    off: float = 0.0
    times: tuple[float, ...] = ()

    @staticmethod
    def poisson(rate: float) -> Arrivals:
        return Arrivals(ArrivalKind.POISSON, 1 / _positive(rate, "an arrival rate"))

    @staticmethod
    def periodic(rate: float, jitter: float = 0.0) -> Arrivals:
        """`jitter` is the width of a uniform shift around each nominal time, in periods (<= 1)."""
        period = 1 / _positive(rate, "an arrival rate")
        if not 0 <= jitter <= 1:
            raise ConfigurationError(f"a jitter is a part of the period, 0 to 1, not {jitter}")
        if jitter == 0:
            return Arrivals(ArrivalKind.PERIODIC, period)
        return Arrivals(ArrivalKind.JITTERED, period, jitter=jitter * period)

    @staticmethod
    def bursts(rate: float, on: float, off: float) -> Arrivals:
        """Poisson in exponential ON periods, silent in OFF periods; `rate` is the long-run mean."""
        on, off = _positive(on, "an ON period"), _positive(off, "an OFF period")
        interval = on / (on + off) / _positive(rate, "an arrival rate")
        return Arrivals(ArrivalKind.BURSTS, interval, on=on, off=off)

    @staticmethod
    def trace(times: Sequence[float]) -> Arrivals:
        """At the given times, in seconds from the start."""
        if not times or times[0] < 0 or any(b < a for a, b in pairwise(times)):
            raise ConfigurationError("a trace needs times that are >= 0 and do not go back")
        mean = times[-1] / len(times)
        return Arrivals(ArrivalKind.TRACE, mean, times=tuple(float(time) for time in times))


@dataclass(frozen=True, slots=True)
class Station:
    """A server with a queue, or (with `delay`) a delay that holds any number at once.

    Service takes `service`, or, where that is None, `seconds_per_message` and, for every byte of
    the message, `seconds_per_byte`. `capacity` counts the message in service. With `on` and `off`
    the server comes and goes; service that is interrupted is resumed.
    """

    service: Distribution | None = None
    seconds_per_byte: float = 0.0
    seconds_per_message: float = 0.0
    capacity: int | None = None
    on: Distribution | None = None
    off: Distribution | None = None
    preemptive: bool = False
    delay: bool = False


@dataclass(frozen=True, slots=True)
class Stream:
    """One copy of a source's messages: the stations it passes and how it is treated there."""

    path: tuple[int, ...]
    priority: int = 0
    drop: float = 0.0
    join: float = 1.0
    lifetime: Distribution | None = None
    capacity: int | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A publisher of one topic. `entry` is the station before the copies are made, if any."""

    arrivals: Arrivals
    streams: tuple[Stream, ...]
    size: Distribution = ONE_BYTE
    entry: int | None = None


@dataclass(frozen=True)
class Network:
    """Sources and stations; streams are numbered through all sources in order."""

    sources: Sequence[Source]
    stations: Sequence[Station] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        for station in self.stations:
            if (station.on is None) != (station.off is None):
                raise ConfigurationError("a station that is ON at times needs OFF periods too")
            if station.delay and station.service is None:
                raise ConfigurationError("a delay station needs a service time")
            if station.delay and station.capacity is not None:
                raise ConfigurationError("a delay station holds any number: it has no capacity")
        count = len(self.stations)
        for source in self.sources:
            places = [source.entry] if source.entry is not None else []
            for stream in source.streams:
                places.extend(stream.path)
            if any(not 0 <= place < count for place in places):
                raise ConfigurationError("a path leads to a station that does not exist")

    @property
    def streams(self) -> list[Stream]:
        return [stream for source in self.sources for stream in source.streams]


def _positive(value: float, what: str) -> float:
    if not value > 0:
        raise ConfigurationError(f"{what} must be > 0, not {value}")
    return float(value)
