"""Small networks for the tests of the simulator, and what it means to agree with theory."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.model import Distribution
from headgate.model.simulation import (
    Arrivals,
    Estimate,
    Measurement,
    Network,
    Source,
    Station,
    Stream,
    simulate,
)

HORIZON, WARMUP = 200_000.0, 4_000.0


def one_station(
    station: Station, streams: Sequence[tuple[float, Stream, Distribution]], **options: object
) -> Measurement:
    """Poisson sources of the given rates and sizes, one stream each, all to one station."""
    sources = [Source(Arrivals.poisson(rate), (stream,), size) for rate, stream, size in streams]
    settings: dict[str, object] = {
        "horizon": HORIZON,
        "warmup": WARMUP,
        "replications": 10,
        "batches": 20,
    }
    return simulate(Network(sources, [station]), **{**settings, **options})  # type: ignore[arg-type]


def assert_agrees(measured: Estimate, truth: float, *, precision: float) -> None:
    """Theory within two half-widths (3.9 standard errors) of a measurement this precise.

    The precision is relative; without it a wide interval would agree with anything.
    """
    assert measured.half_width <= precision * abs(truth), f"too imprecise: {measured}"
    assert measured.covers(truth, widths=2), f"measured {measured}, theory says {truth:.5g}"
