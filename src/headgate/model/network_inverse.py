"""The inverse problems of a whole network: what would bring these flows within their threshold.

A planner asks when requirements cannot be met, to say what would make them feasible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from headgate.contract import Policy, PolicyRule
from headgate.model.feasibility import Answer, Infeasible, largest_below, smallest_below
from headgate.model.flows import Settings
from headgate.model.prediction import Model, Prediction
from headgate.model.scenario import Scenario


def smallest_drop(
    model: Model,
    settings: Settings,
    *,
    dropping: Sequence[int],
    flows: Sequence[int],
    threshold_s: float,
    percentile: float | None = None,
    most: float = 1.0,
) -> Answer:
    """The smallest drop rate, common to the flows `dropping`, that keeps all of `flows` within."""

    def worst(rate: float) -> float:
        drop = settings.drop.copy()
        drop[list(dropping)] = rate
        return _worst(model.predict(replace(settings, drop=drop)), flows, percentile)

    return smallest_below(
        worst,
        threshold_s,
        0.0,
        most,
        unmet=lambda best: (
            f"the response is {best:.4g} s even if {most:.0%} of these messages are dropped, and "
            f"{threshold_s:g} s is asked"
        ),
    )


def largest_join(
    model: Model,
    settings: Settings,
    *,
    joining: Sequence[int],
    flows: Sequence[int],
    threshold_s: float,
    percentile: float | None = None,
) -> Answer:
    """The largest join probability, common to the flows `joining`, that keeps `flows` within."""

    def worst(chance: float) -> float:
        join = settings.join.copy()
        join[list(joining)] = chance
        return _worst(model.predict(replace(settings, join=join)), flows, percentile)

    return largest_below(
        worst,
        threshold_s,
        0.0,
        1.0,
        unmet=lambda best: (
            f"the response is {best:.4g} s even if nothing joins while the clients are away, and "
            f"{threshold_s:g} s is asked"
        ),
    )


def smallest_link_rate(
    scenario: Scenario,
    policy: Policy | Sequence[PolicyRule] | Settings | None,
    *,
    link: str,
    flows: Sequence[int],
    threshold_s: float,
    percentile: float | None = None,
    most_bps: int = 10**11,
) -> Answer:
    """The smallest rate (whole bit/s) of a link that keeps all of `flows` within."""
    if not any(spec.name == link for spec in scenario.links):
        return Infeasible(f"there is no link called {link!r}", float("inf"))
    percentiles = () if percentile is None else (percentile,)

    def worst(rate: float) -> float:
        links = tuple(
            msgspec.structs.replace(spec, rate=max(1, round(rate))) if spec.name == link else spec
            for spec in scenario.links
        )
        model = Model(msgspec.structs.replace(scenario, links=links), percentiles)
        return _worst(model.predict(policy), flows, percentile)

    return smallest_below(
        worst,
        threshold_s,
        1.0,
        float(most_bps),
        unmet=lambda best: (
            f"the response is {best:.4g} s even if the link has {most_bps:g} bit/s, and "
            f"{threshold_s:g} s is asked"
        ),
    )


def _worst(prediction: Prediction, flows: Sequence[int], percentile: float | None) -> float:
    values = prediction.mean if percentile is None else prediction.percentiles[percentile]
    return float(np.max(values[list(flows)]))
