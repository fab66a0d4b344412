"""Who may do what: the access list, compiled for one client at a time.

Rules apply in order and the first that matches decides; with an access list, what no rule matches
is denied. Without one everything is allowed. Before either come the two trees of the broker's own:
`$CONTROL/#` belongs to the role `admin` alone, and nobody publishes to `$SYS/#`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import translate
from typing import NamedTuple

from headgate.config import ADMIN, AccessRule, Action
from headgate.core.access import Identity
from headgate.wire.topics import covers, matches

CLIENTS_KEPT = 65_536
TOPICS_KEPT = 16
LONGEST_KEPT = 128
"""Of what was decided, this much is kept per client: it costs less than the client's socket."""

_PLACEHOLDER = re.compile("%[uc]")


class Entry(NamedTuple):
    """A rule as it applies to one client and one action: a verdict on a filter."""

    allow: bool
    filter: str


class Permissions:
    """What one client may do. `entries` is None where there is no access list."""

    __slots__ = ("_entries", "_is_admin", "_publishing", "_receiving")

    def __init__(self, entries: Mapping[Action, Sequence[Entry]] | None, is_admin: bool) -> None:
        self._entries = entries
        self._is_admin = is_admin
        self._publishing: dict[str, bool] = {}
        self._receiving: dict[str, bool] = {}

    def may_publish(self, topic: str) -> bool:
        verdict = self._publishing.get(topic)
        if verdict is None:
            verdict = self._decide_publish(topic)
            _keep(self._publishing, topic, verdict)
        return verdict

    def may_receive(self, topic: str) -> bool:
        verdict = self._receiving.get(topic)
        if verdict is None:
            verdict = self._decide_receive(topic)
            _keep(self._receiving, topic, verdict)
        return verdict

    def may_receive_all(self, topic_filter: str) -> bool:
        """True if no rule denies anything that the filter can match, as far as is easily seen."""
        return self._allows_all(topic_filter, in_part=False)

    def may_subscribe(self, topic_filter: str) -> bool:
        """True if one rule allows all that the filter can match.

        A rule that denies a part of it does not stand in the way: `may_receive` withholds that.
        """
        return self._allows_all(topic_filter, in_part=True)

    def _allows_all(self, topic_filter: str, *, in_part: bool) -> bool:
        """Is there a rule that allows it all; `in_part` if earlier ones may deny a part of it?"""
        verdict = self._decide_reserved(topic_filter)
        if verdict is not None:
            return verdict
        if self._entries is None:
            return True
        for allow, subject in self._entries[Action.SUBSCRIBE]:
            if covers(subject, topic_filter):
                return allow
            if not (allow or in_part):
                return False
        return False

    def may_claim(self, what: Action, topic: str | None) -> bool:
        """May a message on `topic` be called urgent or critical; may the client name its category?

        Without a topic, a rule about some topics denies but does not allow.
        """
        if self._entries is None:
            return True
        for allow, subject in self._entries.get(what, ()):
            if what is Action.CLAIM:
                return allow
            if matches(subject, topic) if topic is not None else subject == "#" or not allow:
                return allow
        return False

    def _decide_publish(self, topic: str) -> bool:
        tree = topic.partition("/")[0]
        if tree == "$CONTROL":
            return self._is_admin
        if tree == "$SYS":
            return False
        return self._decide(Action.PUBLISH, topic)

    def _decide_receive(self, topic: str) -> bool:
        verdict = self._decide_reserved(topic)
        return self._decide(Action.SUBSCRIBE, topic) if verdict is None else verdict

    def _decide_reserved(self, topic: str) -> bool | None:
        """A wildcard in the first level matches no `$` [MQTT-4.7.2-1]: the first level tells."""
        tree = topic.partition("/")[0]
        if tree == "$CONTROL":
            return self._is_admin
        if tree == "$SYS" and self._is_admin:
            return True
        return None

    def _decide(self, action: Action, topic: str) -> bool:
        if self._entries is None:
            return True
        for allow, subject in self._entries[action]:
            if matches(subject, topic):
                return allow
        return False


class AccessList:
    """The rules and roles of the configuration."""

    def __init__(
        self, rules: Iterable[AccessRule] | None, roles: Mapping[str, Sequence[str]]
    ) -> None:
        self._rules = None if rules is None else [_Rule(rule) for rule in rules]
        self._roles = {role: _globs(users) for role, users in roles.items()}
        self._permissions: dict[tuple[Identity, frozenset[str], str], Permissions] = {}

    def permissions(
        self, identity: Identity, client_id: str, roles: frozenset[str] = frozenset()
    ) -> Permissions:
        """What a client may do; `roles` are those it has besides its identity's own."""
        key = (identity, roles, client_id)
        found = self._permissions.get(key)
        if found is None:
            if len(self._permissions) >= CLIENTS_KEPT:
                self._permissions.clear()
            found = self._permissions[key] = self._compile(identity, client_id, roles)
        return found

    def _compile(self, identity: Identity, client_id: str, roles: frozenset[str]) -> Permissions:
        roles = identity.roles | roles | self._roles_of(identity.user)
        is_admin = ADMIN in roles
        if self._rules is None:
            return Permissions(None, is_admin)
        entries: dict[Action, list[Entry]] = {action: [] for action in Action}
        for rule in self._rules:
            if rule.speaks_to(identity.user, client_id, roles):
                for subject in rule.filters(identity.user, client_id):
                    for action in rule.actions:
                        entries[action].append(Entry(rule.allow, subject))
        return Permissions(entries, is_admin)

    def _roles_of(self, user: str | None) -> frozenset[str]:
        if user is None:
            return frozenset()
        return frozenset(role for role, users in self._roles.items() if users.match(user))


class _Rule:
    """An access rule with its globs compiled."""

    def __init__(self, rule: AccessRule) -> None:
        self.allow = rule.allow is not None
        self.actions = {
            part
            for action in rule.actions
            for part in ((Action.PUBLISH, Action.SUBSCRIBE) if action is Action.ALL else (action,))
        }
        self._topics = rule.topics
        self._users = _globs(rule.users) if rule.users else None
        self._clients = _globs(rule.clients) if rule.clients else None
        self._roles = frozenset(rule.roles)

    def speaks_to(self, user: str | None, client_id: str, roles: frozenset[str]) -> bool:
        if self._users is not None and (user is None or not self._users.match(user)):
            return False
        if self._clients is not None and not self._clients.match(client_id):
            return False
        return not self._roles or bool(self._roles & roles)

    def filters(self, user: str | None, client_id: str) -> Iterable[str]:
        """The rule's topics for this client."""
        values = {"%u": user, "%c": client_id}
        for pattern in self._topics:
            used = [values[name] for name in _PLACEHOLDER.findall(pattern)]
            if all(_is_one_level(value) for value in used):
                yield _PLACEHOLDER.sub(lambda found: values[found[0]] or "", pattern)
            elif not self.allow:
                # The name could change what the filter means, so it cannot be put in. To grant
                # nothing is safe; to deny nothing is not: deny all that any name could reach.
                yield _up_to_placeholder(pattern)


def _is_one_level(value: str | None) -> bool:
    """Can the value stand within a topic level without meaning anything but itself?"""
    return bool(value) and not set(value or "") & set("+#/") and not (value or "").startswith("$")


def _up_to_placeholder(pattern: str) -> str:
    levels = []
    for level in pattern.split("/"):
        if _PLACEHOLDER.search(level):
            break
        levels.append(level)
    return "/".join([*levels, "#"])


def _globs(patterns: Iterable[str]) -> re.Pattern[str]:
    """One expression for several globs; none of them matches nothing."""
    return re.compile("|".join(f"(?:{translate(pattern)})" for pattern in patterns) or "(?!)")


def _keep(verdicts: dict[str, bool], topic: str, verdict: bool) -> None:
    if len(topic) <= LONGEST_KEPT:
        if len(verdicts) >= TOPICS_KEPT:
            verdicts.clear()
        verdicts[topic] = verdict
