"""Reproducibility, arrival processes, buffers that grow, records, and mistakes."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.errors import ConfigurationError
from headgate.model import Distribution
from headgate.model.simulation import (
    Arrivals,
    Network,
    Outcome,
    Source,
    Station,
    Stream,
    running,
    simulate,
)

EXPONENTIAL = Distribution.exponential(1.0)


def queue(rate: float = 0.8) -> Network:
    return Network([Source(Arrivals.poisson(rate), (Stream((0,)),))], [Station(EXPONENTIAL)])


def test_the_same_on_any_number_of_workers_and_however_it_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(workers: int) -> np.ndarray:  # type: ignore[type-arg]
        measured = simulate(
            queue(), horizon=20_000, replications=5, workers=workers, records=True, seed=42
        )
        return measured.records()

    alone = run(1)
    assert np.array_equal(alone, run(3))
    monkeypatch.setattr(running, "_BUDGET", 777)
    assert np.array_equal(alone, run(2))


def test_replications_and_seeds_differ() -> None:
    measured = simulate(queue(), horizon=5_000, replications=2, records=True)
    first, second = (run.records for run in measured.replications)
    assert first is not None
    assert second is not None
    assert not np.array_equal(first[:50], second[:50])
    other = simulate(queue(), horizon=5_000, seed=2, records=True).records()
    assert not np.array_equal(first[:50], other[:50])


def test_a_policy_does_not_change_what_is_published() -> None:
    """Common random numbers: the same publications under any priority or drop rate."""

    def publications(stream: Stream) -> np.ndarray:  # type: ignore[type-arg]
        source = Source(Arrivals.poisson(0.5), (stream, Stream((0,))), EXPONENTIAL)
        network = Network([source], [Station(seconds_per_byte=0.5)])
        records = simulate(network, horizon=2_000, drain=True, records=True).records()
        second = records[records["stream"] == 1]
        return np.sort(second[["created", "size"]], order="created")

    plain = publications(Stream((0,)))
    assert len(plain) > 900
    assert np.array_equal(plain, publications(Stream((0,), priority=3, drop=0.5)))


def test_periodic_sources_keep_their_period_from_a_random_start() -> None:
    source = Source(Arrivals.periodic(4.0), (Stream(()),))
    starts = set()
    for seed in (1, 2, 3):
        created = simulate(Network([source]), horizon=100, records=True, seed=seed).records()[
            "created"
        ]
        assert len(created) == 400
        assert np.diff(created) == pytest.approx(0.25)
        starts.add(float(created[0]))
    assert len(starts) == 3


def test_jitter_stays_around_the_nominal_times() -> None:
    source = Source(Arrivals.periodic(4.0, jitter=0.8), (Stream(()),))
    created = simulate(Network([source]), horizon=1000, records=True).records()["created"]
    nominal = np.arange(len(created)) * 0.25
    shift = created - nominal
    assert np.ptp(shift) <= 0.8 * 0.25
    assert np.ptp(shift) > 0.75 * 0.25
    assert len(created) == pytest.approx(4000, abs=1)


def test_bursts_have_the_mean_rate_and_are_bursty() -> None:
    source = Source(Arrivals.bursts(5.0, on=2.0, off=8.0), (Stream(()),))
    created = simulate(Network([source]), horizon=100_000, records=True).records()["created"]
    # Rate 5 in the long run, 25 while ON; counts per second vary like an interrupted Poisson
    # process: Var/mean of counts in long windows tends to 1 + 2 r off^2 / (on + off)^2 x ...
    assert len(created) / 100_000 == pytest.approx(5.0, rel=0.02)
    counts = np.bincount(created.astype(int))
    assert counts.var() / counts.mean() > 10
    assert np.median(np.diff(created)) == pytest.approx(np.log(2) / 25, rel=0.05)


def test_a_trace_ends() -> None:
    source = Source(Arrivals.trace([1.0, 2.0, 2.0, 7.5]), (Stream(()),))
    records = simulate(Network([source]), horizon=100, records=True).records()
    assert list(records["created"]) == [1.0, 2.0, 2.0, 7.5]


def test_buffers_grow_with_an_overloaded_queue() -> None:
    measured = simulate(queue(3.0), horizon=20_000, records=True)
    (run,) = measured.replications
    assert run.on_their_way == pytest.approx(40_000, rel=0.05)
    assert len(measured.records()) == measured.group().delivered


def test_records_and_statistics_tell_the_same() -> None:
    stream = Stream((0,), drop=0.1, lifetime=Distribution.exponential(8.0))
    network = Network([Source(Arrivals.poisson(0.9), (stream,))], [Station(EXPONENTIAL)])
    measured = simulate(network, horizon=50_000, warmup=1_000, records=True)
    records, group = measured.records(), measured.group()
    delivered = records[records["outcome"] == Outcome.DELIVERED]
    response = delivered["left"] - delivered["created"]
    assert records["left"].min() >= 1_000
    assert len(records) == group.offered
    assert response.mean() == pytest.approx(group.mean.value)
    assert response.var() == pytest.approx(group.variance)
    assert response.max() == group.largest
    for percent in (50, 95, 99):
        # A bucket is 1/32 of an octave wide, and the quantile is interpolated within it.
        assert group.percentile(percent).value == pytest.approx(
            np.percentile(response, percent), rel=0.016
        )


def test_confidence_intervals_cover_as_often_as_they_say() -> None:
    """95 % intervals of an M/M/1 mean, 200 of them: 190 should cover, binomial within 4 sigma."""
    hits = 0
    for seed in range(200):
        measured = simulate(queue(0.5), horizon=20_000, warmup=500, seed=seed)
        hits += measured.group().mean.covers(2.0)
    assert hits >= 190 - 4 * np.sqrt(200 * 0.95 * 0.05)


def test_progress_is_told() -> None:
    told: list[float] = []
    simulate(queue(), horizon=1_500_000, replications=2, progress=told.append)
    assert len(told) >= 4
    assert told[-1] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: simulate(queue(), horizon=10, warmup=10), "warm-up"),
        (lambda: Arrivals.poisson(0.0), "arrival rate"),
        (lambda: Arrivals.trace([2.0, 1.0]), "trace"),
        (lambda: Network([Source(Arrivals.poisson(1), (Stream((1,)),))]), "does not exist"),
        (lambda: Network([], [Station(on=EXPONENTIAL)]), "OFF"),
        (lambda: Distribution.hyperexponential(1.0, 0.5), "scv"),
    ],
)
def test_mistakes_are_told_in_a_sentence(make: object, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()  # type: ignore[operator]
