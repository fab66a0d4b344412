"""The flows of a scenario as arrays, and what a policy sets for each of them.

A flow is one subscription of one client; a *stream* is one topic of a flow, since a filter may
match many topics. Flows keep the order of the scenario: clients as written, their subscriptions
as written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headgate.contract import Application, LinkSpec, Policy, PolicyRule
from headgate.model.scenario import Client, Scenario
from headgate.wire.topics import covers, matches, parse_shared

Ints = NDArray[np.int64]
Array = NDArray[np.float64]

DEFAULT_PRIORITY = 7
"""Of a flow that no rule mentions, as in the broker."""
UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class Flow:
    """One subscription of one client."""

    client: str
    filter: str
    application: str | None
    """By which rules select it."""
    category: str | None
    link: int | None
    needs: str | None
    """The application of the scenario whose requirement is its own: `application`, unless its
    client asks for something else."""

    @property
    def name(self) -> str:
        return f"{self.client}:{self.filter}"


@dataclass(frozen=True)
class Settings:
    """What a policy decides, one element per flow. Planners search over these arrays."""

    priority: Ints
    drop: Array
    join: Array
    lifetime: Array
    """Seconds; infinite for none."""
    capacity: Ints
    """Messages that may wait; `UNLIMITED` for any number."""

    @staticmethod
    def default(flows: int) -> Settings:
        return Settings(
            priority=np.full(flows, DEFAULT_PRIORITY, dtype=np.int64),
            drop=np.zeros(flows),
            join=np.ones(flows),
            lifetime=np.full(flows, np.inf),
            capacity=np.full(flows, UNLIMITED, dtype=np.int64),
        )

    def with_drop(self, drop: Array) -> Settings:
        return replace(self, drop=drop)

    def with_priority(self, priority: Ints) -> Settings:
        return replace(self, priority=priority)


class FlowTable:
    """A scenario, resolved: who is behind which link, which filter matches which topic."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.flows: list[Flow] = []
        self.client_of: list[int] = []
        behind = _Links(scenario.links)
        for number, client in enumerate(scenario.clients):
            application = _application_of(client, scenario.applications)
            link = behind.of(client.name)
            needs = None if application is None else application.name
            for subscription in client.subscriptions:
                self.flows.append(
                    Flow(
                        client.name,
                        subscription,
                        needs if client.known_as is None else client.known_as or None,
                        None if application is None else application.category,
                        link,
                        needs,
                    )
                )
                self.client_of.append(number)
        self.stream_flow, self.stream_topic = self._streams()

    def __len__(self) -> int:
        return len(self.flows)

    def _streams(self) -> tuple[Ints, Ints]:
        """(flow, topic) of every stream, in order of the flows."""
        names = [topic.name for topic in self.scenario.topics]
        index = {name: number for number, name in enumerate(names)}
        known: dict[str, list[int]] = {}
        flow_of: list[int] = []
        topic_of: list[int] = []
        for number, flow in enumerate(self.flows):
            found = known.get(flow.filter)
            if found is None:
                _, plain = parse_shared(flow.filter)
                if plain in index:
                    found = [index[plain]]
                elif "+" in plain or "#" in plain:
                    found = [i for i, name in enumerate(names) if matches(plain, name)]
                else:
                    found = []
                known[flow.filter] = found
            flow_of.extend([number] * len(found))
            topic_of.extend(found)
        return np.array(flow_of, dtype=np.int64), np.array(topic_of, dtype=np.int64)

    @cached_property
    def applications(self) -> list[str]:
        """Names of the applications that have flows; flows without one are under `-`."""
        return list(dict.fromkeys(flow.needs or "-" for flow in self.flows))

    @cached_property
    def categories(self) -> list[str]:
        return list(dict.fromkeys(flow.category or "-" for flow in self.flows))

    def settings(self, policy: Policy | Sequence[PolicyRule] | None) -> Settings:
        """Each setting comes from the last rule that selects the flow and has that setting."""
        settings = Settings.default(len(self.flows))
        if policy is None:
            return settings
        rules = policy.rules if isinstance(policy, Policy) else policy
        columns = {
            "priority": settings.priority,
            "drop": settings.drop,
            "join": settings.join,
            "lifetime": settings.lifetime,
            "capacity": settings.capacity,
        }
        for entry in rules:
            chosen = self._selected(entry)
            for name, column in columns.items():
                value = getattr(entry, name)
                if value is not None:
                    column[chosen] = value
        return settings

    def _selected(self, entry: PolicyRule) -> Ints | slice:
        if entry.flow is not None:
            number = self._by_selector.get((entry.flow.client, entry.flow.filter))
            candidates = [] if number is None else [number]
        elif entry.application is not None:
            candidates = self._by_application.get(entry.application, [])
        elif entry.category is not None:
            candidates = self._by_category.get(entry.category, [])
        elif entry.topic is None:
            return slice(None)
        else:
            candidates = list(range(len(self.flows)))
        return np.array(
            [number for number in candidates if _fits(entry, self.flows[number])], dtype=np.int64
        )

    @cached_property
    def _by_selector(self) -> dict[tuple[str, str], int]:
        return {(flow.client, flow.filter): n for n, flow in enumerate(self.flows)}

    @cached_property
    def _by_application(self) -> dict[str, list[int]]:
        return _group(flow.application for flow in self.flows)

    @cached_property
    def _by_category(self) -> dict[str, list[int]]:
        return _group(flow.category for flow in self.flows)


def _group(keys: Iterable[str | None]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for number, key in enumerate(keys):
        if key is not None:
            groups.setdefault(key, []).append(number)
    return groups


def _fits(entry: PolicyRule, flow: Flow) -> bool:
    if entry.application is not None and entry.application != flow.application:
        return False
    if entry.category is not None and entry.category != flow.category:
        return False
    if entry.flow is not None and (entry.flow.client, entry.flow.filter) != (
        flow.client,
        flow.filter,
    ):
        return False
    return entry.topic is None or covers(entry.topic, parse_shared(flow.filter)[1])


def _application_of(client: Client, applications: Sequence[Application]) -> Application | None:
    for application in applications:
        if client.application is not None:
            if client.application == application.name:
                return application
        elif any(fnmatchcase(client.name, glob) for glob in application.clients):
            return application
    return None


class _Links:
    """Which link a client is behind: the first that names it or has a glob for it. Names are looked
    up, because ten thousand gateways may each list their clients."""

    def __init__(self, links: Sequence[LinkSpec]) -> None:
        self._names: dict[str, int] = {}
        self._globs: list[tuple[int, str]] = []
        for number, link in enumerate(links):
            for glob in link.clients:
                if any(character in glob for character in "*?["):
                    self._globs.append((number, glob))
                else:
                    self._names.setdefault(glob, number)

    def of(self, client: str) -> int | None:
        named = self._names.get(client)
        for number, glob in self._globs:
            if named is not None and number >= named:
                break
            if fnmatchcase(client, glob):
                return number
        return named
