"""Does the model still tell the truth? Measured responses against predicted ones, link by link.

A link that answers more slowly than the model says for half a minute, by half as much again, has
drifted: something loads it that the broker does not see, or arrivals come in bursts. Until the
pipeline learns better, the responses of that link are multiplied by what was measured.

Only slowness is corrected. A link that answers faster than expected, as lightly loaded ones do
because a response ends when the kernel has the message, is not a reason for optimism.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import fmean

from headgate.contract import Policy, Snapshot
from headgate.control.planning.outlook import bounded
from headgate.model import Model, Scenario

LOOK_EVERY = 5.0
LOOKS = 6
"""Comparisons, all on the same side, that make a drift."""
DRIFTED = 1.5
"""Measured over predicted."""
MOST = 8.0
MATTERS = 0.25
"""Of what was asked for: who waits less than that has no reason to complain."""


class Drift:
    """Compares, and corrects."""

    def __init__(self) -> None:
        self.factors: dict[str, float] = {}
        """By link: what its responses are multiplied by."""
        self._ratios: dict[str, deque[float]] = {}
        self._next = 0.0

    def restart(self, now: float, settled_after: float) -> None:
        """A new policy or calibration: what was compared before says nothing of it."""
        self._ratios.clear()
        self._next = now + settled_after

    def look(
        self, snapshot: Snapshot, scenario: Scenario, policy: Policy, strains: Mapping[str, float]
    ) -> str:
        """What has drifted since the last look; empty if nothing has."""
        if snapshot.time < self._next:
            return ""
        self._next = snapshot.time + LOOK_EVERY
        for link, ratio in _ratios(snapshot, scenario, policy, strains).items():
            seen = self._ratios.setdefault(link, deque(maxlen=LOOKS))
            seen.append(ratio)
            if len(seen) < LOOKS:
                continue
            known = self.factors.get(link, 1.0)
            slower, recovered = min(seen) > DRIFTED, known > 1 and max(seen) < 1 / DRIFTED
            if slower or recovered:
                self.factors[link] = min(max(1.0, known * fmean(seen)), MOST)
                seen.clear()
                word = "slowly" if slower else "fast"
                by = ratio if slower else 1 / ratio
                return f"model drift: {link} answers {by:.2f} × as {word} as the model expects"
        return ""


def _ratios(
    snapshot: Snapshot, scenario: Scenario, policy: Policy, strains: Mapping[str, float]
) -> dict[str, float]:
    """By link: mean response as measured over mean response as predicted, of the same messages."""
    model = Model(scenario, ())
    if not len(model.table):
        return {}
    prediction = model.predict(bounded(model.table, model.table.settings(policy)))
    place = {(flow.client, flow.filter): n for n, flow in enumerate(model.table.flows)}
    measured: dict[str, float] = {}
    predicted: dict[str, float] = {}
    matters = set()
    for flow in snapshot.flows:
        number = place.get((flow.client, flow.filter))
        if number is None or not flow.delivered or not flow.link or not flow.connected:
            continue
        expected = float(prediction.mean[number]) * 1000
        if expected == float("inf"):
            continue  # more than the link carries: no steady state to compare with
        measured[flow.link] = measured.get(flow.link, 0.0) + flow.delivered * flow.mean_ms
        predicted[flow.link] = predicted.get(flow.link, 0.0) + flow.delivered * expected
        if strains.get(flow.application, 0.0) > MATTERS:
            matters.add(flow.link)
    return {
        link: measured[link] / predicted[link]
        for link in measured
        if predicted[link] > 0 and link in matters
    }
