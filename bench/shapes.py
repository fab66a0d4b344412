"""The catalogue: what is measured, in which unit, and what Headgate promises for it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial

from bench.connecting import run_connects, run_idle
from bench.latency import run_round_trips
from bench.pipelined import Pattern, run_mixed, run_pattern
from bench.retained import run_retained
from bench.routing import run_routing
from bench.single import run_collected, run_mirrors
from bench.target import Effort, Measurement, Target


@dataclass(frozen=True)
class Metric:
    """One figure of a shape. A goal is a ratio to Mosquitto where more is better."""

    key: str
    unit: str
    label: str = ""
    lower_is_better: bool = False
    goal: float | None = None


@dataclass(frozen=True)
class Shape:
    """One kind of load."""

    name: str
    title: str
    run: Callable[[Target, Effort], Measurement]
    metrics: tuple[Metric, ...]
    relayable: bool = False  # the bare relay can stand in for a broker


PIPELINED_GOALS = {0: 5.0, 1: 3.0, 2: 2.0}
SINGLE_GOAL = 1.0
# A publish may cost this much more among 100,000 other subscriptions: the noise of two runs.
INDEPENDENCE = 0.9

_CPU = Metric("cpu", "s/M msg", "CPU time", lower_is_better=True)
_PATTERNS = {
    "1to1": ("1 → 1", Pattern(1, 1)),
    "1to10": ("1 → 10", Pattern(1, 10)),
    "1to100": ("1 → 100", Pattern(1, 100)),
    "10to1": ("10 → 1", Pattern(10, 1)),
    "100to100": ("100 → 100", Pattern(1, 1, groups=100)),
}


def _pipelined() -> Iterator[Shape]:
    for name, (title, pattern) in _PATTERNS.items():
        for size, text in ((64, "64 B"), (1024, "1 KiB")):
            for qos, goal in PIPELINED_GOALS.items():
                with_cpu = name in ("1to1", "1to10") and size == 64 and qos == 0
                rate = Metric("rate", "msg/s", goal=goal)
                yield Shape(
                    f"{name}-{size}-q{qos}",
                    f"{title}, {text}, QoS {qos}",
                    partial(run_pattern, pattern=pattern, payload=size, qos=qos),
                    (rate, _CPU) if with_cpu else (rate,),
                    relayable=True,
                )


def _mixed() -> Iterator[Shape]:
    for subscribers in (1, 10):
        yield Shape(
            f"mixed-1to{subscribers}",
            f"1 → {subscribers}, a new topic each message, QoS 0",
            partial(run_mixed, subscribers=subscribers),
            (Metric("rate", "msg/s", goal=PIPELINED_GOALS[0]),),
            relayable=True,
        )


def _single() -> Iterator[Shape]:
    metrics = (Metric("rate", "msg/s", goal=SINGLE_GOAL),)
    for qos in (0, 1, 2):
        yield Shape(
            f"single-100-q{qos}",
            f"100 publishers → 1, one message at a time, QoS {qos}",
            partial(run_collected, publishers=100, payload=64, qos=qos),
            metrics,
            relayable=True,
        )
    for qos in (0, 1, 2):
        yield Shape(
            f"single-1000-q{qos}",
            f"1000 connections, one message at a time, QoS {qos}",
            partial(run_mirrors, connections=1000, payload=64, qos=qos),
            metrics,
            relayable=True,
        )


def _routing() -> Iterator[Shape]:
    for others, text in ((0, "0"), (10_000, "10k"), (100_000, "100k")):
        yield Shape(
            f"routing-{text}",
            f"1 → 2 among {others:,} other subscriptions",
            partial(run_routing, others=others, topics=1000),
            (Metric("rate", "msg/s", goal=PIPELINED_GOALS[0]),),
        )
    # So many topics that no cache of routes holds them.
    yield Shape(
        "routing-100k-topics",
        "1 → 2 among 100,000 others, 200,000 topics in turn",
        partial(run_routing, others=100_000, topics=200_000),
        (Metric("rate", "msg/s"),),
    )


def _others() -> Iterator[Shape]:
    yield Shape(
        "rtt",
        "round trip at rest",
        run_round_trips,
        (
            Metric("p50", "µs", "p50", lower_is_better=True, goal=SINGLE_GOAL),
            Metric("p99", "µs", "p99", lower_is_better=True),
        ),
        relayable=True,
    )
    yield Shape("retained", "replay of retained messages", run_retained, (Metric("rate", "msg/s"),))
    for parallel in (1, 50):
        yield Shape(
            f"connect-{parallel}",
            f"connect and leave, {parallel} at a time",
            partial(run_connects, parallel=parallel),
            (Metric("rate", "conn/s"),),
        )
    yield Shape(
        "idle",
        "memory of an idle connection",
        run_idle,
        (Metric("kib", "KiB", lower_is_better=True),),
    )


SHAPES: tuple[Shape, ...] = (*_pipelined(), *_mixed(), *_single(), *_routing(), *_others())


def select(patterns: list[str]) -> list[Shape]:
    """Shapes whose name matches any pattern (`1to1-*`), in the catalogue's order."""
    for pattern in patterns:
        if not any(fnmatchcase(shape.name, pattern) for shape in SHAPES):
            raise ValueError(f"no shape is called {pattern!r}; --list shows their names")
    return [
        shape
        for shape in SHAPES
        if not patterns or any(fnmatchcase(shape.name, pattern) for pattern in patterns)
    ]
