"""The same model in Headgate, SimPy and Ciw, each as its documentation would write it.

Each function simulates `seconds` from a seed and returns (messages delivered, mean response).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from bench.simulator.models import Queues
from headgate.model import Distribution
from headgate.model.simulation import Arrivals, Network, Source, Station, Stream, simulate

Run = Callable[[Queues, float, int], tuple[int, float]]


def network_of(model: Queues) -> Network:
    path = tuple(range(len(model.services)))
    sources = [
        Source(Arrivals.poisson(rate), (Stream(path, priority=level),))
        for level, rate in enumerate(model.rates)
    ]
    stations = [Station(service=Distribution.exponential(mean)) for mean in model.services]
    return Network(sources, stations)


def headgate(model: Queues, seconds: float, seed: int) -> tuple[int, float]:
    group = simulate(network_of(model), horizon=seconds, workers=1, seed=seed).group()
    return group.delivered, group.mean.value


def simpy(model: Queues, seconds: float, seed: int) -> tuple[int, float]:
    import simpy  # noqa: PLC0415 - the contenders are not dependencies

    environment = simpy.Environment()
    servers = [simpy.PriorityResource(environment) for _ in model.services]
    if len(model.rates) == 1:
        servers = [simpy.Resource(environment) for _ in model.services]
    delivered, total = 0, 0.0
    draw = random.Random(seed).expovariate

    def message(level: int) -> Iterator[Any]:
        nonlocal delivered, total
        created = environment.now
        for server, mean in zip(servers, model.services, strict=True):
            request = server.request(priority=level) if len(model.rates) > 1 else server.request()
            with request:
                yield request
                yield environment.timeout(draw(1 / mean))
        delivered += 1
        total += environment.now - created

    def source(level: int, rate: float) -> Iterator[Any]:
        while True:
            yield environment.timeout(draw(rate))
            environment.process(message(level))

    for level, rate in enumerate(model.rates):
        environment.process(source(level, rate))
    environment.run(until=seconds)
    return delivered, total / delivered


def ciw(model: Queues, seconds: float, seed: int) -> tuple[int, float]:
    import ciw  # noqa: PLC0415

    classes = [f"Class {level}" for level in range(len(model.rates))]
    stations = len(model.services)
    network = ciw.create_network(
        arrival_distributions={
            name: [ciw.dists.Exponential(rate), *[None] * (stations - 1)]
            for name, rate in zip(classes, model.rates, strict=True)
        },
        service_distributions={
            name: [ciw.dists.Exponential(1 / mean) for mean in model.services] for name in classes
        },
        routing={
            name: [[float(j == i + 1) for j in range(stations)] for i in range(stations)]
            for name in classes
        },
        number_of_servers=[1] * stations,
        priority_classes={name: level for level, name in enumerate(classes)},
    )
    ciw.seed(seed)
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_time(seconds)
    spent: dict[int, float] = {}
    last: set[int] = set()
    for record in simulation.get_all_records():
        spent[record.id_number] = spent.get(record.id_number, 0.0) + (
            record.exit_date - record.arrival_date
        )
        if record.node == stations:
            last.add(record.id_number)
    return len(last), sum(spent[number] for number in last) / len(last)
