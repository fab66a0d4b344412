"""The ON/OFF queue: the paper's equations, a numerical solution that shares nothing with them, and
the figures known for the paper's experiments (mu = 8/s, T_ON = T_OFF = 20 s)."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.model import Feasible, Infeasible, LimitedOnOffQueue, OnOffQueue
from headgate.model.inverse import largest_join


def paper(arrival_rate: float, join: float) -> OnOffQueue:
    return OnOffQueue(arrival_rate, 8.0, 20.0, 20.0, join)


@pytest.mark.parametrize(
    ("join", "response"), [(0.25, 4.593), (0.5, 8.0), (0.75, 10.949), (1.0, 13.667)]
)
def test_mean_response_at_one_message_per_second(join: float, response: float) -> None:
    assert paper(1.0, join).mean_response == pytest.approx(response, abs=5e-4)


@pytest.mark.parametrize(
    ("arrival_rate", "join"),
    [
        (0.05, 0.497),
        (1.0, 0.417),
        (2.0, 0.350),
        (3.0, 0.292),
        (3.8, 0.249),
        (5.0, 0.186),
        (6.0, 0.130),
        (7.0, 0.065),
        (7.7, 0.001),
    ],
)
def test_join_probability_that_meets_seven_seconds(arrival_rate: float, join: float) -> None:
    answer = largest_join(arrival_rate, 8.0, 20.0, 20.0, 7.0, input_rate=16.0)
    assert isinstance(answer, Feasible)
    assert answer.value == pytest.approx(join, abs=6e-4)
    assert answer.achieved == pytest.approx(7.0, abs=1e-6)
    assert answer.achieved <= 7.0
    queue = paper(arrival_rate, answer.value)
    assert queue.success_rate == pytest.approx((1 + answer.value) / 2)


GRID = [
    (lam, mu, on, off, join)
    for lam in (0.05, 1.0, 3.0, 6.0)
    for mu in (8.0, 30.0)
    for on, off in ((20.0, 20.0), (150.6, 78.0), (5.0, 60.0))
    for join in (0.0, 0.1, 0.5, 1.0)
]


@pytest.mark.parametrize("parameters", GRID, ids=str)
def test_equation_25_agrees_with_the_numerical_solution(parameters: tuple[float, ...]) -> None:
    queue = OnOffQueue(*parameters)
    chain = queue.chain()
    # The drift condition knows nothing of Eq. 22: stability is a result here as well.
    assert bool(queue.stable) == chain.stable
    if not queue.stable:
        assert queue.mean_number == np.inf
        return
    start, _ = chain.stationary()
    assert np.array(queue.empty_probability) == pytest.approx(start, rel=1e-8, abs=1e-12)
    assert queue.mean_number == pytest.approx(chain.mean_level(), rel=1e-7)
    # The spectral form behind the percentiles is a third way to the same mean.
    assert queue.response_moments()[0] == pytest.approx(queue.mean_response, rel=1e-8)


def test_the_printed_stability_condition_is_wrong() -> None:
    """1 - lambda_eff / mu < 1 holds for lambda = 5, zeta = 1, where the queue grows without end."""
    queue = paper(5.0, 1.0)
    assert 1 - 5.0 / 8.0 < 1
    assert not queue.stable
    assert not queue.chain().stable
    assert queue.utilisation == pytest.approx(5 / 8 * 2)


def test_joining_always_gives_equation_27() -> None:
    """Eq. 27 as a fraction; its second form needs p' = p / P(ON), not the product printed."""
    lam, mu, on, off = 1.0, 8.0, 30.0, 12.0
    theta_on, theta_off, p = 1 / on, 1 / off, lam / mu
    number = (lam * theta_on + p * (theta_on + theta_off) ** 2) / (
        (theta_off - p * (theta_on + theta_off)) * (theta_on + theta_off)
    )
    queue = OnOffQueue(lam, mu, on, off)
    assert queue.mean_number == pytest.approx(number)
    busy = p / queue.on_probability
    assert number == pytest.approx((busy + lam * off * queue.off_probability) / (1 - busy))


@pytest.mark.parametrize("join", [0.05, 0.5, 1.0])
def test_the_tail_integrates_to_the_mean_and_inverts_to_quantiles(join: float) -> None:
    queue = paper(2.0, join)
    t = np.linspace(0, 2000, 400_001)
    tail = queue.response_tail(t)
    assert tail[0] == pytest.approx(1.0)
    assert np.trapezoid(tail, t) == pytest.approx(queue.mean_response, rel=1e-4)
    for p in (0.1, 0.5, 0.95, 0.99, 0.9999):
        assert queue.response_tail(queue.response_quantile(p)) == pytest.approx(1 - p, rel=1e-6)


@pytest.mark.parametrize("own_join", [False, True], ids=["the queue's join", "a flow's own"])
def test_quantiles_of_any_queue_are_where_halving_finds_them(own_join: bool) -> None:
    """Periods and rates over four decades, up to a load of 0.9999, joins from none to all."""
    rng = np.random.default_rng(4)
    count = 3000
    on, off, mu = (
        10 ** rng.uniform(-1, 4, count),
        10 ** rng.uniform(-1, 4, count),
        10 ** rng.uniform(-1, 3, count),
    )
    join = np.where(
        rng.random(count) < 0.3, rng.choice([0, 1e-9, 1e-3, 0.05, 1.0], count), rng.random(count)
    )
    load = np.where(
        rng.random(count) < 0.3, 1 - 10 ** rng.uniform(-4, -0.3, count), rng.random(count)
    )
    queue = OnOffQueue(load * mu / (1 + join * off / on), mu, on, off, join)
    assert queue.stable.all()
    response = queue.response(rng.random(count) if own_join else None)
    ranks = (0.05, 0.5, 0.9, 0.95, 0.99, 0.99999)
    found = response.quantiles(ranks)
    low, high = np.zeros(count), np.full(count, 1e-6)
    for p in ranks:
        while (outside := response.tail(high) > 1 - p).any():
            high = np.where(outside, 2 * high, high)
        least, most = low, high
        for _ in range(60):
            middle = (least + most) / 2
            above = response.tail(middle) > 1 - p
            least, most = np.where(above, middle, least), np.where(above, most, middle)
        assert found[p] == pytest.approx(most, rel=1e-8)
        assert found[p] == pytest.approx(response.quantile(p), rel=1e-9)


def test_a_client_that_hardly_leaves_is_mm1() -> None:
    queue = OnOffQueue(6.0, 8.0, 1e7, 1e-3)
    assert queue.mean_response == pytest.approx(1 / 2, rel=1e-3)
    assert queue.response_quantile(0.99) == pytest.approx(-np.log(0.01) / 2, rel=1e-3)


def test_flows_of_one_client_with_different_joins_average_to_the_queue() -> None:
    queue = OnOffQueue(3.0, 8.0, 20.0, 20.0, join=0.3)
    joins = np.array([0.1, 0.5])  # at equal rates: 0.3 together
    each, _ = queue.response_moments(joins)
    weights = 0.5 + 0.5 * joins
    assert np.average(np.asarray(each), weights=weights) == pytest.approx(queue.mean_response)


def test_arrays_answer_element_by_element() -> None:
    rates = np.array([0.5, 3.0, 5.0])
    together = paper(rates, 1.0).response_quantile(0.95)  # type: ignore[arg-type]
    for rate, value in zip(rates, np.asarray(together), strict=True):
        assert value == pytest.approx(paper(rate, 1.0).response_quantile(0.95))
    assert np.isinf(np.asarray(together)[2])


def test_ample_capacity_and_lifetime_change_nothing() -> None:
    free = paper(1.0, 1.0).mean_response
    ample = LimitedOnOffQueue(1.0, 8.0, 20.0, 20.0, capacity=600)
    assert ample.mean_response == pytest.approx(free, rel=1e-6)
    eternal = LimitedOnOffQueue(1.0, 8.0, 20.0, 20.0, lifetime_s=1e6)
    assert eternal.mean_response == pytest.approx(free, rel=1e-3)
    assert eternal.success_rate == pytest.approx(1, abs=1e-4)


def test_infeasible_thresholds_say_why() -> None:
    fast = largest_join(1.0, 8.0, 20.0, 20.0, 0.01)
    assert isinstance(fast, Infeasible)
    assert "even if everything is dropped" in fast.reason
    assert fast.closest == pytest.approx(float(paper(1.0, 0.0).mean_response))
    flooded = largest_join(9.0, 8.0, 20.0, 20.0, 7.0)
    assert isinstance(flooded, Infeasible)
    assert "overloaded" in flooded.reason
    choked = largest_join(17.0, 30.0, 20.0, 20.0, 7.0, input_rate=16.0)
    assert isinstance(choked, Infeasible)
    assert "input queue" in choked.reason


def test_a_percentile_can_be_the_threshold() -> None:
    answer = largest_join(1.0, 8.0, 20.0, 20.0, 30.0, percentile=95)
    assert isinstance(answer, Feasible)
    assert paper(1.0, answer.value).response_quantile(0.95) == pytest.approx(30.0, rel=1e-6)
