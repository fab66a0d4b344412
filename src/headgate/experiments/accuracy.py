"""How far the network model is from the simulator, where the model is not exact.

Means on a link are exact for Poisson publications; percentiles are fitted, and a client that
comes and goes sends its backlog to the link in bursts that the model takes as Poisson.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headgate.contract import FlowSelector, LinkSpec, PolicyRule
from headgate.experiments.report import Cell, Report, Table, Tell, silently
from headgate.model import Client, Connectivity, Model, Scenario, Shape, Topic
from headgate.model.parts import Array
from headgate.model.simulation.of_scenario import simulate_scenario

LOADS = (0.3, 0.6, 0.8, 0.95)
SHAPES = {
    "constant": (Shape.CONSTANT, None),
    "exponential": (Shape.EXPONENTIAL, None),
    "lognormal, scv 4": (Shape.LOGNORMAL, 4.0),
}
_SIZE, _RATE_BPS, _LEVELS = 1000, 800_000, 4


@dataclass(frozen=True)
class Effort:
    """Each point of the grid simulates this many messages."""

    messages: float = 8e6
    seed: int = 1


USUAL = Effort()


def link_scenario(load: float, sizes: Shape, scv: float | None, copies: int) -> Scenario:
    """Four levels with an equal share of the load; every topic has `copies` subscriptions, which
    with more than one fall into different levels."""
    rate = load * _RATE_BPS / (8 * _SIZE) / (_LEVELS * copies)
    topics = tuple(
        Topic(name=f"t{i}", rate=rate, size=_SIZE, sizes=sizes, size_scv=scv)
        for i in range(_LEVELS)
    )
    clients = tuple(
        Client(
            name=f"c{level}",
            subscriptions=tuple(f"t{(level + copy) % _LEVELS}" for copy in range(copies)),
        )
        for level in range(_LEVELS)
    )
    # One rule per flow: the level of a flow is that of its client.
    rules = tuple(
        PolicyRule(flow=FlowSelector(client=client.name, filter=name), priority=level)
        for level, client in enumerate(clients)
        for name in client.subscriptions
    )
    links = (LinkSpec(name="link", clients=("*",), rate=_RATE_BPS),)
    return Scenario(topics=topics, clients=clients, links=links, policy=rules)


def percentiles(effort: Effort = USUAL, tell: Tell = silently) -> Report:
    """Largest error of any flow, by load, sizes and copies."""
    rows: list[list[Cell]] = []
    for name, (shape, scv) in SHAPES.items():
        for copies in (1, 3):
            for load in LOADS:
                tell(f"percentiles: {name} sizes, {copies} copies, load {load:g}")
                scenario = link_scenario(load, shape, scv, copies)
                seconds = effort.messages / (load * _RATE_BPS / (8 * _SIZE))
                errors = _errors(scenario, seconds, effort.seed)
                rows.append([name, copies, load, *[_range(100 * error) for error in errors]])
    table = Table(
        "Model against simulation, four priorities on one link: error over all flows (%)",
        ["sizes", "copies", "load", "mean", "p95", "p99"],
        rows,
    )
    return Report("accuracy-percentiles", "Percentiles by priority", [table])


def bursts(effort: Effort = USUAL, tell: Tell = silently) -> Report:
    """Clients that return and drain 40 messages per second each, on links of several rates."""
    rows: list[list[Cell]] = []
    away = Connectivity(on=30.0, off=10.0, drain=40.0)
    drain = 40.0 * 1000 * 8
    for rate in (400_000, 700_000, 1_000_000, 2_000_000, 5_000_000):
        tell(f"backlogs: a link of {rate / 1e6:g} Mbit/s")
        scenario = Scenario(
            topics=tuple(Topic(name=f"t{i}", rate=3.0, size=1000) for i in range(4)),
            clients=(
                Client(name="here", subscriptions=("t0", "t1", "t2", "t3")),
                Client(name="away-1", subscriptions=("t0", "t3"), connectivity=away),
                Client(name="away-2", subscriptions=("t0", "t1", "t2", "t3"), connectivity=away),
            ),
            links=(LinkSpec(name="link", clients=("*",), rate=rate),),
        )
        model = Model(scenario)
        (mean, *_) = _errors(scenario, effort.messages / 10, effort.seed)
        here = [n for n, flow in enumerate(model.table.flows) if flow.client == "here"]
        others = [n for n, flow in enumerate(model.table.flows) if flow.client != "here"]
        rows.append(
            [
                f"{rate / 1e6:g} Mbit/s",
                float(model.predict().utilisation[0]),
                drain / rate,
                _range(100 * mean[here]),
                _range(100 * mean[others]),
            ]
        )
    table = Table(
        "Error of the mean (%) where two clients come and go",
        ["link", "load", "one drain / link", "client that stays", "clients that come and go"],
        rows,
    )
    return Report("accuracy-bursts", "Backlogs that drain over a shared link", [table])


def _errors(scenario: Scenario, seconds: float, seed: int) -> Sequence[Array]:
    """Relative errors of mean, p95 and p99, per flow."""
    prediction = Model(scenario).predict()
    measured = simulate_scenario(
        scenario, duration=seconds / 4, warmup=seconds / 200, replications=4, seed=seed
    )
    groups = [measured.flow(number) for number in range(len(prediction.mean))]
    return [
        prediction.mean / [group.mean.value for group in groups] - 1,
        prediction.percentiles[95.0] / [group.percentile(95).value for group in groups] - 1,
        prediction.percentiles[99.0] / [group.percentile(99).value for group in groups] - 1,
    ]


def _range(values: Array) -> str:
    return f"{values.min():+.1f} to {values.max():+.1f}"


def reports(effort: Effort = USUAL, tell: Tell = silently) -> Iterator[Report]:
    yield percentiles(effort, tell)
    yield bursts(effort, tell)
