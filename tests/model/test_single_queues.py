"""Closed forms of one class, held against each other and against textbook numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headgate.model import MG1, MM1, MM1K, Distribution, LimitedOnOffQueue

LOADS = [0.1, 0.5, 0.9, 0.99]


@pytest.mark.parametrize("load", LOADS)
def test_mg1_with_exponential_service_is_mm1(load: float) -> None:
    general, markov = MG1(load, Distribution.exponential(1.0)), MM1(load, 1.0)
    assert general.mean_response == pytest.approx(markov.mean_response, rel=1e-12)
    assert general.mean_number == pytest.approx(markov.mean_number, rel=1e-12)
    for p in (0.5, 0.95, 0.99):
        # The inversion's own error, 1e-8 of probability, is all that separates them.
        assert general.response_quantile(p) == pytest.approx(markov.response_quantile(p), rel=1e-5)


def test_constant_service_halves_the_wait() -> None:
    constant = MG1(0.8, Distribution.constant(1.0))
    exponential = MG1(0.8, Distribution.exponential(1.0))
    assert constant.mean_wait == pytest.approx(exponential.mean_wait / 2)


def test_md1_wait_agrees_with_erlangs_formula() -> None:
    """P(W <= t) of M/D/1 has a finite sum (Erlang 1909); the inversion must find it."""
    load = 0.7

    def erlang(t: float) -> float:
        terms = [
            (load * (k - t)) ** k / math.factorial(k) * math.exp(-load * (k - t))
            for k in range(math.floor(t) + 1)
        ]
        return (1 - load) * math.fsum(terms)

    queue = MG1(load, Distribution.constant(1.0))
    for p in (0.5, 0.8, 0.95, 0.99):
        # The density has a jump at t = 1, near which the inversion is less than perfect.
        assert erlang(queue.wait_quantile(p)) == pytest.approx(p, abs=1e-4)


GENERAL = [
    Distribution.uniform(0.5, 1.5),
    Distribution.erlang(1.0, 3),
    Distribution.hyperexponential(1.0, 5.0),
    Distribution.empirical([0.2, 0.4, 2.4]),
]


@pytest.mark.parametrize(
    "service", [*GENERAL, Distribution.lognormal(1.0, 1.0)], ids=lambda service: service.kind.name
)
def test_quantile_and_mean_of_a_distribution_agree(service: Distribution) -> None:
    """The mean is the integral of the quantile."""
    points = (np.arange(20_000) + 0.5) / 20_000
    mean = np.mean([service.quantile(float(p)) for p in points[::10]])
    assert mean == pytest.approx(service.mean, rel=0.02)


@pytest.mark.parametrize("service", GENERAL, ids=lambda service: service.kind.name)
def test_transform_and_moments_of_a_distribution_agree(service: Distribution) -> None:
    first, second, third = service.moments()
    h = 1e-3
    points = np.array([-2 * h, -h, 0, h, 2 * h]) + 0j
    values = service.transform(points).real
    slope = (values[3] - values[1]) / (2 * h)
    curve = (values[3] - 2 * values[2] + values[1]) / h**2
    twist = (values[4] - 2 * values[3] + 2 * values[1] - values[0]) / (2 * h**3)
    assert -slope == pytest.approx(first, rel=1e-3)
    assert curve == pytest.approx(second, rel=1e-3)
    assert -twist == pytest.approx(third, rel=1e-2)


def test_finite_buffer_approaches_the_infinite_one() -> None:
    assert MM1K(0.7, 1.0, 200).mean_response == pytest.approx(MM1(0.7, 1.0).mean_response)
    assert MM1K(0.7, 1.0, 200).response_quantile(0.99) == pytest.approx(
        MM1(0.7, 1.0).response_quantile(0.99), rel=1e-6
    )


@pytest.mark.parametrize("load", [0.3, 1.0, 1.0 + 1e-9, 5.0, 400.0])
def test_finite_buffer_is_finite_at_any_load(load: float) -> None:
    queue = MM1K(load, 1.0, 30)
    assert queue.throughput == pytest.approx(1 - queue.probabilities[0], rel=1e-9)
    assert 0 < queue.mean_response <= 30


@pytest.mark.parametrize("capacity", [1, 5, 40])
def test_mm1k_is_the_limited_onoff_queue_of_a_client_that_stays(capacity: int) -> None:
    stays = LimitedOnOffQueue(7.0, 8.0, on_s=1e9, off_s=1e-6, capacity=capacity)
    queue = MM1K(7.0, 8.0, capacity)
    assert stays.mean_response == pytest.approx(queue.mean_response, rel=1e-6)
    assert stays.success_rate == pytest.approx(1 - queue.loss, rel=1e-6)


def test_unstable_queues_answer_with_infinity() -> None:
    assert MM1(2.0, 1.0).mean_response == math.inf
    overloaded = MG1(2.0, Distribution.constant(1.0))
    assert overloaded.mean_response == math.inf
    assert overloaded.response_quantile(0.5) == math.inf
    assert overloaded.throughput == 1.0
