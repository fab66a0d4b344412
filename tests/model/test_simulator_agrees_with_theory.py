"""Confidence intervals against closed forms: single queues, priorities, and the grids of ON/OFF."""

from __future__ import annotations

import math

import pytest

from headgate.model import (
    MG1,
    MM1,
    MM1K,
    Distribution,
    LimitedOnOffQueue,
    OnOffQueue,
    PriorityMG1,
)
from headgate.model.simulation import Outcome, Station, Stream

from .simulating import assert_agrees, one_station

ONE = Distribution.constant(1.0)
EXPONENTIAL = Distribution.exponential(1.0)


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_mm1(load: float) -> None:
    queue = MM1(load, 1.0)
    measured = one_station(Station(service=EXPONENTIAL), [(load, Stream((0,)), ONE)]).group()
    assert_agrees(measured.mean, queue.mean_response, precision=0.02)
    assert_agrees(measured.percentile(99), queue.response_quantile(0.99), precision=0.05)
    assert measured.throughput == pytest.approx(load, rel=0.01)


@pytest.mark.parametrize(
    "service",
    [
        Distribution.constant(1.0),
        Distribution.uniform(0.2, 1.8),
        Distribution.erlang(1.0, 4),
        Distribution.hyperexponential(1.0, 4.0),
        Distribution.lognormal(1.0, 2.0),
        Distribution.empirical([0.1, 0.4, 2.5]),
    ],
    ids=lambda service: service.kind.name,
)
def test_mg1_by_size(service: Distribution) -> None:
    queue = MG1(0.7, service)
    measured = one_station(Station(seconds_per_byte=1.0), [(0.7, Stream((0,)), service)]).group()
    assert_agrees(measured.mean, queue.mean_response, precision=0.03)
    assert measured.bit_rate == pytest.approx(8 * 0.7, rel=0.02)


def test_thinned_arrivals() -> None:
    queue = MM1(0.9 * 0.6, 1.0)
    stream = Stream((0,), drop=0.4)
    measured = one_station(Station(service=EXPONENTIAL), [(0.9, stream, ONE)]).group()
    assert_agrees(measured.mean, queue.mean_response, precision=0.02)
    assert_agrees(measured.loss, 0.4, precision=0.01)
    assert measured.fraction(Outcome.THINNED) == pytest.approx(measured.loss.value)


@pytest.mark.parametrize("load", [0.8, 1.5])
def test_finite_buffer(load: float) -> None:
    queue = MM1K(load, 1.0, 6)
    station = Station(service=EXPONENTIAL, capacity=6)
    measured = one_station(station, [(load, Stream((0,)), ONE)]).group()
    assert_agrees(measured.mean, queue.mean_response, precision=0.02)
    assert_agrees(measured.loss, queue.loss, precision=0.04)


PRIORITIES = [
    ([0.3, 0.3, 0.2], [EXPONENTIAL, EXPONENTIAL, EXPONENTIAL]),
    ([0.1, 0.2, 0.2, 0.3], [Distribution.constant(1.0)] * 4),
    (
        [0.4, 0.1, 0.05],
        [
            Distribution.constant(0.5),
            Distribution.hyperexponential(2.0, 3.0),
            Distribution.erlang(6.0, 2),
        ],
    ),
]


@pytest.mark.parametrize("preemptive", [False, True])
@pytest.mark.parametrize(("rates", "services"), PRIORITIES)
def test_priorities(rates: list[float], services: list[Distribution], preemptive: bool) -> None:
    queue = PriorityMG1(rates, services, preemptive)
    streams = [
        (rate, Stream((0,), priority=level), size)
        for level, (rate, size) in enumerate(zip(rates, services, strict=True))
    ]
    measured = one_station(Station(seconds_per_byte=1.0, preemptive=preemptive), streams)
    for level in range(len(rates)):
        group = measured.group([level])
        assert_agrees(group.mean, queue.mean_response(level), precision=0.05)
        variance = queue.response_moments[1][level] - queue.response_moments[0][level] ** 2
        assert group.variance == pytest.approx(variance, rel=0.15)
        exact = queue.response_quantile(level, 0.95)
        assert_agrees(group.percentile(95), exact, precision=0.15)


def seconds_for(arrival_rate: float) -> float:
    """Long enough for the periods to average out, and no more messages than that takes."""
    if arrival_rate < 0.1:
        return 400_000.0
    return 100_000.0 if arrival_rate < 5 else 50_000.0


def on_off(**options: object) -> Station:
    period = Distribution.exponential(20.0)
    return Station(service=Distribution.exponential(1 / 8), on=period, off=period, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("join", [0.25, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("arrival_rate", [0.05, 1.0, 2.0, 3.0])
def test_onoff_queue_on_the_grid_of_figure_4(arrival_rate: float, join: float) -> None:
    queue = OnOffQueue(arrival_rate, 8.0, 20.0, 20.0, join)
    measured = one_station(
        on_off(),
        [(arrival_rate, Stream((0,), join=join), ONE)],
        horizon=seconds_for(arrival_rate),
    ).group()
    assert_agrees(measured.mean, float(queue.mean_response), precision=0.08)
    assert_agrees(measured.percentile(95), float(queue.response_quantile(0.95)), precision=0.08)
    success = float(queue.success_rate)
    assert abs(measured.loss.value - (1 - success)) <= max(2 * measured.loss.half_width, 1e-12)
    assert measured.fraction(Outcome.REFUSED) == measured.loss.value


@pytest.mark.parametrize("capacity", [1, 10, 40])
@pytest.mark.parametrize("arrival_rate", [0.05, 3.0, 7.7])
def test_onoff_queue_with_finite_capacity(arrival_rate: float, capacity: int) -> None:
    queue = LimitedOnOffQueue(arrival_rate, 8.0, 20.0, 20.0, capacity=capacity)
    measured = one_station(
        on_off(capacity=capacity),
        [(arrival_rate, Stream((0,)), ONE)],
        horizon=seconds_for(arrival_rate),
    ).group()
    assert_agrees(measured.mean, queue.mean_response, precision=0.06)
    loss = 1 - queue.success_rate
    assert measured.loss.covers(loss, widths=2) or loss < 1e-9
    # Half of all messages come in ON periods.
    failed_on = 2 * measured.fraction(Outcome.OVERFLOW)
    assert failed_on == pytest.approx(queue.loss_while_on, rel=0.1, abs=2e-3)


@pytest.mark.parametrize("lifetime", [5.0, 40.0])
@pytest.mark.parametrize("arrival_rate", [0.05, 3.0, 7.7])
def test_onoff_queue_with_exponential_lifetimes(arrival_rate: float, lifetime: float) -> None:
    queue = LimitedOnOffQueue(arrival_rate, 8.0, 20.0, 20.0, lifetime_s=lifetime)
    stream = Stream((0,), lifetime=Distribution.exponential(lifetime))
    measured = one_station(
        on_off(), [(arrival_rate, stream, ONE)], horizon=seconds_for(arrival_rate)
    ).group()
    assert_agrees(measured.mean, queue.mean_response, precision=0.06)
    assert measured.loss.covers(1 - queue.success_rate, widths=2)
    assert measured.fraction(Outcome.EXPIRED) == measured.loss.value


def test_constant_lifetime_bounds_every_response() -> None:
    stream = Stream((0,), lifetime=Distribution.constant(9.0))
    measured = one_station(on_off(), [(1.0, stream, ONE)], horizon=50_000.0).group()
    assert measured.largest < 9.0
    # Those that come in OFF live exp(20 s) to the next ON period: most of them expire.
    assert 0.5 * math.exp(-9 / 20) * 0.9 < measured.loss.value < 0.5


def test_capacity_and_lifetime_together_free_the_places_of_the_expired() -> None:
    """A full queue of expired messages must not refuse: only live ones may take the places."""
    station = Station(service=Distribution.constant(1e6), capacity=3)
    stream = Stream((0,), lifetime=Distribution.constant(1.0))
    measured = one_station(station, [(1.0, stream, ONE)], horizon=20_000.0, warmup=0.0).group()
    # Nothing is ever served: this is M/D/3/3, and Erlang's B(3, 1) = 1/16 holds for any lifetime.
    assert measured.fraction(Outcome.OVERFLOW) == pytest.approx(1 / 16, rel=0.05)
    assert measured.delivered == 0


def test_delay_station_is_an_infinite_server() -> None:
    station = Station(service=Distribution.exponential(3.0), delay=True)
    measured = one_station(station, [(50.0, Stream((0,)), ONE)], horizon=10_000.0).group()
    assert_agrees(measured.mean, 3.0, precision=0.01)
    assert_agrees(measured.percentile(95), -3 * math.log(0.05), precision=0.02)


def test_tandem_of_mm1_queues_is_a_jackson_network() -> None:
    from headgate.model.simulation import Arrivals, Network, Source, simulate

    stations = [Station(service=EXPONENTIAL), Station(service=Distribution.exponential(0.8))]
    source = Source(Arrivals.poisson(0.7), (Stream((0, 1)),))
    entered = Source(Arrivals.poisson(0.7), (Stream((1,)),), entry=0)
    truth = MM1(0.7, 1.0).mean_response + MM1(0.7, 1 / 0.8).mean_response
    for way in (source, entered):
        measured = simulate(
            Network([way], stations), horizon=400_000, warmup=4000, replications=4
        ).group()
        assert_agrees(measured.mean, truth, precision=0.02)
