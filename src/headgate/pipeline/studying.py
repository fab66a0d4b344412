"""One link, studied: fitted to its older data, judged by the newest, and then fitted to all.

    windows of a link (records) ─┐
                                 ├─▶ study ─▶ calibration: one row; validation: held-out data
    points of a sweep ───────────┘

Data are split by time, never within a window: neighbours in time are alike, and a model that has
seen one knows the other. Points of a sweep have no time; they are independent, and are split by
their number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from headgate.pipeline.fitting import (
    CERTAIN,
    FEW_MESSAGES,
    FEW_WINDOWS,
    FULL,
    HELD_OUT,
    REAL_RATE_CHANGE,
    Factors,
    Speed,
    drifted,
    fit_factors,
    fit_speed,
    predict,
    relative_error,
)

COMPARED = (
    "link string, category string, start timestamp, end timestamp, point bigint, load double, "
    "messages double, mean_ms double, p99_ms double, service_ms double, "
    "model_mean_ms double, model_p99_ms double"
)
"""What was measured beside what the model says of it; of a sweep."""

CALIBRATED = (
    "link string, rate double, overhead double, burstiness double, response_factor double, "
    "samples bigint, error double, drift boolean, since timestamp, until timestamp, "
    "model_error double, sparse boolean"
)
"""A row of the calibration, and what the job has to tell beside it."""

VALIDATED = (
    "link string, category string, start timestamp, end timestamp, point bigint, load double, "
    "messages double, mean_ms double, p99_ms double, model_mean_ms double, model_p99_ms double, "
    "calibrated_mean_ms double, calibrated_p99_ms double"
)


@dataclass(frozen=True)
class Study:
    calibration: pd.DataFrame
    validation: pd.DataFrame


Studying = Callable[[pd.DataFrame], Study]


def calibrations(study: Studying) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """For Spark's workers: the rows of one link in, its calibration out."""
    return lambda rows: study(rows).calibration


def validations(study: Studying) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda rows: study(rows).validation


def study_windows(known: pd.DataFrame) -> Study:
    """A link of which the broker recorded messages.

    Each row has what was known of the link before: `given_…` as configured, `force_…` by the
    version in force.
    """
    known = known.sort_values(["start", "level", "category"])
    starts = known["start"].drop_duplicates().sort_values()
    split = held_out_from(starts)
    older = known if split is None else known[known["start"] < split]
    before = known.iloc[0]
    usual = float(before["given_overhead"])
    early, now = speed_of(older, usual), speed_of(known, usual)
    given = number(before["given_rate"])
    if early is None and given is None:
        return nothing()
    raw = Speed(given or early.rate, usual) if given or early else None  # type: ignore[union-attr]
    assert raw is not None
    fitted = early or raw

    rows = compared(known, fitted)
    train = rows if split is None else rows[rows["start"] < split]
    factors = fit_factors(steady(train))
    rows["calibrated_mean_ms"] = factors.apply(rows["model_mean_ms"], rows["service_ms"])
    rows["calibrated_p99_ms"] = factors.apply(rows["model_p99_ms"], rows["service_ms"])
    uncalibrated = predict(known, raw)
    rows = rows.drop(columns=["model_mean_ms", "model_p99_ms"]).merge(
        uncalibrated.rename(columns={"mean_ms": "model_mean_ms", "p99_ms": "model_p99_ms"})[
            ["start", "category", "model_mean_ms", "model_p99_ms"]
        ],
        on=["start", "category"],
    )
    held = steady(rows[rows["start"] >= split]) if split is not None else rows.iloc[:0]

    final = now or fitted
    everything = steady(compared(known, final))
    refit = fit_factors(everything)
    row = {
        "link": before["link"],
        "rate": final.rate if now is not None else None,
        "overhead": final.overhead,
        "burstiness": refit.burstiness,
        "response_factor": refit.response,
        "samples": everything["start"].nunique(),
        "error": relative_error(held, "calibrated_mean_ms", "mean_ms"),
        "drift": has_drifted(known, split, fitted, factors, early),
        "since": known["start"].min(),
        "until": known["end"].max(),
        "model_error": relative_error(held, "model_mean_ms", "mean_ms"),
        "sparse": split is None,
    }
    return Study(one_row(row), validation_of(held))


def study_points(rows: pd.DataFrame) -> Study:
    """A link of a scenario that was swept: rate and overhead are the scenario's."""
    before = rows.iloc[0]
    points = np.sort(rows["point"].unique())
    enough = len(points) >= FEW_WINDOWS
    split = points[int(np.ceil(len(points) * (1 - HELD_OUT)))] if enough else None
    rows = rows[np.isfinite(rows["model_mean_ms"]) & (rows["load"] < FULL)]
    train = rows if split is None else rows[rows["point"] < split]
    factors = fit_factors(train)
    rows = rows.assign(
        calibrated_mean_ms=factors.apply(rows["model_mean_ms"], rows["service_ms"]),
        calibrated_p99_ms=factors.apply(rows["model_p99_ms"], rows["service_ms"]),
    )
    held = rows[rows["point"] >= split] if split is not None else rows.iloc[:0]
    refit = fit_factors(rows)
    drift = False
    forced = number(before["force_burstiness"])
    if forced is not None and not held.empty:
        old = Factors(forced, number(before["force_response"]) or 1.0)
        predicted = held.assign(
            _old=old.apply(held["model_mean_ms"], held["service_ms"]), start=held["point"]
        )
        drift = drifted(predicted, "_old")
    row = {
        "link": before["link"],
        "rate": None,
        "overhead": float(before["given_overhead"]),
        "burstiness": refit.burstiness,
        "response_factor": refit.response,
        "samples": rows["point"].nunique(),
        "error": relative_error(held, "calibrated_mean_ms", "mean_ms"),
        "drift": drift,
        "since": None,
        "until": None,
        "model_error": relative_error(held, "model_mean_ms", "mean_ms"),
        "sparse": split is None,
    }
    return Study(one_row(row), validation_of(held))


def held_out_from(starts: pd.Series) -> pd.Timestamp | None:
    """Where the newest windows begin that nothing is fitted to; None if there are too few."""
    if len(starts) < FEW_WINDOWS:
        return None
    return starts.iloc[int(np.ceil(len(starts) * (1 - HELD_OUT)))]


def speed_of(known: pd.DataFrame, usual_overhead: float) -> Speed | None:
    return fit_speed(known.drop_duplicates("start"), usual_overhead)


def compared(known: pd.DataFrame, speed: Speed) -> pd.DataFrame:
    """What was measured in each window, beside the model of a link of this speed."""
    measured = known.drop_duplicates(["start", "category"])[
        ["link", "category", "start", "end", "messages", "mean_ms", "p99_ms"]
    ]
    modelled = predict(known, speed).rename(
        columns={"mean_ms": "model_mean_ms", "p99_ms": "model_p99_ms"}
    )
    rows = measured.merge(modelled, on=["start", "category"])
    return rows.assign(point=pd.Series([pd.NA] * len(rows), dtype="Int64"))


def steady(rows: pd.DataFrame) -> pd.DataFrame:
    """Windows that a model of the steady state can be held to."""
    return rows[(rows["load"] < FULL) & (rows["messages"] >= FEW_MESSAGES) & (rows["mean_ms"] > 0)]


def has_drifted(
    known: pd.DataFrame,
    split: pd.Timestamp | None,
    fitted: Speed,
    factors: Factors,
    early: Speed | None,
) -> bool:
    """The newest windows against the version in force; if none is, against the older ones."""
    before = known.iloc[0]
    newest = known if split is None else known[known["start"] >= split]
    reference, known_rate = fitted, early is not None
    burstiness = number(before["force_burstiness"])
    if burstiness is not None:
        rate = number(before["force_rate"])
        reference = Speed(rate or fitted.rate, number(before["force_overhead"]) or 0.0)
        known_rate = rate is not None
        factors = Factors(burstiness, number(before["force_response"]) or 1.0)
    elif split is None:
        return False  # there is nothing to compare with but the data themselves
    latest = speed_of(newest, reference.overhead)
    if latest is not None and known_rate:
        change = abs(np.log(latest.rate / reference.rate))
        # Of which the regression's own error is not the whole: the two share no data.
        if change > max(REAL_RATE_CHANGE, CERTAIN * np.hypot(latest.error, reference.error)):
            return True
    rows = compared(newest, reference)
    rows = rows[(rows["messages"] >= FEW_MESSAGES) & (rows["mean_ms"] > 0)]
    rows = rows.assign(_old=factors.apply(rows["model_mean_ms"], rows["service_ms"]))
    return drifted(rows[rows["load"] < FULL], "_old")


def number(value: object) -> float | None:
    """Spark's null is not a number here."""
    return None if value is None or pd.isna(value) else float(value)  # type: ignore[arg-type]


def columns_of(schema: str) -> list[str]:
    return [field.split()[0] for field in schema.split(", ")]


def one_row(row: dict[str, object]) -> pd.DataFrame:
    return pd.DataFrame([row], columns=columns_of(CALIBRATED))


def validation_of(held: pd.DataFrame) -> pd.DataFrame:
    """Overload is null: a reader of Parquet should not meet infinities."""
    return held.replace([np.inf, -np.inf], np.nan)[columns_of(VALIDATED)]


def nothing() -> Study:
    """Of a link whose rate nobody knows."""
    return Study(
        pd.DataFrame(columns=columns_of(CALIBRATED)), pd.DataFrame(columns=columns_of(VALIDATED))
    )
