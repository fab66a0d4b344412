"""A link's model fitted to what was measured of it: rate, overhead, burstiness, and what is left.

Everything here is about one link at a time, in numpy, over windows of time at once. The waits are
those of the network model (`headgate.model.priority`, `links`): M[X]/G/1 with priorities, fed with
the measured moments of the work in place of a scenario's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from headgate.model.parts import blended, score
from headgate.model.priority import LevelWork, delay_moments, fitted_quantile

Array = NDArray[np.float64]

BUSY = ("tt", "tb", "tn", "t1", "bb", "bn", "b1", "nn", "n1", "11")
"""Products of time, bytes, packets and 1, summed over busy runs, each divided by its packets: all
that a weighted regression of time on bytes, packets and a constant needs."""

FEW_RUNS = 20
"""Busy runs below which nothing is said of the rate."""
UNSURE = 0.1
"""Relative standard error of the time of a packet above which the rate is not known."""
SPREAD = 40.0
"""Bytes by which the overhead is expected to differ from what is usual, where sizes do not tell."""
FULL = 0.97
"""Load above which a window is not in steady state: what waited depends on what was before."""
FEW_MESSAGES = 20.0
"""Messages of a category and window below which its mean says little."""
HELD_OUT = 0.25
"""Part of the windows, the newest, that nothing is fitted to."""
FEW_WINDOWS = 8
"""Windows below which none is held out."""
NEGLIGIBLE = 0.1
"""Part of the response that may be the model's error of something else than waiting."""
BOUNDS = (0.01, 100.0)
"""Of burstiness."""

REAL_CHANGE = 0.15
"""Relative change of the response below which nothing is called drift, however certain."""
REAL_RATE_CHANGE = 0.05
CERTAIN = 3.0
"""Standard errors beyond which a change is not chance."""

P99 = 99.0


@dataclass(frozen=True)
class Speed:
    """How fast a link is."""

    rate: float
    """bit/s"""
    overhead: float
    """Bytes per packet."""
    error: float = 0.0
    """Relative standard error of the rate."""
    doubt: float = 0.0
    """The same of the time that a packet of mean size takes: known, even where all are of one size
    and nothing tells the rate from the overhead."""


@dataclass(frozen=True)
class Factors:
    burstiness: float = 1.0
    response: float = 1.0

    def apply(self, modelled: pd.Series, service: pd.Series) -> pd.Series:
        """As the contract defines it (`contract.knowledge.CALIBRATION`)."""
        return self.response * (service + self.burstiness * (modelled - service))


def fit_speed(busy: pd.DataFrame, usual_overhead: float) -> Speed | None:
    """Rate and overhead by regression of time on bytes and packets; None if not to be told.

    Of the two ways to count the ends of a run (`calibrating.busy`), the one that fits better.
    """
    busy = busy[busy["runs"].notna()]
    runs = float(busy["runs"].sum())
    if runs < FEW_RUNS:
        return None
    fits = [
        regress({pair: float(busy[f"{when}_{pair}"].sum()) for pair in BUSY}, runs, usual_overhead)
        for when in ("e", "s")
    ]
    known = [fit for fit in fits if fit is not None]
    if not known:
        return None
    _, speed = min(known, key=lambda fit: fit[0])
    return speed if speed.doubt <= UNSURE else None


def regress(
    total: dict[str, float], runs: float, usual_overhead: float
) -> tuple[float, Speed] | None:
    """The noise, and the speed.

    The constant takes up what a run's first messages were spared, because pacing saves up for a
    burst. Where all packets are of one size, nothing tells bytes from packets: the overhead then
    stays near what is usual, which counts as one observation with an error of SPREAD.
    """
    bb, bn, b1, nn, n1, one = (total[pair] for pair in ("bb", "bn", "b1", "nn", "n1", "11"))
    normal = np.array([[bb, bn, b1], [bn, nn, n1], [b1, n1, one]])
    right = np.array([total["tb"], total["tn"], total["t1"]])
    # With the usual overhead as it is, to know the scale.
    usual = np.array([[1.0, 0.0], [usual_overhead, 0.0], [0.0, 1.0]])
    first = np.linalg.lstsq(usual.T @ normal @ usual, usual.T @ right, rcond=None)[0]
    if first[0] <= 0:
        return None
    lean = np.array([-usual_overhead, 1.0, 0.0]) / (first[0] * SPREAD)
    found, noise = np.array([*(usual @ first)]), np.inf
    leaning = normal
    for _ in range(3):  # how far to lean depends on the noise, and that on what was found
        left = total["tt"] - 2 * found @ right + found @ normal @ found
        noise = max(left, 1e-9 * total["tt"]) / max(runs - 3, 1)
        leaning = normal + noise * np.outer(lean, lean)
        found = np.linalg.lstsq(leaning, right, rcond=None)[0]
    per_byte, per_packet, _ = found
    if per_byte <= 0:
        return None
    covariance = noise * np.linalg.pinv(leaning)
    error = float(np.sqrt(abs(covariance[0, 0])) / per_byte)
    typical = np.array([bn / nn, 1.0, 0.0])
    doubt = float(np.sqrt(abs(typical @ covariance @ typical)) / (typical @ found))
    return noise, Speed(8 / float(per_byte), max(0.0, float(per_packet / per_byte)), error, doubt)


def predict(known: pd.DataFrame, speed: Speed) -> pd.DataFrame:
    """What the model says of each window and category: service, mean and 99th percentile, in ms.

    `known` has the sums of `calibrating.levels`. Infinite where a level is overloaded.
    """
    starts, window = np.unique(known["start"].to_numpy(), return_inverse=True)
    places, place = np.unique(known["level"].to_numpy(), return_inverse=True)
    seconds = (known["end"] - known["start"]).dt.total_seconds().to_numpy()
    per_byte, overhead = 8 / speed.rate, speed.overhead

    def work(prefix: str, degree: int) -> Array:
        """E[(b + overhead n)^degree] of a row's sums, in seconds to that power."""
        names = {1: ("b", "n"), 2: ("bb", "bn", "nn"), 3: ("bbb", "bbn", "bnn", "nnn")}[degree]
        binomial = {1: (1, 1), 2: (1, 2, 1), 3: (1, 3, 3, 1)}[degree]
        total = np.zeros(len(known))
        for exponent, (name, times) in enumerate(zip(names, binomial, strict=True)):
            total += times * overhead**exponent * known[f"{prefix}_{name}"].to_numpy()
        return total * per_byte**degree

    def per_level(values: Array) -> Array:
        table = np.zeros((len(starts), len(places)))
        np.add.at(table, (window, place), values / seconds)
        return table

    load = per_level(work("w", 1))
    levels = LevelWork(
        load=load,
        second=per_level(work("w", 2)),
        third=per_level(work("w", 3)),
        batch_second=np.cumsum(per_level(work("x", 2)), axis=1),
        batch_third=np.cumsum(per_level(work("x", 3)), axis=1),
    )
    delay = delay_moments(levels, preemptive=False)
    found, found_second = delay.stretched(delay.found_mean, delay.found_second)
    at = (window, place)
    packets = known["w_n"].to_numpy()
    service, ahead = work("w", 1) / packets, work("a", 1) / packets
    with np.errstate(invalid="ignore", over="ignore"):
        found_variance = np.where(np.isfinite(found), found_second - found**2, 0.0)
        stretch, jitter = delay.stretch[at], delay.jitter[at]
        mean = found[at] + ahead * stretch + service
        spread = np.maximum(work("a", 2) / packets - ahead**2, 0.0)
        sizes = np.maximum(work("w", 2) / packets - service**2, 0.0)
        own = np.nan_to_num(spread * stretch**2 + ahead * jitter + sizes, posinf=0.0)
        idle = np.maximum(1 - load.sum(axis=1), 0.0)[:, None]
        quantile = fitted_quantile(P99 / 100, found, found_second, idle)
        found_score = score(quantile, found, found_variance)
        variance = found_variance[at] + own
        together = blended(found_score[at], found_variance[at], np.full(len(own), ndtri(0.99)), own)
        p99 = np.where(np.isfinite(mean), mean + np.sqrt(variance) * together, np.inf)
    rows = pd.DataFrame(
        {
            "start": known["start"].to_numpy(),
            "category": known["category"].to_numpy(),
            "packets": packets,
            "service_ms": 1e3 * service * packets,
            "mean_ms": 1e3 * mean * packets,
            # Of a category with flows at several levels: the mean of their percentiles.
            "p99_ms": 1e3 * p99 * packets,
            "load": load.sum(axis=1)[window],
        }
    )
    summed = rows.groupby(["start", "category"], as_index=False).agg(
        {"packets": "sum", "service_ms": "sum", "mean_ms": "sum", "p99_ms": "sum", "load": "first"}
    )
    for name in ("service_ms", "mean_ms", "p99_ms"):
        summed[name] = summed[name] / summed["packets"]
    return summed.drop(columns="packets")


def fit_factors(rows: pd.DataFrame) -> Factors:
    """Burstiness by least squares of relative errors, and what is then left in the mean.

    A link on which hardly anything waits tells nothing of its burstiness, and what little it seems
    to tell would be multiplied at higher loads: the less there is of it, the nearer to 1.
    """
    usable = rows[np.isfinite(rows["model_mean_ms"]) & (rows["messages"] > 0)]
    if usable.empty:
        return Factors()
    measured, service = usable["mean_ms"], usable["service_ms"]
    wait = usable["model_mean_ms"] - service
    weight = usable["messages"] / usable["messages"].sum() / usable["model_mean_ms"] ** 2
    above = float((weight * wait * (measured - service)).sum()) + NEGLIGIBLE**2
    below = float((weight * wait**2).sum()) + NEGLIGIBLE**2
    burstiness = float(np.clip(above / below, *BOUNDS))
    modelled = float((usable["messages"] * (service + burstiness * wait)).sum())
    total = float((usable["messages"] * measured).sum())
    return Factors(burstiness, total / modelled if modelled > 0 and total > 0 else 1.0)


def relative_error(rows: pd.DataFrame, modelled: str, measured: str) -> float | None:
    """Sum of absolute errors over the sum of what was measured, by messages; None if nothing was.

    Where the model is overloaded and the link was not, it errs by as much as was measured."""
    known = rows[rows[measured].notna()]
    total = float((known["messages"] * known[measured]).sum())
    if known.empty or total <= 0:
        return None
    off = (known[modelled] - known[measured]).abs()
    off = off.where(np.isfinite(known[modelled]), known[measured])
    return float((known["messages"] * off).sum() / total)


def drifted(rows: pd.DataFrame, predicted: str) -> bool:
    """Whether windows deviate from what was predicted for them, by more than chance."""
    usable = rows[np.isfinite(rows[predicted]) & (rows[predicted] > 0) & (rows["mean_ms"] > 0)]
    by_window = pd.DataFrame(
        {
            "start": usable["start"],
            "measured": usable["messages"] * usable["mean_ms"],
            "predicted": usable["messages"] * usable[predicted],
        }
    )
    by_window = by_window.groupby("start").sum()
    if len(by_window) < 3:
        return False
    ratio = np.log(by_window["measured"] / by_window["predicted"])
    error = float(ratio.std(ddof=1) / np.sqrt(len(ratio)))
    return abs(float(ratio.mean())) > max(float(np.log1p(REAL_CHANGE)), CERTAIN * error)
