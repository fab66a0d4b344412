"""Who publishes what, who wants it, and when: PlanEMQX §V-C, Table I."""

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bench import packets
from bench.network import on_wire
from headgate.contract import Requirement
from headgate.experiments.scenarios import load
from headgate.model.scenario import Scenario

CATEGORIES = ("RT", "ST", "TS", "AN")
"""From the most to the least important, as the paper's plan has it (Listing 2)."""

DROPS = {"ST": 0.02, "AN": 0.05}
"""What the same plan leaves out."""


class Arrivals(StrEnum):
    """When a device publishes."""

    PERIODIC = "periodic"
    """At equal distances; each device begins at a random moment of its first period."""
    TOGETHER = "together"
    """At equal distances, and all devices begin at once: a burst every second."""
    POISSON = "poisson"


@dataclass(frozen=True)
class Device:
    """Publishes to a topic of its own."""

    topic: str
    rate: float
    size: int

    @property
    def packet_size(self) -> int:
        """Bytes of its PUBLISH."""
        return len(packets.publish(self.topic, b"x" * self.size))

    @property
    def wire_size(self) -> int:
        """The same on the link."""
        return on_wire(self.packet_size)


@dataclass(frozen=True)
class Subscription:
    """One application's wish for one device's messages: a flow."""

    client: str
    device: int
    category: str


@dataclass(frozen=True)
class Workload:
    """Devices, applications, and the flows between them in the order of the scenario."""

    scenario: Scenario
    devices: tuple[Device, ...]
    subscriptions: tuple[Subscription, ...]
    requirements: dict[str, Requirement | None]
    """By application."""

    @property
    def clients(self) -> list[str]:
        return list(dict.fromkeys(flow.client for flow in self.subscriptions))

    def filters(self, client: str) -> list[str]:
        """What a client subscribes to."""
        return [self.devices[f.device].topic for f in self.subscriptions if f.client == client]

    def offered(self, load: float = 1.0, category: str | None = None) -> float:
        """Bits per second that all copies need on the link."""
        return load * sum(
            self.devices[flow.device].rate * self.devices[flow.device].wire_size * 8
            for flow in self.subscriptions
            if category in (None, flow.category)
        )


def planemqx() -> Workload:
    """The paper's workload, as it comes with Headgate."""
    scenario = load("planemqx")
    numbers = {topic.name: number for number, topic in enumerate(scenario.topics)}
    categories = {
        client: application.category or ""
        for application in scenario.applications
        for client in application.clients
    }
    return Workload(
        scenario,
        tuple(Device(topic.name, topic.mean_rate, topic.size) for topic in scenario.topics),
        tuple(
            Subscription(client.name, numbers[topic], categories[client.name])
            for client in scenario.clients
            for topic in client.subscriptions
        ),
        {
            client: application.requirement
            for application in scenario.applications
            for client in application.clients
        },
    )


def schedule(
    devices: Sequence[Device], arrivals: Arrivals, load: float, seconds: float, seed: int
) -> Iterator[tuple[float, int]]:
    """Moments at which devices publish, in order: seconds from the start, and which device."""
    rng = random.Random(seed)
    coming = []
    for number, device in enumerate(devices):
        period = 1 / (device.rate * load)
        match arrivals:
            case Arrivals.PERIODIC:
                first = rng.random() * period
            case Arrivals.TOGETHER:
                first = 0.0
            case Arrivals.POISSON:
                first = rng.expovariate(1 / period)
        coming.append((first, number, period))
    heapq.heapify(coming)
    while coming and coming[0][0] < seconds:
        moment, number, period = coming[0]
        yield moment, number
        gap = rng.expovariate(1 / period) if arrivals is Arrivals.POISSON else period
        heapq.heapreplace(coming, (moment + gap, number, period))
