"""A scenario and a policy as a network of stations, simulated, and measured flow by flow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from headgate.contract import Discipline, Policy, PolicyRule
from headgate.errors import ConfigurationError
from headgate.model.flows import UNLIMITED, FlowTable, Ints, Settings
from headgate.model.scenario import ArrivalProcess, Scenario, Topic, distribution
from headgate.model.simulation.network import Arrivals, Network, Source, Station, Stream
from headgate.model.simulation.running import Progress, simulate
from headgate.model.simulation.statistics import Group, Measurement


@dataclass(frozen=True)
class ScenarioMeasurement:
    """What was measured, by flow, application, category, or all together."""

    table: FlowTable
    measurement: Measurement
    flow_of: Ints
    """Of each stream of the network, its flow."""

    def flow(self, number: int) -> Group:
        return self.measurement.group(np.flatnonzero(self.flow_of == number))

    def flows(self, numbers: Sequence[int]) -> Group:
        return self.measurement.group(np.flatnonzero(np.isin(self.flow_of, numbers)))

    def application(self, name: str) -> Group:
        return self.flows(
            [n for n, flow in enumerate(self.table.flows) if (flow.needs or "-") == name]
        )

    def category(self, name: str) -> Group:
        return self.flows(
            [n for n, flow in enumerate(self.table.flows) if (flow.category or "-") == name]
        )

    def everything(self) -> Group:
        return self.measurement.group()


def simulate_scenario(
    scenario: Scenario,
    policy: Policy | Sequence[PolicyRule] | Settings | None = None,
    *,
    duration: float | None = None,
    warmup: float | None = None,
    replications: int = 4,
    seed: int = 1,
    workers: int | None = None,
    batches: int = 20,
    drain: bool = False,
    records: bool = False,
    progress: Progress | None = None,
) -> ScenarioMeasurement:
    """Simulate under `policy`; without one, under the scenario's own."""
    table = FlowTable(scenario)
    if policy is None:
        policy = scenario.policy
    settings = policy if isinstance(policy, Settings) else table.settings(policy)
    network, flow_of = build_network(table, settings)
    measurement = simulate(
        network,
        horizon=scenario.duration if duration is None else duration,
        warmup=scenario.warmup if warmup is None else warmup,
        replications=replications,
        batches=batches,
        seed=seed,
        workers=workers,
        drain=drain,
        records=records,
        progress=progress,
    )
    return ScenarioMeasurement(table, measurement, flow_of)


def build_network(table: FlowTable, settings: Settings) -> tuple[Network, Ints]:
    """The network, and the flow of each of its streams."""
    scenario = table.scenario
    stations: list[Station] = []

    def station(new: Station) -> int:
        stations.append(new)
        return len(stations) - 1

    entry = None
    if scenario.input is not None:
        service = distribution(scenario.input.service, 1 / scenario.input.rate)
        entry = station(Station(service=service, capacity=scenario.input.capacity))
    client_station = {
        number: station(
            Station(
                service=distribution(c.connectivity.service, 1 / c.connectivity.drain),
                on=distribution(c.connectivity.periods, c.connectivity.on),
                off=distribution(c.connectivity.periods, c.connectivity.off),
            )
        )
        for number, c in enumerate(scenario.clients)
        if c.connectivity is not None
    }
    link_station: dict[int, int] = {}
    for number, link in enumerate(scenario.links):
        if link.rate is None:
            continue
        if link.discipline is not Discipline.STRICT:
            raise ConfigurationError(
                f"link {link.name}: the simulator knows strict links, not {link.discipline}"
            )
        seconds = 8 / link.rate
        link_station[number] = station(
            Station(seconds_per_byte=seconds, seconds_per_message=scenario.overhead * seconds)
        )
    stages = [
        (
            stage,
            station(
                Station(service=distribution(stage.service, stage.time), delay=not stage.queue)
            ),
        )
        for stage in scenario.stages
    ]
    streams: list[list[Stream]] = [[] for _ in scenario.topics]
    flow_of: list[list[int]] = [[] for _ in scenario.topics]
    for flow_number, topic in zip(table.stream_flow, table.stream_topic, strict=True):
        number = int(flow_number)
        flow = table.flows[number]
        path = []
        if table.client_of[number] in client_station:
            path.append(client_station[table.client_of[number]])
        if flow.link is not None and flow.link in link_station:
            path.append(link_station[flow.link])
        path.extend(
            place
            for stage, place in stages
            if any(fnmatchcase(flow.client, glob) for glob in stage.clients)
        )
        lifetime = float(settings.lifetime[number])
        capacity = int(settings.capacity[number])
        streams[topic].append(
            Stream(
                tuple(path),
                priority=int(settings.priority[number]),
                drop=float(settings.drop[number]),
                join=float(settings.join[number]),
                lifetime=(
                    distribution(scenario.lifetimes, lifetime) if np.isfinite(lifetime) else None
                ),
                capacity=None if capacity == UNLIMITED else capacity,
            )
        )
        flow_of[topic].append(number)
    sources = [
        Source(_arrivals(topic), tuple(copies), topic.size_distribution, entry)
        for topic, copies in zip(scenario.topics, streams, strict=True)
        # A topic without subscribers still takes the broker's time.
        if copies or entry is not None
    ]
    order = np.array([number for numbers in flow_of for number in numbers], dtype=np.int64)
    return Network(sources, stations), order


def _arrivals(topic: Topic) -> Arrivals:
    match topic.arrivals:
        case ArrivalProcess.POISSON:
            return Arrivals.poisson(topic.mean_rate)
        case ArrivalProcess.PERIODIC:
            return Arrivals.periodic(topic.mean_rate, topic.jitter)
        case ArrivalProcess.BURSTS:
            return Arrivals.bursts(topic.mean_rate, topic.on or 0.0, topic.off or 0.0)
        case ArrivalProcess.TRACE:
            return Arrivals.trace(topic.times)
