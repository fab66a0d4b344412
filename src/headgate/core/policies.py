"""The policy in force: from rules to the settings of each flow.

Rules are looked up by what they select, and what was found for one application, category and filter
is kept: settling a flow takes a time that does not depend on how many rules there are. Settling
10,000 flows has to fit between two messages (bench/policy.py); so an enforcer is built, and asked
about every flow, before it is put in force (`core.preparing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headgate.contract import Policy, PolicyRule
from headgate.core.applications import Membership
from headgate.core.flows import Flow
from headgate.errors import ConfigurationError, MqttError
from headgate.wire.topics import covers, validate_filter

HIGHEST = (1 << 64) - 1

KINDS_KEPT = 65_536
"""Kinds of flows whose rules are remembered. Clients make them up, by their filters and claims."""

Ranked = tuple[int, PolicyRule]
"""A rule and its place in the policy."""

EVERYTHING = ("+", "#")
"""A topic has one level at least: `#` alone means the same."""


class Settings(NamedTuple):
    """What a policy says of a flow; these are the settings of a flow that it does not mention."""

    priority: int = 7
    drop: float = 0.0
    join: float | None = None
    """None leaves it to what was learned."""
    threshold_s: float | None = None
    """None leaves it to the client and its application."""
    lifetime: float = 0.0
    capacity: int = 0

    @classmethod
    def by(cls, rules: Iterable[Ranked]) -> Settings:
        """Each setting as the last rule that has it says."""
        priority, drop, join, threshold_s, lifetime, capacity = DEFAULTS
        for _, rule in rules:
            if rule.priority is not None:
                priority = rule.priority
            if rule.drop is not None:
                drop = rule.drop
            if rule.join is not None:
                join = rule.join
            if rule.threshold_s is not None:
                threshold_s = rule.threshold_s
            if rule.lifetime is not None:
                lifetime = rule.lifetime
            if rule.capacity is not None:
                capacity = rule.capacity
        return cls(priority, drop, join, threshold_s, lifetime, capacity)


DEFAULTS = Settings()


class Level:
    """One level of the rules' topics."""

    def __init__(self) -> None:
        self.children: dict[str, Level] = {}
        self.rules: list[Ranked] = []


class Topics:
    """Rules by topic: which of them cover a subscription's filter?"""

    def __init__(self) -> None:
        self.root = Level()
        self.untold: list[Ranked] = []
        """Rules that select by no topic."""

    def add(self, ranked: Ranked) -> None:
        topic = ranked[1].topic
        if topic is None:
            self.untold.append(ranked)
            return
        level = self.root
        for name in EVERYTHING if topic == "#" else topic.split("/"):
            child = level.children.get(name)
            if child is None:
                child = level.children[name] = Level()
            level = child
        level.rules.append(ranked)

    def covering(self, names: Sequence[str]) -> list[Ranked]:
        """The rules whose topic covers all that a filter of these levels matches."""
        found = self.untold[:]
        levels = [self.root] if self.root.children else []
        wild = not names[0].startswith("$")  # wildcards do not match a leading $ [MQTT-4.7.2-1]
        for name in names:
            deeper = []
            for level in levels:
                children = level.children
                if wild and "#" in children:
                    found += children["#"].rules
                if name != "#":  # that is covered by nothing but #
                    if name in children:
                        deeper.append(children[name])
                    if wild and name != "+" and "+" in children:
                        deeper.append(children["+"])
            if not deeper:
                return found
            levels = deeper
            wild = True
        for level in levels:
            found += level.rules
            if "#" in level.children:  # `a/#` covers `a` too (§4.7.1.2)
                found += level.children["#"].rules
        return found


class Enforcer:
    """One policy, ready to settle flows."""

    def __init__(self, policy: Policy, at_once: bool = True) -> None:
        """Take a policy; its rules too, or else the caller has to `add` each.

        `ConfigurationError` if one of its filters is none.
        """
        self.policy = policy
        self.exact: dict[tuple[str, str], list[Ranked]] = {}
        self.groups: dict[tuple[str | None, str | None], Topics] = {}
        """By application and category."""
        self.by_topic = False
        self.found: dict[tuple[str, str, bytes], tuple[list[Ranked], Settings]] = {}
        """By application, category and filter: what holds for all flows of such a kind."""
        self.refined: dict[tuple[str, str], tuple[object, Settings]] = {}
        """By client and filter, for flows with rules of their own: what was found for their kind,
        and what became of it."""
        if at_once:
            for rank in range(len(policy.rules)):
                self.add(rank)

    def add(self, rank: int) -> None:
        """Take one rule of the policy."""
        rule = self.policy.rules[rank]
        flow = rule.flow
        if rule.topic is not None:
            check(rank, rule.topic)
        if flow is not None:
            check(rank, flow.filter)
            self.exact.setdefault((flow.client, flow.filter), []).append((rank, rule))
            return
        selector = (rule.application, rule.category)
        if selector not in self.groups:
            self.groups[selector] = Topics()
        self.groups[selector].add((rank, rule))
        self.by_topic |= rule.topic is not None

    def settings_of(self, flow: Flow) -> Settings:
        """What the policy says of a flow. Asked before, it knows the answer."""
        return self.settings_as(flow, flow.membership)

    def settings_as(self, flow: Flow, membership: Membership) -> Settings:
        """The same if the flow had this membership.

        What is remembered never misleads: whose flow it is, is part of the question.
        """
        topic_filter = flow.topic_filter if self.by_topic else b""
        kind = (membership.application, membership.category, topic_filter)
        found = self.found.get(kind)
        if found is None:
            rules = self.select(*kind)
            if len(self.found) >= KINDS_KEPT:
                self.found.clear()
            found = self.found[kind] = (rules, Settings.by(rules))
        if self.exact:
            name = (flow.session.client_id, flow.filter)
            exact = self.exact.get(name)
            if exact is not None:
                refined = self.refined.get(name)
                if refined is None or refined[0] is not found:
                    refined = (found, self.refine(found[0], exact, flow, membership))
                    self.refined[name] = refined
                return refined[1]
        return found[1]

    def settle(self, flow: Flow) -> None:
        """Give a flow its settings, by what is known of its application."""
        membership = flow.membership
        settings = self.settings_of(flow)
        # What an application tolerates bounds what any policy may take from it.
        drop = min(settings.drop, membership.loss)
        flow.drop_rate = drop
        flow.threshold = min(int(drop * (1 << 64)), HIGHEST) if drop else 0
        asked = settings.threshold_s
        if asked is None:
            asked = membership.threshold_s
        if asked is None and flow.threshold_s is not None:
            flow.learned = 1.0  # nobody asks for less than everything any more
        flow.threshold_s = asked
        flow.decided = settings.join is not None
        flow.join = flow.learned if settings.join is None else settings.join
        flow.lifetime = settings.lifetime
        flow.capacity = settings.capacity
        if settings.priority != flow.priority:
            flow.promote(settings.priority)
        flow.refresh()

    def select(self, application: str, category: str, topic_filter: bytes) -> list[Ranked]:
        """The rules for all flows of this kind, in their order."""
        text = topic_filter.decode()
        names = EVERYTHING if text == "#" else text.split("/")
        rules: list[Ranked] = []
        for selector in (
            (application, category),
            (application, None),
            (None, category),
            (None, None),
        ):
            group = self.groups.get(selector)
            if group is not None:
                rules += group.covering(names)
        rules.sort(key=rank_of)
        return rules

    def refine(
        self, common: list[Ranked], exact: list[Ranked], flow: Flow, membership: Membership
    ) -> Settings:
        """The settings of a flow that has rules of its own."""
        rules = [ranked for ranked in exact if selects(ranked[1], flow, membership)]
        if common:
            rules = sorted([*common, *rules], key=rank_of)
        return Settings.by(rules)


def rank_of(ranked: Ranked) -> int:
    return ranked[0]


def check(number: int, topic_filter: str) -> None:
    """Is it a filter?"""
    try:
        validate_filter(topic_filter)
    except MqttError as error:
        raise ConfigurationError(f"not a policy: rules[{number}]: {error}") from None


def selects(rule: PolicyRule, flow: Flow, membership: Membership) -> bool:
    """Does the flow that a rule names meet the rule's other selectors too?"""
    if rule.application is not None and rule.application != membership.application:
        return False
    if rule.category is not None and rule.category != membership.category:
        return False
    return rule.topic is None or covers(rule.topic, flow.topic_filter.decode())
