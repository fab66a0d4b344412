"""Who is compared, and what applications ask for."""

from dataclasses import replace
from enum import StrEnum
from typing import Any

import msgspec

from bench import configured
from bench.brokers import Broker
from bench.congestion.contenders import PLANNED, applications
from bench.congestion.workload import Workload
from headgate.contract import LinkSpec, Policy, PolicyRule, Requirement
from headgate.core.link import HEADERS
from headgate.model import Model

LINK = "applications"
SLACK = 1.1


class Contender(StrEnum):
    """A broker, and who decides for it."""

    MOSQUITTO = "mosquitto"
    DEFAULT = "default"
    """Headgate that knows its link, and nobody plans: every flow is treated alike."""
    PLANNED = "planned"
    """The same with its controller, `planner: {mode: auto}`, and no policy written by hand."""


class Demands(StrEnum):
    """What applications ask for."""

    PAPER = "paper"
    """The requirements of the authors' data: RT 0.4 s, ST 2 s, TS 4 s, AN 10 s."""
    TIGHT = "tight"
    """Such that priorities alone do not do: see `tight`."""


def asking(workload: Workload, demands: Demands, load: float, rate: float) -> Workload:
    """The same workload with these demands."""
    if demands is Demands.PAPER:
        return workload
    means = tight(workload, load, rate)
    return replace(
        workload,
        requirements={
            flow.client: Requirement(
                mean_ms=means[flow.category], loss=_tolerated(workload, flow.client)
            )
            for flow in workload.subscriptions
        },
    )


def tight(workload: Workload, load: float, rate: float) -> dict[str, float]:
    """By category, in ms: `SLACK` × what the model expects of its slowest flow under the authors'
    plan (Listing 2: 2 % of ST and 5 % of AN are dropped). What the authors decided is just enough;
    without any drop it is not, so that a planner has to find some."""
    scenario = workload.scenario
    topics = tuple(
        msgspec.structs.replace(topic, rate=device.rate * load, size=device.packet_size)
        for topic, device in zip(scenario.topics, workload.devices, strict=True)
    )
    links = (LinkSpec(name=LINK, clients=("*",), rate=round(rate)),)
    model = Model(
        msgspec.structs.replace(scenario, topics=topics, links=links, overhead=HEADERS), ()
    )
    rules = tuple(PolicyRule(**rule) for rule in PLANNED.rules)
    means = model.predict(Policy(rules=rules)).mean
    slowest: dict[str, float] = {}
    categories = {flow.client: flow.category for flow in workload.subscriptions}
    for flow, mean in zip(model.table.flows, means, strict=True):
        category = categories[flow.client]
        slowest[category] = max(slowest.get(category, 0.0), 1e3 * SLACK * float(mean))
    return {category: round(mean, 1) for category, mean in slowest.items()}


def _tolerated(workload: Workload, client: str) -> float:
    requirement = workload.requirements[client]
    return 0.0 if requirement is None else requirement.loss


def broker(contender: Contender, workload: Workload, rate: float, near: str) -> Broker:
    """Listens on loopback for the devices, and on the link's near side for the applications."""
    addresses = ("127.0.0.1", near)
    if contender is Contender.MOSQUITTO:
        return configured.mosquitto(contender, addresses)
    settings: dict[str, Any] = {
        "applications": applications(workload),
        "links": [{"name": LINK, "clients": ["app*"], "rate": round(rate)}],
        "planner": {"mode": "auto" if contender is Contender.PLANNED else "off"},
        "snapshot_interval": "1s",
    }
    return configured.headgate(contender, addresses, settings)
