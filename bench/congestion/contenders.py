"""The brokers of this bench, as data: Mosquitto, and Headgate with and without the paper's plan."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bench import configured
from bench.brokers import Broker
from bench.congestion.workload import CATEGORIES, DROPS, Workload

SHARES = {2: 0.1, 3: 0.1}
"""Fraction of the link that TS and AN get at least, where a minimum is guaranteed."""

BASELINE = "mosquitto"


class Variant(StrEnum):
    """A broker and how it schedules."""

    MOSQUITTO = BASELINE
    STRICT = "strict"
    STRICT_MIN = "strict-min"
    AUTO = "auto"
    """Strict, and nobody says how fast the link is."""
    UNPLANNED = "unplanned"
    """Headgate behind a link that it knows, and no plan: every flow has the same priority."""


CONTESTED = (Variant.MOSQUITTO, Variant.STRICT, Variant.STRICT_MIN, Variant.AUTO)
"""What is compared unless told; the other is there to be held against the model."""


@dataclass(frozen=True)
class Plan:
    """What Headgate is told to do to each category."""

    drops: dict[str, float]
    ordered: bool = True
    """Whether each category has a priority of its own."""

    def level(self, category: str) -> int:
        """Which goes first."""
        return CATEGORIES.index(category) if self.ordered else 0

    @property
    def rules(self) -> list[dict[str, Any]]:
        """As a policy."""
        rules: list[dict[str, Any]] = []
        for category in CATEGORIES:
            rule: dict[str, Any] = {"category": category, "priority": self.level(category)}
            if category in self.drops:
                rule["drop"] = self.drops[category]
            rules.append(rule)
        return rules


PLANNED = Plan(DROPS)
UNTHINNED = Plan({})
NONE = Plan({}, ordered=False)


def broker(variant: Variant, workload: Workload, rate: float, plan: Plan, near: str) -> Broker:
    """Listens on loopback for the devices, and on the link's near side for the applications."""
    addresses = ("127.0.0.1", near)
    if variant is Variant.MOSQUITTO:
        return configured.mosquitto(BASELINE, addresses)
    link: dict[str, Any] = {
        "name": "applications",
        "clients": ["app*"],
        "rate": "auto" if variant is Variant.AUTO else round(rate),
        "discipline": str(variant if variant is Variant.STRICT_MIN else Variant.STRICT),
    }
    if variant is Variant.STRICT_MIN:
        link["shares"] = SHARES
    settings = {
        "applications": applications(workload),
        "links": [link],
        "policy": plan.rules,
        "snapshot_interval": "1s",
    }
    return configured.headgate(str(variant), addresses, settings)


def applications(workload: Workload) -> dict[str, Any]:
    """As a configuration has them."""
    shown: dict[str, Any] = {}
    for flow in workload.subscriptions:
        shown[flow.client] = {"clients": [flow.client], "category": flow.category}
        requirement = workload.requirements[flow.client]
        if requirement is not None:
            shown[flow.client]["requirement"] = {
                "mean_ms": requirement.mean_ms,
                "loss": requirement.loss,
            }
    return shown
