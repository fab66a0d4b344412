"""What a simulation measured, with confidence intervals.

Every replication is cut into batches of equal length after the warm-up; the batches of all
replications are the sample. A mean response is a ratio (time over messages) and so is a loss,
hence the interval of a ratio estimator; a quantile is taken from the histograms, its interval
from the replications.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from headgate.model.simulation.layout import OCTAVES, OUTCOMES, SMALLEST_OCTAVE, Outcome

Array = NDArray[np.float64]
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and the half-width of its 95 % confidence interval (nan where there is none)."""

    value: float
    half_width: float

    def covers(self, truth: float, *, widths: float = 1.0) -> bool:
        """Whether `truth` lies within `widths` half-widths."""
        return abs(truth - self.value) <= widths * self.half_width

    def __str__(self) -> str:
        return f"{self.value:.4g} ± {self.half_width:.2g}"


@dataclass(frozen=True)
class Replication:
    """The raw counts of one run; the first axis of every array is the stream."""

    streams: NDArray[Any]
    batches: NDArray[Any]
    histogram: NDArray[np.uint32]
    records: NDArray[Any] | None
    events: int
    on_their_way: int
    """Messages that had not left at the end."""


@dataclass(frozen=True)
class Measurement:
    """All replications together. Streams are numbered as in the network."""

    replications: Sequence[Replication]
    duration: float
    """Seconds measured per replication, without the warm-up."""
    wall_time: float

    @property
    def events(self) -> int:
        return sum(run.events for run in self.replications)

    @cached_property
    def _batches(self) -> NDArray[Any]:
        """Streams x (replications x batches)."""
        return np.concatenate([run.batches for run in self.replications], axis=1)

    @cached_property
    def _outcomes(self) -> NDArray[np.int64]:
        return np.asarray(sum(run.streams["outcomes"] for run in self.replications))

    @cached_property
    def _histograms(self) -> NDArray[np.int64]:
        """Replications x streams x buckets."""
        return np.stack([run.histogram for run in self.replications]).astype(np.int64)

    def group(self, streams: Sequence[int] | NDArray[np.int64] | slice = slice(None)) -> Group:
        """The messages of some streams, together."""
        chosen = streams if isinstance(streams, slice) else np.asarray(streams, dtype=np.int64)
        batches = self._batches[chosen]
        return Group(
            outcomes=self._outcomes[chosen].sum(axis=0),
            total=batches["total"].sum(axis=0),
            count=batches["count"].sum(axis=0),
            lost=batches["lost"].sum(axis=0),
            histograms=self._histograms[:, chosen].sum(axis=1),
            squares=float(sum(run.streams["squares"][chosen].sum() for run in self.replications)),
            largest=float(max(run.streams["largest"][chosen].max() for run in self.replications)),
            size=float(sum(run.streams["bytes"][chosen].sum() for run in self.replications)),
            seconds=self.duration * len(self.replications),
        )

    def records(self) -> NDArray[Any]:
        """Every message of every replication, if records were kept."""
        kept = [run.records for run in self.replications if run.records is not None]
        if not kept:
            raise ValueError("no records were kept: simulate with records=True")
        return np.concatenate(kept)


@dataclass(frozen=True)
class Group:
    """Measurements of a group of streams: a flow, an application, a category, or all."""

    outcomes: NDArray[np.int64]
    total: Array
    count: NDArray[np.int64]
    lost: NDArray[np.int64]
    histograms: NDArray[np.int64]
    squares: float
    largest: float
    size: float
    seconds: float

    def __post_init__(self) -> None:
        assert len(self.outcomes) == OUTCOMES

    @property
    def delivered(self) -> int:
        return int(self.outcomes[Outcome.DELIVERED])

    @property
    def offered(self) -> int:
        return int(self.outcomes.sum())

    def fraction(self, outcome: Outcome) -> float:
        return float(self.outcomes[outcome] / max(1, self.offered))

    @property
    def mean(self) -> Estimate:
        """Response time of the delivered messages, in seconds."""
        return _ratio(self.total, self.count)

    @property
    def loss(self) -> Estimate:
        """Messages that were not delivered, over all."""
        return _ratio(self.lost, self.lost + self.count)

    @property
    def variance(self) -> float:
        return max(0.0, self.squares / self.delivered - self.mean.value**2)

    @property
    def throughput(self) -> float:
        """Messages delivered per second."""
        return self.delivered / self.seconds

    @property
    def bit_rate(self) -> float:
        """Payload bits delivered per second."""
        return 8 * self.size / self.seconds

    def percentile(self, percent: float) -> Estimate:
        """Read from logarithmic buckets, interpolated; the interval needs two replications."""
        pooled = _quantile(self.histograms.sum(axis=0), percent / 100)
        runs = [
            _quantile(histogram, percent / 100) for histogram in self.histograms if histogram.any()
        ]
        if len(runs) < 2:
            return Estimate(pooled, float("nan"))
        spread = np.std(runs, ddof=1) / np.sqrt(len(runs))
        return Estimate(pooled, float(student.ppf((1 + CONFIDENCE) / 2, len(runs) - 1) * spread))


def _ratio(above: NDArray[Any], below: NDArray[Any]) -> Estimate:
    n, whole = len(above), below.sum()
    if whole == 0:
        return Estimate(float("nan"), float("nan"))
    value = above.sum() / whole
    if n < 2:
        return Estimate(float(value), float("nan"))
    deviation = above - value * below
    error = np.sqrt((deviation**2).sum() / (n * (n - 1))) / (whole / n)
    return Estimate(float(value), float(student.ppf((1 + CONFIDENCE) / 2, n - 1) * error))


def _quantile(histogram: NDArray[np.int64], fraction: float) -> float:
    running = np.cumsum(histogram)
    if running[-1] == 0:
        return float("nan")
    wanted = fraction * running[-1]
    index = int(np.searchsorted(running, wanted))
    sub_buckets = len(histogram) // OCTAVES
    octave, part = divmod(index, sub_buckets)
    start = 2.0 ** (octave + SMALLEST_OCTAVE)
    before = running[index - 1] if index else 0
    within = (wanted - before) / max(1, histogram[index])
    return float(start * (1 + (part + within) / sub_buckets))
