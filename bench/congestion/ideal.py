"""What no broker can beat: a non-preemptive priority queue in front of the link.

`replay` sends the very messages of a measurement through it, so that periods and phases of the
devices count as they were. `expected` is the model's closed form for Poisson arrivals.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from bench.congestion.contenders import Plan
from bench.congestion.workload import CATEGORIES, Workload
from headgate.contract import Policy, PolicyRule
from headgate.model import Model
from headgate.model.scenario import Scenario


@dataclass(frozen=True)
class Copy:
    """One message on its way to one flow."""

    flow: int
    arrived: float
    level: int
    size: int
    """On the wire."""


def replay(copies: Sequence[Copy], rate: float, burst: float) -> list[float]:
    """The response time of each copy, in seconds; copies come in the order of their arrival.

    The link is that of tbf: `rate` in bytes per second with a bucket of `burst` bytes. A message
    that began is never interrupted.
    """
    responses = [0.0] * len(copies)
    waiting: list[tuple[int, int]] = []
    depth = burst / rate
    free = 0.0  # when the link can take the next message
    filled = float("-inf")  # when a line without a bucket would have sent everything
    following = 0
    while following < len(copies) or waiting:
        if not waiting:
            free = max(free, copies[following].arrived)
        while following < len(copies) and copies[following].arrived <= free:
            heapq.heappush(waiting, (copies[following].level, following))
            following += 1
        chosen = heapq.heappop(waiting)[1]
        filled = max(filled, free) + copies[chosen].size / rate
        free = max(free, filled - depth)
        responses[chosen] = free - copies[chosen].arrived
    return responses


@dataclass(frozen=True)
class Expected:
    """Mean response times in milliseconds, by category; infinite where the link cannot follow."""

    by_priority: dict[str, float]
    by_arrival: float
    """First come, first served, and nothing left out: any broker that knows no categories."""


def expected(workload: Workload, load: float, rate: float, plan: Plan) -> Expected:
    """The model's answer for Poisson arrivals; `rate` in bits per second."""
    model = Model(_on_the_wire(workload, load, rate))
    flows = model.table.flows
    category = {
        (flow.client, workload.devices[flow.device].topic): flow.category
        for flow in workload.subscriptions
    }
    planned = model.predict(Policy(rules=tuple(PolicyRule(**rule) for rule in plan.rules)))
    plain = model.predict(Policy())
    return Expected(
        {
            name: 1e3
            * planned.group_mean(
                [i for i, flow in enumerate(flows) if category[flow.client, flow.filter] == name]
            )
            for name in CATEGORIES
        },
        1e3 * plain.group_mean(range(len(flows))),
    )


def _on_the_wire(workload: Workload, load: float, rate: float) -> Scenario:
    scenario = workload.scenario
    topics = tuple(
        replace(topic, rate=device.rate * load, size=device.wire_size)
        for topic, device in zip(scenario.topics, workload.devices, strict=True)
    )
    links = tuple(replace(link, rate=rate) for link in scenario.links)
    return replace(scenario, topics=topics, links=links)
