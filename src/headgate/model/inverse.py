"""The inverse problems of one queue: which join probability, drop or link rate meets a threshold.

The broker asks the first for every subscriber that is away (ON/OFF §II-C); a planner asks the
others to say what would make an infeasible requirement feasible. Answers are values: `Feasible`,
or `Infeasible` with its reason. Over a whole network the same questions are asked in
`network.py`.
"""

from __future__ import annotations

import math

from headgate.model.distributions import Distribution
from headgate.model.feasibility import Answer, Infeasible, largest_below, smallest_below
from headgate.model.onoff import OnOffQueue
from headgate.model.single import MG1, MM1


def largest_join(
    arrival_rate: float,
    service_rate: float,
    on_s: float,
    off_s: float,
    threshold_s: float,
    *,
    input_rate: float | None = None,
    percentile: float | None = None,
) -> Answer:
    """The largest zeta whose response stays within the threshold (mean, or a percentile of it).

    With `input_rate` the mean response of the broker's input queue (M/M/1) counts too, as in ON/OFF
    Eq. 1; a percentile is that of the ON/OFF queue after the mean of the input queue.
    """
    before = 0.0
    if input_rate is not None:
        before = MM1(arrival_rate, input_rate).mean_response
        if math.isinf(before):
            return Infeasible(
                f"the input queue is overloaded: {arrival_rate:g}/s arrive, {input_rate:g}/s is "
                "its rate",
                math.inf,
            )

    def response(join: float) -> float:
        queue = OnOffQueue(arrival_rate, service_rate, on_s, off_s, join)
        if percentile is None:
            return before + float(queue.mean_response)
        return before + float(queue.response_quantile(percentile / 100))

    def unmet(best: float) -> str:
        if math.isinf(best):
            return (
                f"the queue is overloaded even without what arrives while the subscriber is away: "
                f"{arrival_rate:g}/s arrive, {service_rate:g}/s can be served"
            )
        return (
            f"the response is {best:.4g} s even if everything is dropped while the subscriber is "
            f"away, and {threshold_s:g} s is asked"
        )

    return largest_below(response, threshold_s, 0.0, 1.0, unmet=unmet)


def smallest_drop(
    arrival_rate: float,
    service: Distribution,
    threshold_s: float,
    *,
    percentile: float | None = None,
    most: float = 1.0,
) -> Answer:
    """The smallest drop rate, at most `most`, that brings an M/G/1 queue within the threshold."""

    def unmet(best: float) -> str:
        if threshold_s < service.mean:
            return (
                f"the service alone takes {service.mean:.4g} s, and {threshold_s:g} s is asked: "
                "dropping does not help"
            )
        return (
            f"the response is {best:.4g} s even with a drop rate of {most:g}, and "
            f"{threshold_s:g} s is asked"
        )

    def response(drop: float) -> float:
        return _response(arrival_rate * (1 - drop), service, percentile)

    return smallest_below(response, threshold_s, 0.0, most, unmet=unmet)


def smallest_link_rate(
    arrival_rate: float,
    size_bytes: Distribution,
    threshold_s: float,
    *,
    percentile: float | None = None,
    most_bps: float = 1e12,
) -> Answer:
    """The smallest rate (bit/s) of a link that sends these messages within the threshold."""
    if threshold_s <= 0:
        return Infeasible(f"no link answers within {threshold_s:g} s", 0.0)

    def response(rate_bps: float) -> float:
        return _response(arrival_rate, size_bytes.scaled(8 / rate_bps), percentile)

    # Below the offered load nothing is stable; the search starts there.
    offered = arrival_rate * size_bytes.mean * 8
    return smallest_below(
        response,
        threshold_s,
        max(offered, 1e-9),
        most_bps,
        unmet=lambda best: (
            f"even {most_bps:g} bit/s give {best:.4g} s, and {threshold_s:g} s is asked"
        ),
    )


def _response(arrival_rate: float, service: Distribution, percentile: float | None) -> float:
    queue = MG1(arrival_rate, service)
    if percentile is None:
        return queue.mean_response
    if arrival_rate == 0 and service.scv == 0:
        return service.mean
    return queue.response_quantile(percentile / 100)
