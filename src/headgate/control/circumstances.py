"""What a plan depends on, and how far that may change before there must be another.

Links by their rates, and the traffic of each application on each link; as they are, and as they are
foreseen.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.control.measuring import literally
from headgate.model import Scenario

LOAD_RANGE = 0.2
"""A plan holds while no application's traffic on a link changes by more than this fraction."""
RATE_RANGE = 0.1
"""The same for the rate of a link."""
HARDER = 0.05
"""Load that rises, or a link that slows down, by this fraction is a reason for worse responses."""

Circumstances = dict[object, float]
"""Rates of links by their names; traffic in bit/s by application and link."""


def circumstances(scenario: Scenario) -> Circumstances:
    """What a plan depends on: rates of links (by name), traffic of each application on each link
    (by application and link)."""
    rates = {topic.name: (topic.rate or 0.0) * topic.size * 8 for topic in scenario.topics}
    found: dict[object, float] = {
        link.name: float(link.rate) for link in scenario.links if link.rate is not None
    }
    link_of = {client: link.name for link in scenario.links for client in link.clients}
    for client in scenario.clients:
        link = link_of.get(literally(client.name))
        if link is not None:
            key = (client.application or "-", link)
            bits = sum(rates.get(s, 0.0) for s in client.subscriptions)
            found[key] = found.get(key, 0.0) + bits
    return found


def named(key: object) -> str:
    """A link, or an application on one, in words."""
    return "{} on {}".format(*key) if isinstance(key, tuple) else str(key)


def bits(value: float) -> str:
    """Bits per second in words."""
    for size, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} bit/s"


@dataclass(frozen=True)
class Validity:
    """The circumstances for which was planned: from those that were, to those that were foreseen.
    A plan that holds at a load holds below it."""

    present: Circumstances
    ahead: Circumstances
    until: float
    """When what was foreseen should have come."""
    partial: bool = False
    """That somebody came, or a load jumped, was seen for a part of a second only: the next snapshot
    may show more of it."""

    def left(self, now: Circumstances, time: float) -> str:
        """How the circumstances left this range; empty if they did not."""
        for key, value in now.items():
            allowed = RATE_RANGE if isinstance(key, str) else LOAD_RANGE
            above = HARDER if self.partial and not isinstance(key, str) else allowed
            low, high = sorted((self.present[key], self.ahead.get(key, self.present[key])))
            if value < low * (1 - allowed) - 1e-9 or value > high * (1 + above) + 1e-9:
                return f"{named(key)} changed from {bits(self.present[key])} to {bits(value)}"
            if time > self.until and value < high * (1 - HARDER) and high > low * (1 + HARDER):
                return f"{named(key)} was foreseen at {bits(high)} and is {bits(value)}"
        return ""


@dataclass(frozen=True)
class Ahead:
    """What is coming."""

    scenario: Scenario
    growth: dict[tuple[str, str], float]
    """By application and link: load then over load now."""
    newcomers: tuple[tuple[str, str], ...] = ()
    """Who is not there yet."""

    def __str__(self) -> str:
        if self.newcomers:
            return " and ".join("{} comes to {}".format(*key) for key in self.newcomers[:3])
        (application, link), factor = max(self.growth.items(), key=lambda item: item[1])
        return f"{application} on {link} × {factor:.2f}"
