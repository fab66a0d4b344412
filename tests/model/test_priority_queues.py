"""Priority M/G/1: Cobham's means, conservation, exact percentiles and how far the fit is off."""

from __future__ import annotations

import math

import pytest

from headgate.model import MG1, Distribution, PriorityMG1

EXPONENTIAL = Distribution.exponential(1.0)
CONSTANT = Distribution.constant(1.0)
VARIED = Distribution.hyperexponential(1.0, 4.0)


def test_cobham() -> None:
    """W_k = R / ((1 - s_{k-1}) (1 - s_k)), worked by hand for three exponential classes."""
    queue = PriorityMG1([0.3, 0.3, 0.2], [EXPONENTIAL] * 3)
    residual = 0.8
    assert queue.mean_wait(0) == pytest.approx(residual / 0.7)
    assert queue.mean_wait(1) == pytest.approx(residual / (0.7 * 0.4))
    assert queue.mean_wait(2) == pytest.approx(residual / (0.4 * 0.2))


def test_preemptive_resume() -> None:
    """T_k = s / (1 - s_{k-1}) + R_k / ((1 - s_{k-1}) (1 - s_k)), R_k of levels up to k alone."""
    queue = PriorityMG1([0.3, 0.3, 0.2], [EXPONENTIAL] * 3, preemptive=True)
    assert queue.mean_response(0) == pytest.approx(1 + 0.3 / 0.7)
    assert queue.mean_response(1) == pytest.approx(1 / 0.7 + 0.6 / (0.7 * 0.4))
    assert queue.mean_response(2) == pytest.approx(1 / 0.4 + 0.8 / (0.4 * 0.2))


@pytest.mark.parametrize("preemptive", [False, True])
@pytest.mark.parametrize("service", [EXPONENTIAL, CONSTANT, VARIED])
def test_one_level_is_mg1(service: Distribution, preemptive: bool) -> None:
    queue, plain = PriorityMG1([0.8], [service], preemptive), MG1(0.8, service)
    assert queue.mean_response(0) == pytest.approx(plain.mean_response)
    second = queue.response_moments[1][0]
    wait, (first, square, _) = plain.mean_wait, service.moments()
    assert second == pytest.approx(plain.wait_second_moment + 2 * wait * first + square)
    assert queue.response_quantile(0, 0.95) == pytest.approx(
        plain.response_quantile(0.95), rel=1e-5
    )


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)])
def test_work_is_conserved_whatever_the_order(order: tuple[int, ...]) -> None:
    """Kleinrock: sum of rho_k W_k depends on the work alone."""
    rates = [0.2, 0.05, 0.3, 0.1]
    services = [CONSTANT, VARIED, EXPONENTIAL, Distribution.erlang(2.0, 3)]
    queue = PriorityMG1([rates[i] for i in order], [services[i] for i in order])
    residual = sum(r * s.moments()[1] for r, s in zip(rates, services, strict=True)) / 2
    load = sum(r * s.mean for r, s in zip(rates, services, strict=True))
    weighted = sum(queue.work.load[k] * queue.mean_wait(k) for k in range(4))
    assert weighted == pytest.approx(load * residual / (1 - load))


def test_overload_below_leaves_the_levels_above_finite() -> None:
    queue = PriorityMG1([0.3, 0.4, 0.9], [EXPONENTIAL] * 3)
    # The server is always busy: level 0 finds a residual service of mean 1.
    assert queue.mean_wait(0) == pytest.approx(1 / 0.7)
    assert queue.mean_wait(1) == pytest.approx(1 / (0.7 * 0.3))
    assert queue.mean_response(2) == math.inf
    assert queue.response_quantile(2, 0.5) == math.inf
    assert 0 < queue.response_quantile(1, 0.95) < math.inf


@pytest.mark.parametrize("preemptive", [False, True])
@pytest.mark.parametrize("service", [EXPONENTIAL, CONSTANT, VARIED])
@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
def test_fitted_percentiles_are_within_twelve_per_cent_of_the_exact_ones(
    service: Distribution, load: float, preemptive: bool
) -> None:
    """docs/model.md has the figures."""
    queue = PriorityMG1([load * 0.3, load * 0.4, load * 0.3], [service] * 3, preemptive)
    for level in range(3):
        for p in (0.95, 0.99):
            exact = queue.response_quantile(level, p)
            assert queue.response_quantile_fitted(level, p) == pytest.approx(exact, rel=0.12)
