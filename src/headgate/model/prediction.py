"""The network of ON/OFF Fig. 1 in closed form: what a policy will do to every flow.

    publish ─▶ input queue ─▶ copies, thinned ─▶ client's ON/OFF queue ─▶ link by priority ─▶ stages
                  M/G/1          drop rates        if it comes and goes        M[X]/G/1

Each part is exact for Poisson arrivals; that the parts see Poisson arrivals from each other and are
independent is the approximation. The ON/OFF queue stands before the link, because a broker keeps
what a disconnected client missed, and what it drops there never loads the link
(docs/decisions/0011-network-model.md). docs/model.md measures the errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from headgate.contract import Discipline, Policy, PolicyRule
from headgate.model.connectivity import ClientQueues
from headgate.model.distributions import Distribution
from headgate.model.flows import FlowTable, Settings
from headgate.model.links import LinkQueues, shifted
from headgate.model.parts import Array, Part, add_up, sums
from headgate.model.scenario import (
    ArrivalProcess,
    InputQueue,
    Scenario,
    Shape,
    Stage,
    distribution,
)
from headgate.model.single import MG1, MM1K

PERCENTILES = (95.0, 99.0)

THRESHOLDS = (
    "thresholds (threshold_s) are left out: where no rule sets join, every message waits for a "
    "client that is away"
)


@dataclass(frozen=True)
class Prediction:
    """Steady state under a policy, one element per flow in the order of the scenario's flows."""

    mean: Array
    """Response time from publication to arrival, in seconds; infinite where a queue is unstable."""
    percentiles: dict[float, Array]
    loss: Array
    """Fraction of the published messages that never arrive."""
    throughput: Array
    """Messages per second that arrive."""
    utilisation: Array
    """Offered load of each link of the scenario."""
    assumptions: tuple[str, ...]
    """What the scenario has and this model leaves out."""

    @property
    def stable(self) -> NDArray[np.bool_]:
        return np.isfinite(self.mean)

    def group_mean(self, flows: Sequence[int]) -> float:
        """Mean response over all messages that reach these flows."""
        chosen = np.asarray(flows, dtype=np.int64)
        rate = self.throughput[chosen]
        if not rate.any():
            return float("inf")
        arriving = rate > 0
        return float(self.mean[chosen][arriving] @ rate[arriving] / rate.sum())


class Model:
    """A scenario prepared for predictions: make it once, ask it for every candidate policy."""

    def __init__(self, scenario: Scenario, percentiles: Sequence[float] = PERCENTILES) -> None:
        self.scenario = scenario
        self.percentiles = tuple(percentiles)
        self.table = table = FlowTable(scenario)
        rate = np.array([topic.mean_rate for topic in scenario.topics])
        sizes = np.array([topic.size_distribution.moments() for topic in scenario.topics])
        self.offered = sums(table.stream_flow, rate[table.stream_topic], len(table))
        self._published = float(rate.sum())
        self._clients = ClientQueues(table)
        wire = shifted(sizes.reshape(-1, 3), float(scenario.overhead))
        scores = {p: _size_scores(scenario, p) for p in self.percentiles}
        self._links = LinkQueues(table, rate, wire, scores, self._clients.flows)
        self._stages = [(stage, _behind(stage, table)) for stage in scenario.stages]
        self._assumptions = _assumptions(scenario)

    def predict(self, policy: Policy | Sequence[PolicyRule] | Settings | None = None) -> Prediction:
        """The steady state under `policy`; without one, under the scenario's own."""
        if policy is None:
            policy = self.scenario.policy
        settings = policy if isinstance(policy, Settings) else self.table.settings(policy)
        percentiles = self.percentiles
        parts: list[Part] = []
        carried = self.offered * (1 - settings.drop)
        if self.scenario.input is not None:
            part, passed = _input_part(self.scenario.input, self._published, percentiles)
            parts.append(part)
            carried = carried * passed
        if len(self._clients.flows):
            part, carried = self._clients.respond(settings, carried, percentiles)
            parts.append(part)
        if len(self._links.flow):
            with np.errstate(divide="ignore", invalid="ignore"):
                chance = np.where(self.offered > 0, carried / self.offered, 0.0)
            part, through, utilisation = self._links.respond(settings, chance, percentiles)
            parts.append(part)
            carried = carried * through
        else:
            utilisation = np.zeros(len(self.scenario.links))
        for stage, behind in self._stages:
            load = float(carried[behind].sum())
            parts.append(_stage_part(stage, load, percentiles).only_for(behind))
        mean, values = add_up(parts, len(self.table), percentiles)
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.where(self.offered > 0, 1 - carried / self.offered, 0.0)
        return Prediction(
            mean,
            values,
            np.clip(loss, 0.0, 1.0),
            carried,
            utilisation,
            self._assumptions + self._unmodelled(settings) + self._thresholds(policy),
        )

    def _unmodelled(self, settings: Settings) -> tuple[str, ...]:
        notes = []
        if np.isfinite(settings.lifetime).any():
            notes.append("lifetimes are left out: simulate them")
        if (settings.capacity >= 0).any():
            notes.append("capacities of flows are left out: simulate them")
        if self._clients.mixes_priorities(settings):
            notes.append("a client that comes and goes takes its flows in order of arrival")
        return tuple(notes)

    def _thresholds(self, policy: Policy | Sequence[PolicyRule] | Settings) -> tuple[str, ...]:
        """What the broker makes of `threshold_s` depends on what it measures of each client."""
        if isinstance(policy, Settings) or not len(self._clients.flows):
            return ()
        rules = policy.rules if isinstance(policy, Policy) else policy
        asked = any(entry.threshold_s is not None for entry in rules) or any(
            application.threshold_s is not None for application in self.scenario.applications
        )
        return (THRESHOLDS,) if asked else ()


def predict(
    scenario: Scenario | Model, policy: Policy | Sequence[PolicyRule] | Settings | None = None
) -> Prediction:
    """Predict one policy; for many on one scenario, make the `Model` once."""
    model = scenario if isinstance(scenario, Model) else Model(scenario)
    return model.predict(policy)


def _input_part(queue: InputQueue, rate: float, percentiles: Sequence[float]) -> tuple[Part, float]:
    """Every published message passes the input once, subscribed to or not."""
    if queue.capacity is not None:
        finite = MM1K(rate, queue.rate, queue.capacity)
        mean = finite.mean_response
        quantiles = {p: finite.response_quantile(p / 100) for p in percentiles}
        # The variance only weighs this part against the others.
        return (
            Part(mean, mean**2, {p: value / mean - 1 for p, value in quantiles.items()}),
            1 - finite.loss,
        )
    service = distribution(queue.service, 1 / queue.rate)
    return _queue_part(MG1(rate, service), percentiles), min(1.0, queue.rate / rate)


def _stage_part(stage: Stage, rate: float, percentiles: Sequence[float]) -> Part:
    service = distribution(stage.service, stage.time)
    if stage.queue:
        return _queue_part(MG1(rate, service), percentiles)
    first, second, _ = service.moments()
    return Part.gamma(first, second - first**2, percentiles)


def _queue_part(queue: MG1, percentiles: Sequence[float]) -> Part:
    if not queue.stable:
        return Part.gamma(np.inf, 0.0, percentiles)
    first, second, _ = queue.service.moments()
    variance = queue.wait_second_moment - queue.mean_wait**2 + second - first**2
    return Part.gamma(queue.mean_response, variance, percentiles)


def _behind(stage: Stage, table: FlowTable) -> NDArray[np.bool_]:
    return np.array(
        [any(fnmatchcase(flow.client, glob) for glob in stage.clients) for flow in table.flows],
        dtype=bool,
    )


def _assumptions(scenario: Scenario) -> tuple[str, ...]:
    notes = []
    if any(topic.arrivals is not ArrivalProcess.POISSON for topic in scenario.topics):
        notes.append("arrivals are taken as Poisson")
    notes.extend(
        f"link {link.name}: {link.discipline} is taken as strict"
        for link in scenario.links
        if link.discipline is not Discipline.STRICT
    )
    known = [c.connectivity for c in scenario.clients if c.connectivity is not None]
    if any(c.service is not Shape.EXPONENTIAL for c in known):
        notes.append("clients that come and go are served in exponential times")
    if any(c.periods is not Shape.EXPONENTIAL for c in known):
        notes.append("ON and OFF periods are taken as exponential")
    if scenario.input is not None and scenario.input.capacity is not None:
        notes.append("the input queue is taken as M/M/1/K")
    return tuple(notes)


def _size_scores(scenario: Scenario, percentile: float) -> Array:
    """Per topic, the percentile of the size in standard deviations above its mean."""
    known: dict[Distribution, float] = {}
    scores = []
    for topic in scenario.topics:
        # Scores do not depend on the scale: one look-up serves all sizes of a shape.
        sizes = topic.size_distribution
        if sizes.mean > 0 and not sizes.values:
            sizes = sizes.scaled(1 / sizes.mean)
        if sizes not in known:
            first, second, _ = sizes.moments()
            deviation = np.sqrt(max(0.0, second - first**2))
            above = sizes.quantile(percentile / 100) - first
            known[sizes] = above / deviation if deviation > 1e-9 * first else 0.0
        scores.append(known[sizes])
    return np.array(scores)
