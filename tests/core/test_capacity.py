"""The estimate of a path's capacity, on simulated paths whose capacity is known.

A path is a first-in, first-out queue with a rate; receivers may hold back acknowledgements. The
broker always keeps what the pace does not allow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from statistics import mean

import pytest

from headgate.core.capacity import LEAST, Capacity, Phase, Reading

LOOK = 0.1
STEP = 0.002
MEGABIT = 125_000.0
"""Bytes per second."""


@dataclass
class Simulation:
    """A path with its sender. `rate` and `demand` are bytes per second, by time."""

    rate: Callable[[float], float]
    demand: Callable[[float], float]
    round_trip: float = 0.001
    hold: float = 0.0
    """Seconds for which receivers hold back what they acknowledge."""
    seed: int = 1
    capacity: Capacity = field(default_factory=Capacity)
    now: float = 0.0
    waiting: float = 0.0
    """In the broker."""
    queue: float = 0.0
    """On the path."""
    coming: list[tuple[float, float]] = field(default_factory=list)
    """When how many bytes are going to be acknowledged."""
    queues: list[float] = field(default_factory=list)
    """Seconds of queue on the path, at each look."""
    output: list[float] = field(default_factory=list)
    """Bytes per second that left the path, at each look."""
    phases: list[Phase] = field(default_factory=list)

    def run(self, seconds: float) -> Simulation:
        rng = Random(self.seed)
        for _ in range(round(seconds / LOOK)):
            self._look(rng)
        return self

    def _look(self, rng: Random) -> None:
        sent = delivered = passed = 0.0
        eager = False
        for _ in range(round(LOOK / STEP)):
            self.waiting += self.demand(self.now) * STEP * rng.expovariate(1.0)
            pace = self.capacity.pace
            going = min(self.waiting, pace * STEP) if pace else self.waiting
            self.waiting -= going
            eager = self.waiting > 0.0
            self.queue += going
            sent += going
            leaving = min(self.queue, self.rate(self.now) * STEP)
            self.queue -= leaving
            passed += leaving
            due = self.now + self.round_trip + self.hold * rng.random()
            heappush(self.coming, (due, leaving))
            while self.coming and self.coming[0][0] <= self.now:
                delivered += heappop(self.coming)[1]
            self.now += STEP
        backlog = self.queue + sum(size for _, size in self.coming)
        reading = Reading(LOOK, sent, delivered, backlog, self.round_trip, eager)
        self.capacity.follow(reading)
        self.queues.append(self.queue / self.rate(self.now))
        self.output.append(passed / LOOK)
        self.phases.append(self.capacity.phase)


def steady(value: float) -> Callable[[float], float]:
    return lambda _: value


@pytest.mark.parametrize("megabits", [0.256, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("hold", [0.0, 0.04])
@pytest.mark.parametrize("round_trip", [0.0002, 0.05])
def test_a_saturated_path_is_found_and_its_queue_moves_into_the_broker(
    megabits: float, hold: float, round_trip: float
) -> None:
    rate = megabits * MEGABIT
    simulation = Simulation(steady(rate), steady(1.5 * rate), round_trip, hold).run(30)
    settled = slice(100, None)
    assert mean(simulation.output[settled]) > 0.85 * rate
    # Acknowledgements that come 0 to 40 ms late blur a queue of that size.
    assert mean(simulation.queues[settled]) < (0.015 if hold else 0.002)
    assert max(simulation.queues[settled]) < (0.15 if hold else 0.02)
    assert simulation.capacity.rate == pytest.approx(rate, rel=0.2 if hold else 0.05)


@pytest.mark.parametrize("hold", [0.0, 0.04])
def test_it_follows_the_path_down_and_up(hold: float) -> None:
    def rate(now: float) -> float:
        return (5.0 if 15.0 <= now < 30.0 else 10.0) * MEGABIT

    simulation = Simulation(rate, steady(15 * MEGABIT), hold=hold).run(45)
    # Down: the queue that the old pace leaves is gone within two seconds.
    assert max(simulation.queues[175:295]) < (0.15 if hold else 0.05)
    assert mean(simulation.queues[175:295]) < 0.015
    assert mean(simulation.output[175:295]) > 0.85 * 5 * MEGABIT
    # Up: within four seconds.
    assert mean(simulation.output[340:]) > 0.9 * 10 * MEGABIT


def test_a_tenfold_loss_of_rate_is_survived() -> None:
    def rate(now: float) -> float:
        return (1.0 if now >= 15.0 else 10.0) * MEGABIT

    simulation = Simulation(rate, steady(15 * MEGABIT)).run(40)
    assert max(simulation.queues[250:]) < 0.1
    assert mean(simulation.output[250:]) > 0.85 * MEGABIT


@pytest.mark.parametrize("load", [0.05, 0.5, 0.8])
@pytest.mark.parametrize("hold", [0.0, 0.04])
@pytest.mark.parametrize("round_trip", [0.0002, 0.3])
def test_a_path_without_congestion_is_never_paced(
    load: float, hold: float, round_trip: float
) -> None:
    """However slow its acknowledgements are: they must not be taken for a queue."""
    rate = 10 * MEGABIT
    simulation = Simulation(steady(rate), steady(load * rate), round_trip, hold).run(30)
    assert set(simulation.phases) == {Phase.FREE}


def test_a_queue_that_comes_again_and_again_is_congestion() -> None:
    """Four times a second half a tenth of a second of the path too much, for half of the time."""
    rate = 10 * MEGABIT

    def demand(now: float) -> float:
        return 1.6 * rate if now % 0.25 < 0.12 else 0.0

    simulation = Simulation(steady(rate), demand).run(30)
    assert max(simulation.queues[:50]) > 0.03
    assert max(simulation.queues[100:]) < 0.04
    assert simulation.capacity.rate == pytest.approx(rate, rel=0.1)


def test_a_burst_is_no_congestion() -> None:
    """A tenth of a second of the path, at once, every second."""
    rate = 10 * MEGABIT

    def demand(now: float) -> float:
        return 100 * rate if now % 1.0 < 0.001 else 0.0

    assert set(Simulation(steady(rate), demand).run(20).phases) == {Phase.FREE}


@pytest.mark.parametrize("hold", [0.0, 0.04])
def test_what_was_learned_outlives_silence_and_a_thin_trickle(hold: float) -> None:
    """Nothing that comes with little traffic may talk the pace down."""
    rate = 10 * MEGABIT

    def demand(now: float) -> float:
        if now < 10.0:
            return 1.5 * rate
        return 0.02 * rate if now % 2.0 < 1.0 else 0.3 * rate

    simulation = Simulation(steady(rate), demand, hold=hold).run(60)
    assert simulation.capacity.rate > 0.8 * rate


@pytest.mark.parametrize("hold", [0.0, 0.04])
def test_a_pace_that_is_far_too_low_rises_within_seconds(hold: float) -> None:
    rate = 100 * MEGABIT

    def path(now: float) -> float:
        return rate / 100 if now < 10.0 else rate

    simulation = Simulation(path, steady(1.5 * rate), hold=hold).run(20)
    assert mean(simulation.output[150:]) > 0.85 * rate


def test_after_long_calm_there_is_no_pace_any_more() -> None:
    rate = MEGABIT
    demand = lambda now: 1.5 * rate if now < 5.0 else 0.1 * rate  # noqa: E731
    simulation = Simulation(steady(rate), demand).run(320)
    assert Phase.CRUISE in simulation.phases
    assert simulation.capacity.phase is Phase.FREE
    assert simulation.capacity.pace == 0.0


def test_a_path_that_is_dead_is_not_waited_for_without_end() -> None:
    def rate(now: float) -> float:
        return 1.0 if 10.0 <= now < 20.0 else MEGABIT

    simulation = Simulation(rate, steady(1.5 * MEGABIT)).run(40)
    assert min(simulation.capacity.pace, simulation.capacity.rate) >= LEAST
    assert mean(simulation.output[300:]) > 0.85 * MEGABIT
