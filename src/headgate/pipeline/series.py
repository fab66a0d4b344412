"""One series of loads, continued: a seasonal baseline, a regression, and which of them to believe.

A series is loads at equal steps; a step of which nothing is known is not a number, and never a
zero. Both models are asked what they would have said at earlier times (rolling origin), from what
was known then; who erred less is chosen, and its errors give the interval.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ORIGINS = 8
"""Earlier times at which the models are asked."""
CYCLES = 2
"""Periods that must be known before a seasonal model is asked."""
SHORTEST = 8
"""Steps that must be known before any model is judged."""
HARMONICS = 10
"""Of the period, at most: what is sharper than a tenth of it is left to the baseline."""
REPEATS = 0.3
"""Correlation of a series with itself a period later, below which it has none."""
COVERAGE = 0.9
"""Of the interval."""
RIDGE = 1e-3
"""Pull of the coefficients towards zero, in parts of the data's own weight."""
MEMORY = 4.0
"""Periods after which what was seen weighs half in the regression."""
DAMPING = 0.98
"""What is left of a trend from step to step: what grows now does not grow for ever."""


class Method(StrEnum):
    LAST = "last-value"
    """What came last: where there is too little for anything else, or no period."""
    SEASONAL = "seasonal-naive"
    """What came at the same time of the period before."""
    REGRESSION = "regression"
    """Ridge regression on a damped trend and Fourier terms of the period; the remainder is carried
    on as it decayed before (autoregressive, order 1)."""


@dataclass(frozen=True)
class Test:
    """What a model would have said at an earlier time."""

    method: Method
    origin: int
    """Steps that were known."""
    said: Array
    came: Array


@dataclass(frozen=True)
class Continued:
    """A series and what is expected of it."""

    method: Method
    values: Array
    low: Array
    high: Array
    error: float | None
    """Of the back-test, relative; None if there was too little for one."""
    coverage: float | None
    """Part of what came that was within the interval made of the other origins' errors."""
    period: int | None
    tests: tuple[Test, ...] = ()


def continued(values: Array, horizon: int, period: int | None = None) -> Continued:
    """The next `horizon` steps. `period` in steps; None: as found in the series itself."""
    if period is None:
        period = detected_period(values)
    known = values[~np.isnan(values)]
    methods = [Method.LAST] if period is None else [Method.SEASONAL, Method.REGRESSION]
    if period is None and len(known) >= 2 * SHORTEST:
        methods.append(Method.REGRESSION)
    tests = back_test(values, horizon, period, methods)
    if not tests:
        method = Method.SEASONAL if period and len(values) >= period else Method.LAST
        said = FORECASTS[method](values, horizon, period)
        # Nothing is known of errors: all that ever came is possible.
        return Continued(
            method,
            said,
            np.full(horizon, known.min(initial=np.inf) if len(known) else 0.0),
            np.full(horizon, known.max(initial=0.0)),
            None,
            None,
            period,
        )
    errors = {one: relative_error([t for t in tests if t.method is one]) for one in methods}
    best = min(methods, key=lambda one: errors[one])
    said = FORECASTS[best](values, horizon, period)
    own = [t for t in tests if t.method is best]
    low, high = bounds(own)
    return Continued(
        best,
        said,
        np.clip(said + low, 0.0, said),
        np.maximum(said + high, said),
        errors[best],
        covered(own),
        period,
        tuple(tests),
    )


def detected_period(values: Array) -> int | None:
    """The lag at which a series repeats itself best; None if it does not.

    Of lags that do about as well, the shortest: a day, and not a week of equal days.
    """
    count = len(values)
    if count < 2 * SHORTEST or not np.isfinite(values).any():
        return None
    x = np.arange(count)
    there = ~np.isnan(values)
    filled = np.interp(x, x[there], values[there])
    filled = filled - np.polyval(np.polyfit(x, filled, 1), x)
    if filled.std() <= 1e-9 * max(1.0, float(np.abs(values[there]).max())):
        return None
    spectrum = np.fft.rfft(filled, 2 * count)
    correlation = np.fft.irfft(spectrum * np.conj(spectrum))[: count // CYCLES + 1]
    correlation = correlation / (count - np.arange(len(correlation)))
    correlation = correlation / correlation[0]
    inner = correlation[1:-1]
    peaks = np.flatnonzero((inner > correlation[:-2]) & (inner >= correlation[2:])) + 1
    peaks = peaks[(peaks >= 3) & (correlation[peaks] > REPEATS)]
    if not len(peaks):
        return None
    return int(peaks[correlation[peaks] >= 0.9 * correlation[peaks].max()][0])


def last_value(values: Array, horizon: int, _period: int | None) -> Array:
    known = values[~np.isnan(values)]
    return np.full(horizon, known[-1] if len(known) else 0.0)


def seasonal(values: Array, horizon: int, period: int | None) -> Array:
    """The same time of the last period in which it is known."""
    if not period:
        return last_value(values, horizon, None)
    result = last_value(values, horizon, None)
    for ahead in range(horizon):
        same = values[(len(values) + ahead) % period :: period]
        same = same[~np.isnan(same)]
        if len(same):
            result[ahead] = same[-1]
    return result


def regression(values: Array, horizon: int, period: int | None) -> Array:
    there = np.flatnonzero(~np.isnan(values))
    if len(there) < 3:
        return last_value(values, horizon, None)
    count = len(values)
    design = terms(np.arange(count), count, period)
    half = MEMORY * (period or count)
    weight = 0.5 ** ((count - 1 - there) / half)
    known, target = design[there], values[there]
    normal = (known * weight[:, None]).T @ known
    pull = np.eye(len(normal)) * RIDGE * weight.sum()
    pull[0, 0] = 0.0
    found = np.linalg.solve(normal + pull, (known * weight[:, None]).T @ target)
    left = target - known @ found
    future = terms(np.arange(count, count + horizon), count, period)
    # The trend goes on, but ever less.
    gone = np.cumsum(DAMPING ** np.arange(1, horizon + 1))
    future[:, 1] = (count - 1 + gone) / count
    beside = there[1:] - there[:-1] == 1
    before, after = left[:-1][beside], left[1:][beside]
    power = float(before @ before)
    kept = float(np.clip(before @ after / power, 0.0, 0.98)) if power > 0 else 0.0
    since = count - 1 - there[-1]
    carried = left[-1] * kept ** (np.arange(1, horizon + 1) + since)
    return np.asarray(np.maximum(future @ found + carried, 0.0))


def terms(x: NDArray[np.int64], count: int, period: int | None) -> Array:
    """A constant, a trend, and waves of the period."""
    columns = [np.ones(len(x)), x / count]
    if period:
        for k in range(1, min(HARMONICS, period // 2) + 1):
            angle = 2 * np.pi * k * x / period
            columns.append(np.cos(angle))
            if 2 * k != period:
                columns.append(np.sin(angle))
    return np.stack(columns, axis=1).astype(float)


FORECASTS: dict[Method, Callable[[Array, int, int | None], Array]] = {
    Method.LAST: last_value,
    Method.SEASONAL: seasonal,
    Method.REGRESSION: regression,
}


def back_test(values: Array, horizon: int, period: int | None, methods: list[Method]) -> list[Test]:
    """What each model would have said at up to ORIGINS earlier times."""
    needed = max(SHORTEST, CYCLES * (period or 0))
    ahead = min(horizon, (len(values) - needed) // 2)
    if ahead < 1:
        return []
    origins = np.unique(np.linspace(needed, len(values) - ahead, ORIGINS).astype(int))
    return [
        Test(
            method,
            int(origin),
            FORECASTS[method](values[:origin], ahead, period),
            values[origin : origin + ahead],
        )
        for origin in origins
        for method in methods
    ]


def residuals(tests: list[Test]) -> Array:
    found = np.concatenate([one.came - one.said for one in tests]) if tests else np.zeros(0)
    return np.asarray(found[~np.isnan(found)])


def relative_error(tests: list[Test]) -> float:
    """Sum of absolute errors over the sum of what came."""
    came = np.concatenate([one.came for one in tests])
    total = float(np.nansum(came))
    off = float(np.abs(residuals(tests)).sum())
    if total > 0:
        return off / total
    return 0.0 if off == 0 else float("inf")


def bounds(tests: list[Test]) -> tuple[float, float]:
    """Between which COVERAGE of the errors lay."""
    found = residuals(tests)
    if not len(found):
        return 0.0, 0.0
    tail = (1 - COVERAGE) / 2
    return float(np.quantile(found, tail)), float(np.quantile(found, 1 - tail))


def covered(tests: list[Test]) -> float | None:
    """How often the interval holds: that of each origin made of the errors at all others."""
    inside = total = 0
    for number, one in enumerate(tests):
        others = tests[:number] + tests[number + 1 :]
        if not others:
            return None
        low, high = bounds(others)
        off = residuals([one])
        slack = 1e-9 * max(1.0, float(np.nanmax(np.abs(one.came), initial=0.0)))
        inside += int(((off >= low - slack) & (off <= high + slack)).sum())
        total += len(off)
    return inside / total if total else None
