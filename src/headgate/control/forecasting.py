"""What is coming: the load of each application on each link, some seconds ahead.

Two sources. The loop's own is a trend: Holt's damped linear trend over the snapshots (E. Gardner
and E. McKenzie, 1985), with its uncertainty. It counts only where it is certain that the load
rises: noise must not be planned for. The other is what the pipeline learned from the records
(`knowledge`), which knows the hours of the day.

Steps are no trend. An observation far from what was expected does not bend the trend; a second one
in a row moves the level there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import msgspec

from headgate.contract import Application
from headgate.control.knowledge import Expected
from headgate.control.measuring import literally
from headgate.model import Client, Scenario, Topic

LEVEL = 0.25
"""How much of an error of one second goes into the level."""
SLOPE = 0.2
"""How much of that goes into the trend."""
DAMPED = 0.98
"""What is left of a trend after each second ahead: none goes on for ever."""
SPREAD = 0.1
"""How much of an error of one second goes into the variance."""
CERTAIN = 1.28
"""Standard deviations: the lower end of the 80 % interval must lie above the present."""
FAR = 4.0
"""Standard deviations beyond which an observation is a step, or a mistake."""
LEAST = 0.03
"""Of the level: nothing is so regular that a smaller deviation would be far."""
ENOUGH = 8.0
"""Seconds of observation before a trend says anything."""
FORGET_AFTER = 60.0
MOST = 4.0
"""No forecast is for more than this many times the present."""

Key = tuple[str, str]
"""Application and link; all of a link together have no application."""


@dataclass
class Trend:
    """One series, observed at moments that need not be evenly spaced."""

    level: float
    began: float
    seen: float
    slope: float = 0.0
    """Per second."""
    variance: float = 0.0
    """Of an observation, given those before it."""
    interval: float = 1.0
    far: int = 0
    """Observations in a row that were far from what was expected."""

    def observe(self, value: float, now: float) -> None:
        passed = min(max(now - self.seen, 1e-3), 10.0)
        self.seen, self.interval = now, passed
        damped = DAMPED**passed
        error = value - (self.level + self.slope * _ahead(passed))
        deviation = max(sqrt(self.variance), LEAST * abs(self.level))
        self.far = self.far + 1 if now - self.began > ENOUGH and abs(error) > FAR * deviation else 0
        spread = 1 - (1 - SPREAD) ** passed
        if self.far == 1:
            self.slope *= damped
            return
        if self.far > 1:
            self.level = value
            self.slope *= damped
            # It may be a trend that is steeper than what was thought possible.
            self.variance += spread * (error**2 - self.variance)
            return
        gain = 1 - (1 - LEVEL) ** passed
        self.level += self.slope * _ahead(passed) + gain * error
        self.slope = self.slope * damped + gain * SLOPE * error
        self.variance += spread * (error**2 - self.variance)

    def after(self, seconds: float) -> tuple[float, float]:
        """The level then, and its standard deviation."""
        expected = self.level + self.slope * _ahead(seconds)
        gain = 1 - (1 - LEVEL) ** self.interval
        count = max(1, round(seconds / self.interval))
        weights = (
            gain * (1 + SLOPE * _ahead(step * self.interval)) for step in range(min(count, 200))
        )
        scale = max(1.0, count / 200)
        return expected, sqrt(self.variance * scale * sum(weight**2 for weight in weights))

    def growth(self, seconds: float) -> float:
        """The factor by which the level rises, if that is certain; otherwise 1."""
        if self.seen - self.began < ENOUGH or self.level <= 0:
            return 1.0
        expected, deviation = self.after(seconds)
        if expected - CERTAIN * deviation <= self.level:
            return 1.0
        return min(expected / self.level, MOST)


def _ahead(seconds: float) -> float:
    """What a damped trend adds up to: the integral of DAMPED^t."""
    return float((1 - DAMPED**seconds) / (1 - DAMPED))


class Trends:
    """A trend for every application on every link, and for every link."""

    def __init__(self) -> None:
        self._known: dict[Key, Trend] = {}

    def observe(self, loads: Mapping[Key, float], now: float) -> None:
        """Bits per second of each application on each link, as offered since the last time."""
        total: dict[Key, float] = {}
        for (_, link), load in loads.items():
            total["", link] = total.get(("", link), 0.0) + load
        whole = {**loads, **total}
        for key, load in whole.items():
            known = self._known.get(key)
            if known is None:
                self._known[key] = Trend(load, now, now)
            else:
                known.observe(load, now)
        for key in [key for key in self._known if key not in whole]:
            if now - self._known[key].seen > FORGET_AFTER:
                del self._known[key]

    def factors(self, present: Mapping[Key, float], seconds: float) -> dict[Key, float]:
        """By how much each load will have grown; those that do not grow are left out.

        An application has its own trend where that is certain. What the trend of the whole link
        tells beyond that is shared by the others: alone, each may be too noisy to see it.
        """
        found: dict[Key, float] = {}
        links: dict[str, list[str]] = {}
        for application, link in present:
            links.setdefault(link, []).append(application)
        for link, applications in links.items():
            rest = total = ahead = 0.0
            for application in applications:
                load = present[application, link]
                total += load
                trend = self._known.get((application, link))
                factor = 1.0 if trend is None else trend.growth(seconds)
                if factor > 1:
                    found[application, link] = factor
                    ahead += factor * load
                else:
                    rest += load
            whole = self._known.get(("", link))
            factor = 1.0 if whole is None else whole.growth(seconds)
            shared = (factor * total - ahead) / rest if rest > 0 else 1.0
            if shared > 1:
                for application in applications:
                    found.setdefault((application, link), min(shared, MOST))
        return found


def scheduled(
    present: Mapping[Key, float],
    expected: Mapping[Key, Expected],
    known_as: Mapping[str, str] | None = None,
) -> tuple[dict[Key, float], dict[Key, Expected]]:
    """What the pipeline forecast: by how much loads grow, and who comes that is not there.

    As for trends, growth counts where it is certain: the lower end of its interval lies above the
    present. The forecast of a whole link is for those that have none of their own. Applications are
    forecast by what the broker knows them as: `known_as`, where they have other names here.
    """
    names = known_as or {}
    real = {key: (names.get(key[0], key[0]), key[1]) for key in present}
    loads: dict[Key, float] = {}
    for key, load in present.items():
        for whose in (real[key], ("", key[1])):
            loads[whose] = loads.get(whose, 0.0) + load
    factors: dict[Key, float] = {}
    for key, whose in real.items():
        found = whose if whose in expected else ("", key[1])
        entry, load = expected.get(found), loads[found]
        if entry is not None and load > 0 and entry.low > load:
            factors[key] = min(entry.bits / load, MOST)
    newcomers = {
        key: entry
        for key, entry in expected.items()
        if key[0] not in ("", "-") and key not in loads and entry.low > 0 and entry.rate > 0
    }
    return factors, newcomers


def grown(
    scenario: Scenario,
    factors: Mapping[Key, float],
    newcomers: Mapping[Key, Expected] | None = None,
    known: Mapping[str, Application] | None = None,
) -> Scenario:
    """The scenario with its traffic multiplied, and with who comes of those that are `known`.

    Topics are shared: each grows by the mean of what its subscribers' loads grow by, so that the
    load of every link is the one foreseen.
    """
    link_of = {client: link.name for link in scenario.links for client in link.clients}
    weights: dict[str, float] = {}
    raised: dict[str, float] = {}
    for client in scenario.clients:
        link = link_of.get(literally(client.name), "")
        factor = factors.get((client.application or "-", link), 1.0)
        for topic in client.subscriptions:
            weights[topic] = weights.get(topic, 0.0) + 1.0
            raised[topic] = raised.get(topic, 0.0) + factor
    topics = tuple(
        msgspec.structs.replace(
            topic, rate=topic.mean_rate * raised[topic.name] / weights[topic.name]
        )
        if topic.name in weights
        else topic
        for topic in scenario.topics
    )
    changed = msgspec.structs.replace(scenario, topics=topics)
    for (application, link), entry in (newcomers or {}).items():
        described = (known or {}).get(application)
        if described is not None and any(spec.name == link for spec in changed.links):
            changed = _joined(changed, described, link, entry)
    return changed


def _joined(scenario: Scenario, application: Application, link: str, entry: Expected) -> Scenario:
    """One client that stands for all of an application that is not there yet."""
    name = f"$forecast/{application.name}/{link}"  # no wildcard of others matches a name with $
    there = [known.name for known in scenario.applications]
    return msgspec.structs.replace(
        scenario,
        topics=(
            *scenario.topics,
            Topic(name=name, rate=entry.rate, size=max(1, round(entry.bits / 8 / entry.rate))),
        ),
        clients=(
            *scenario.clients,
            Client(name=name, subscriptions=(name,), application=application.name),
        ),
        applications=scenario.applications
        if application.name in there
        else (*scenario.applications, application),
        links=tuple(
            msgspec.structs.replace(spec, clients=(*spec.clients, literally(name)))
            if spec.name == link
            else spec
            for spec in scenario.links
        ),
    )
