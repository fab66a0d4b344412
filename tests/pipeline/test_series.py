"""Series whose future is known: which model is chosen, how far it errs, what the interval holds."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.pipeline.series import Method, continued, detected_period, regression, seasonal

DAY = 48
"""Steps of half an hour."""


def load(days: float, noise: float = 0.0, trend: float = 0.0, seed: int = 1) -> np.ndarray:
    """A level of 1000 with a daily wave and a smaller one of half a day."""
    x = np.arange(int(days * DAY))
    wave = 300 * np.sin(2 * np.pi * x / DAY) + 100 * np.cos(4 * np.pi * x / DAY)
    drawn = np.random.default_rng(seed).normal(0, noise, len(x)) if noise else 0.0
    return np.asarray(1000 + trend * x + wave + drawn)


def test_the_period_is_found() -> None:
    assert detected_period(load(7, noise=50)) == DAY
    assert detected_period(np.random.default_rng(3).normal(100, 10, 300)) is None
    assert detected_period(np.full(300, 5.0)) is None
    assert detected_period(np.zeros(300)) is None


def test_the_regression_is_right_where_all_of_it_holds() -> None:
    """Without noise it errs by what the ridge and the damping take: under 1 %."""
    whole = load(8, trend=0.5)
    found = regression(whole[: 7 * DAY], DAY, DAY)
    assert np.abs(found - whole[7 * DAY :]).sum() / whole[7 * DAY :].sum() < 0.01


def test_it_is_chosen_where_noise_would_be_repeated() -> None:
    """The baseline repeats yesterday's noise: it errs by √2 of it, the regression by hardly more
    than 1. Mean absolute noise of 80 is 6.4 % of 1000."""
    found = continued(load(10, noise=80)[: 9 * DAY], DAY)
    assert found.method is Method.REGRESSION
    assert found.period == DAY
    assert found.error == pytest.approx(0.064, abs=0.012)
    baseline = [t for t in found.tests if t.method is Method.SEASONAL]
    off = sum(float(np.abs(t.came - t.said).sum()) for t in baseline)
    assert off / sum(float(t.came.sum()) for t in baseline) == pytest.approx(0.09, abs=0.015)


def test_the_baseline_is_chosen_where_the_shape_is_too_sharp_for_waves() -> None:
    """One step in 48 is a hundred times the others: ten waves cannot follow it, yesterday can."""
    values = np.where(np.arange(9 * DAY) % DAY == 17, 1000.0, 10.0)
    found = continued(values, DAY)
    assert found.method is Method.SEASONAL
    assert found.error == 0
    assert found.values.tolist() == values[:DAY].tolist()


def test_the_interval_holds_what_it_promises() -> None:
    """90 % by construction, over twenty series that it was not made of: 84 to 96 %."""
    inside, told = [], []
    for seed in range(20):
        whole = load(10, noise=80, seed=seed)
        found = continued(whole[: 9 * DAY], DAY)
        inside.append(np.mean((whole[9 * DAY :] >= found.low) & (whole[9 * DAY :] <= found.high)))
        told.append(found.coverage)
    assert np.mean(inside) == pytest.approx(0.9, abs=0.06)
    assert np.mean(told) == pytest.approx(0.9, abs=0.06)


def test_gaps_are_not_zeros() -> None:
    whole = load(10, noise=20)
    known = whole[: 9 * DAY].copy()
    known[3 * DAY : 4 * DAY] = np.nan
    known[-5:] = np.nan
    found = continued(known, DAY)
    assert np.abs(found.values - whole[9 * DAY :]).sum() / whole[9 * DAY :].sum() < 0.05
    # Yesterday's evening is not known: the one before is taken.
    assert seasonal(known, DAY, DAY)[-5:].tolist() == whole[8 * DAY - 5 : 8 * DAY].tolist()


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_of_a_new_series_what_came_last_is_said_and_no_error(steps: int) -> None:
    values = np.linspace(10, 20, steps)
    found = continued(values, 4)
    assert found.method is Method.LAST
    assert found.values.tolist() == [values[-1]] * 4
    assert (found.error, found.coverage) == (None, None)
    assert found.low.tolist() == [10.0] * 4
    assert found.high.tolist() == [values.max()] * 4


def test_a_given_period_is_used_before_two_of_them_are_known() -> None:
    values = load(1.2)
    found = continued(values, 4, DAY)
    assert found.method is Method.SEASONAL
    assert found.error is None
    assert found.values.tolist() == values[len(values) - DAY :][:4].tolist()


def test_nothing_stays_nothing() -> None:
    found = continued(np.zeros(200), 10)
    assert found.values.tolist() == [0.0] * 10
    assert (found.low.tolist(), found.high.tolist()) == ([0.0] * 10, [0.0] * 10)
    assert found.error == 0


def test_nothing_is_forecast_below_zero() -> None:
    falling = np.maximum(1000 - 5 * np.arange(220.0), 0)
    found = continued(falling, 60)
    assert (found.values >= 0).all()
    assert (found.low >= 0).all()
    assert (found.low <= found.values).all()
    assert (found.values <= found.high).all()


def test_nobody_knows_anything_of_a_series_of_gaps() -> None:
    found = continued(np.full(20, np.nan), 3)
    assert found.values.tolist() == [0.0] * 3
    assert np.isfinite(found.low).all()
