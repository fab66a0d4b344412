"""Holding back what a path did not take in time, on simulated paths whose rate is known.

A saturated link, paced at 98 % of its rate by `Link` itself; the path is a first-in, first-out
queue; receivers may hold back acknowledgements.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from headgate.core.link import Link
from headgate.core.restraint import PATIENCE, SHARE, Restraint

RATE = 1_250_000.0
LOOK = 0.02
STEP = 0.0005


def simulate(
    path: Callable[[float], float],
    seconds: float,
    *,
    round_trip: float = 0.001,
    held: float = 0.0,
    restrained: bool = True,
) -> tuple[list[float], float]:
    """Seconds of queue on the path at each look, and bytes per second that went through it."""
    link, restraint = Link(), Restraint()
    link.pace(0.98 * RATE)
    queue = passed = 0.0
    unanswered: deque[tuple[float, float]] = deque()
    queues = []
    for step in range(round(seconds / STEP)):
        now = step * STEP
        link.refill(now)
        while link.tokens > 0.0:
            link.charge(2, 1448)
            queue += 1514.0
        leaving = min(queue, path(now) * STEP)
        queue -= leaving
        passed += leaving
        unanswered.append((now + round_trip + held, leaving))
        while unanswered and unanswered[0][0] <= now:
            unanswered.popleft()
        if step % round(LOOK / STEP) == 0:
            under_way = queue + sum(size for _, size in unanswered)
            ahead = link.burst - link.tokens
            excess = restraint.excess(LOOK, under_way, ahead, link.rate, link.burst, round_trip)
            if restrained:
                link.tokens -= excess
            queues.append(queue / RATE)
    return queues, passed / seconds


def stands_still(now: float) -> float:
    """For 40 ms, once: 50 kB stay on the path."""
    return 0.0 if 1.0 <= now < 1.04 else RATE


def test_what_a_standstill_left_on_the_path_is_drained_in_a_few_looks() -> None:
    queues, _ = simulate(stands_still, 3.0)
    assert max(queues) > 0.025
    assert max(queues[round(1.2 / LOOK) :]) < 0.007


def test_without_it_the_queue_would_stay_for_seconds() -> None:
    queues, _ = simulate(stands_still, 3.0, restrained=False)
    assert min(queues[round(1.2 / LOOK) : round(1.8 / LOOK)]) > 0.02


@pytest.mark.parametrize("round_trip", [0.0002, 0.02, 0.2])
def test_a_path_that_keeps_its_rate_is_used_as_before(round_trip: float) -> None:
    _, through = simulate(lambda _: RATE, 20.0, round_trip=round_trip)
    assert through == pytest.approx(0.98 * RATE, rel=0.002)


def test_receivers_that_hold_back_acknowledgements_cost_a_bounded_part() -> None:
    _, through = simulate(lambda _: RATE, 60.0, held=0.1)
    assert through > (0.98 * (1.0 - SHARE) - PATIENCE / 60.0) * RATE


def test_a_path_slower_than_its_rate_is_not_followed_for_ever() -> None:
    restraint = Restraint()
    for _ in range(200):
        restraint.excess(LOOK, 10 * RATE, 0.0, RATE, 0.0, 0.0)
    assert restraint.exhausted
