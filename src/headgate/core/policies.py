"""The policy in force: from rules to the settings of each flow.

Rules are looked up by what they select, so that a flow is settled in time that does not depend on
how many other flows the policy speaks of: 10,000 flows take a few tens of milliseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from headgate.contract import Policy, PolicyRule
from headgate.core.applications import Membership
from headgate.core.flows import Flow
from headgate.errors import ConfigurationError, MqttError
from headgate.wire.topics import covers, validate_filter

DEFAULT_PRIORITY = 7
HIGHEST = (1 << 64) - 1

Ranked = tuple[int, PolicyRule]


class Enforcer:
    """One policy, ready to settle flows."""

    def __init__(self, policy: Policy) -> None:
        """Take a policy; `ConfigurationError` if one of its filters is none."""
        self.policy = policy
        self._by_flow: dict[tuple[str, str], list[Ranked]] = defaultdict(list)
        self._by_application: dict[str, list[Ranked]] = defaultdict(list)
        self._by_category: dict[str, list[Ranked]] = defaultdict(list)
        self._others: list[Ranked] = []
        for rank, rule in enumerate(policy.rules):
            check(rank, rule)
            if rule.flow is not None:
                self._by_flow[rule.flow.client, rule.flow.filter].append((rank, rule))
            elif rule.application is not None:
                self._by_application[rule.application].append((rank, rule))
            elif rule.category is not None:
                self._by_category[rule.category].append((rank, rule))
            else:
                self._others.append((rank, rule))

    def settle(self, flow: Flow, membership: Membership) -> None:
        """Give a flow its settings."""
        rules = self._rules_for(flow, membership)
        priority = last(rules, "priority", DEFAULT_PRIORITY)
        drop = last(rules, "drop", 0.0)
        # What an application tolerates bounds what any policy may take from it.
        flow.threshold = min(int(min(drop, membership.loss) * (1 << 64)), HIGHEST)
        flow.lifetime = last(rules, "lifetime", 0.0)
        flow.capacity = last(rules, "capacity", 0)
        flow.join = last(rules, "join", 1.0)
        flow.drop_rate = min(drop, membership.loss)
        if priority != flow.priority:
            flow.promote(priority)
        flow.refresh()

    def _rules_for(self, flow: Flow, membership: Membership) -> list[PolicyRule]:
        found = [
            *self._others,
            *self._by_category.get(membership.category, ()),
            *self._by_application.get(membership.application, ()),
            *self._by_flow.get((flow.session.client_id, flow.filter), ()),
        ]
        found.sort(key=lambda ranked: ranked[0])
        return [rule for _, rule in found if selects(rule, flow, membership)]


def check(number: int, rule: PolicyRule) -> None:
    """Are its filters filters?"""
    for text in (rule.topic, rule.flow.filter if rule.flow else None):
        if text is None:
            continue
        try:
            validate_filter(text)
        except MqttError as error:
            raise ConfigurationError(f"not a policy: rules[{number}]: {error}") from None


def selects(rule: PolicyRule, flow: Flow, membership: Membership) -> bool:
    """Does a flow meet every selector of a rule?"""
    if rule.application is not None and rule.application != membership.application:
        return False
    if rule.category is not None and rule.category != membership.category:
        return False
    return rule.topic is None or covers(rule.topic, flow.topic_filter.decode())


def last(rules: Iterable[PolicyRule], setting: str, otherwise: Any) -> Any:
    """A setting as the last rule that has it says."""
    value = otherwise
    for rule in rules:
        found = getattr(rule, setting)
        if found is not None:
            value = found
    return value
