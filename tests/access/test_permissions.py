"""The access list: the first rule that matches decides, and no name can widen it."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headgate.access import AccessList, Permissions
from headgate.config import AccessRule, Action, parse
from headgate.core.access import Identity
from headgate.wire.topics import covers, matches

ANYONE = Identity()
ADMIN = Identity("root", frozenset({"admin"}))


def access(acl: str, roles: str = "{}") -> AccessList:
    """An access list from its text, with a file that makes user names trustworthy."""
    auth = parse(f"auth: {{password_file: p, acl: {acl}, roles: {roles}}}").auth
    return AccessList(auth.acl, auth.roles)


def may(acl: str, identity: Identity = ANYONE, client: str = "c1") -> Permissions:
    return access(acl).permissions(identity, client)


class TestWithoutAnAccessList:
    open = AccessList(None, {})

    def test_everything_is_allowed(self) -> None:
        who = self.open.permissions(ANYONE, "c1")
        assert who.may_publish("a/b")
        assert who.may_subscribe("#")
        assert who.may_receive("a/b")
        assert all(who.may_claim(what, "a") for what in Action)

    def test_but_control_belongs_to_the_admin(self) -> None:
        who, admin = self.open.permissions(ANYONE, "c1"), self.open.permissions(ADMIN, "c1")
        for topic in ("$CONTROL", "$CONTROL/headgate/policy"):
            assert not who.may_publish(topic)
            assert not who.may_receive(topic)
            assert admin.may_publish(topic)
            assert admin.may_receive(topic)
        for topic_filter in ("$CONTROL/#", "$CONTROL/+/policy", "$CONTROL"):
            assert not who.may_subscribe(topic_filter)
            assert admin.may_subscribe(topic_filter)

    def test_and_nobody_writes_to_sys_but_all_may_read_it(self) -> None:
        for identity in (ANYONE, ADMIN):
            who = self.open.permissions(identity, "c1")
            assert not who.may_publish("$SYS/broker/uptime")
            assert who.may_subscribe("$SYS/#")
            assert who.may_receive("$SYS/broker/uptime")

    def test_a_topic_that_only_begins_alike_is_an_ordinary_one(self) -> None:
        who = self.open.permissions(ANYONE, "c1")
        assert who.may_publish("$CONTROLS/x")
        assert who.may_publish("$SYSTEM")


class TestWithAnAccessList:
    def test_what_no_rule_allows_is_denied(self) -> None:
        for acl in ("[]", "[{allow: publish, topics: a}]"):
            who = may(acl)
            assert not who.may_publish("b")
            assert not who.may_subscribe("a")
            assert not who.may_receive("a")
            assert not who.may_claim(Action.URGENT, "a")

    def test_the_first_rule_that_matches_decides(self) -> None:
        who = may("[{deny: publish, topics: a/secret}, {allow: publish, topics: a/#}]")
        assert who.may_publish("a/b")
        assert not who.may_publish("a/secret")
        who = may("[{allow: publish, topics: a/#}, {deny: publish, topics: a/secret}]")
        assert who.may_publish("a/secret")

    def test_all_is_publish_and_subscribe_and_nothing_more(self) -> None:
        who = may("[{allow: all}]")
        assert who.may_publish("a")
        assert who.may_subscribe("#")
        assert who.may_receive("a")
        assert not who.may_claim(Action.URGENT, "a")
        assert not who.may_claim(Action.CLAIM, None)

    def test_a_subscription_must_be_covered_whole_by_one_rule(self) -> None:
        who = may("[{allow: subscribe, topics: [a/+, b/#]}]")
        assert who.may_subscribe("a/x")
        assert who.may_subscribe("a/+")
        assert who.may_subscribe("b/#")
        assert who.may_subscribe("b/+/c")
        for wider in ("a/#", "+/x", "#", "a/+/c", "+"):
            assert not who.may_subscribe(wider)

    def test_a_denied_part_is_withheld_message_by_message(self) -> None:
        who = may("[{deny: subscribe, topics: a/secret/#}, {allow: subscribe, topics: a/#}]")
        assert who.may_subscribe("a/#")
        assert not who.may_subscribe("a/secret/+")
        assert who.may_receive("a/b")
        assert not who.may_receive("a/secret/x")

    def test_wildcards_do_not_reach_the_broker_s_own_trees(self) -> None:
        who = may("[{allow: all, topics: ['#', '+/#']}]")
        assert not who.may_subscribe("$SYS/#")
        assert not who.may_receive("$SYS/x")
        assert not who.may_subscribe("$CONTROL/#")
        assert not who.may_publish("$CONTROL/x")

    def test_no_rule_opens_control_nor_lets_anyone_write_to_sys(self) -> None:
        who = may("[{allow: all, topics: ['$CONTROL/#', '$SYS/#']}]")
        assert not who.may_publish("$CONTROL/headgate/policy")
        assert not who.may_subscribe("$CONTROL/#")
        assert not who.may_publish("$SYS/x")
        assert who.may_subscribe("$SYS/#")

    def test_the_admin_needs_no_rule_for_the_broker_s_own_trees_but_for_others(self) -> None:
        who = may("[]", ADMIN)
        assert who.may_publish("$CONTROL/headgate/policy")
        assert who.may_subscribe("$CONTROL/#")
        assert who.may_subscribe("$SYS/#")
        assert who.may_receive("$SYS/x")
        assert not who.may_publish("a")

    @pytest.mark.parametrize(
        ("selectors", "meets"),
        [
            ("users: ['al*']", True),
            ("users: ['AL*']", False),
            ("clients: ['sensor-?']", True),
            ("clients: ['sensor-']", False),
            ("roles: [ops, dev]", True),
            ("roles: [admin]", False),
            ("users: [alice], clients: [x]", False),
            ("users: [bob], roles: [ops]", False),
            ("users: [alice], clients: ['*'], roles: [ops]", True),
        ],
    )
    def test_a_rule_speaks_to_those_who_meet_every_selector(
        self, selectors: str, meets: bool
    ) -> None:
        alice = Identity("alice", frozenset({"ops"}))
        assert (
            may(f"[{{allow: publish, {selectors}}}]", alice, "sensor-1").may_publish("a") is meets
        )

    def test_a_glob_for_users_does_not_mean_the_anonymous(self) -> None:
        assert not may("[{allow: publish, users: ['*']}]").may_publish("a")

    def test_roles_come_from_the_configuration_too(self) -> None:
        rules = access("[{allow: publish, roles: [ops]}]", "{ops: ['al*'], admin: [root]}")
        assert rules.permissions(Identity("alice"), "c").may_publish("a")
        assert not rules.permissions(Identity("bob"), "c").may_publish("a")
        assert not rules.permissions(ANYONE, "c").may_publish("a")
        assert rules.permissions(Identity("root"), "c").may_publish("$CONTROL/x")


class TestClaims:
    def test_urgency_is_allowed_by_topic(self) -> None:
        who = may("[{deny: urgent, topics: alarms/test}, {allow: urgent, topics: alarms/#}]")
        assert who.may_claim(Action.URGENT, "alarms/fire")
        assert not who.may_claim(Action.URGENT, "alarms/test")
        assert not who.may_claim(Action.URGENT, "other")
        assert not who.may_claim(Action.CRITICAL, "alarms/fire")

    def test_without_a_topic_a_rule_about_some_topics_does_not_allow(self) -> None:
        assert not may("[{allow: urgent, topics: a}]").may_claim(Action.URGENT, None)
        assert may("[{allow: urgent}]").may_claim(Action.URGENT, None)
        who = may("[{deny: urgent, topics: a}, {allow: urgent}]")
        assert not who.may_claim(Action.URGENT, None)

    def test_everything_does_not_mean_the_broker_s_own_trees(self) -> None:
        assert not may("[{allow: urgent}]").may_claim(Action.URGENT, "$x")

    def test_a_claim_has_no_topic(self) -> None:
        assert may("[{allow: [publish, claim], topics: a}]").may_claim(Action.CLAIM, None)


class TestNames:
    def test_they_stand_for_one_level(self) -> None:
        who = may("[{allow: all, topics: ['home/%u/#', 'dev/%c']}]", Identity("alice"), "c1")
        assert who.may_publish("home/alice/x")
        assert who.may_subscribe("home/alice/#")
        assert who.may_publish("dev/c1")
        assert not who.may_publish("home/bob/x")
        assert not who.may_subscribe("home/#")

    def test_within_a_level_too(self) -> None:
        assert may("[{allow: all, topics: 'dev-%c-%u/x'}]", Identity("u"), "c").may_publish(
            "dev-c-u/x"
        )

    @pytest.mark.parametrize("name", ["+", "#", "a/b", "", "a+", "x/#", "$SYS", "$CONTROL"])
    def test_a_name_with_a_meaning_of_its_own_is_allowed_nothing(self, name: str) -> None:
        for pattern in ("%c", "%c/#", "a/%c", "a/%c/#", "dev-%c"):
            who = may(f"[{{allow: all, topics: '{pattern}'}}]", ANYONE, name)
            for topic in ("a", "a/b", "a/b/c", "b", "$SYS/x", "dev-a", f"a/{name}", name or "x"):
                assert not who.may_publish(topic)
                assert not who.may_receive(topic)
            assert not who.may_subscribe("#")
            assert not who.may_subscribe("$SYS/#")

    @pytest.mark.parametrize("name", ["+", "#", "a/b", "", "$SYS"])
    def test_nor_does_it_escape_a_rule_that_denies(self, name: str) -> None:
        acl = "[{deny: all, topics: 'private/%c/#'}, {allow: all}]"
        who = may(acl, ANYONE, name)
        assert not who.may_publish(f"private/{name}/x")
        assert not who.may_receive("private/other/x")
        assert who.may_publish("public/x")

    def test_the_anonymous_have_no_user_name_to_put_in(self) -> None:
        who = may("[{allow: all, topics: ['home/%u/#']}]")
        assert not who.may_publish("home//x")
        assert not who.may_publish("home/None/x")

    def test_a_name_that_is_a_pattern_is_not_replaced_again(self) -> None:
        who = may("[{allow: publish, topics: 'a/%c'}]", Identity("alice"), "%u")
        assert who.may_publish("a/%u")
        assert not who.may_publish("a/alice")


name = st.text("ab+#/$%uc", max_size=4)
topics = st.lists(st.text("ab$", max_size=2), min_size=1, max_size=4).map("/".join).filter(bool)
patterns = (
    st.lists(st.sampled_from(["a", "b", "+", "%u", "%c", "x%c", "%u%c"]), min_size=1, max_size=3)
    .map("/".join)
    .flatmap(lambda prefix: st.sampled_from([prefix, f"{prefix}/#"]))
)
rules = st.builds(
    lambda allow, actions, subjects, clients: AccessRule(
        allow=actions if allow else None,
        deny=None if allow else actions,
        topics=subjects,
        clients=clients,
    ),
    st.booleans(),
    st.sampled_from([(Action.PUBLISH,), (Action.SUBSCRIBE,), (Action.ALL,)]),
    st.lists(patterns | st.just("#"), min_size=1, max_size=2).map(tuple),
    st.sampled_from([(), ("a*",), ("*b",)]),
)


class TestNoNameWidensARule:
    @given(patterns, name, name, topics)
    def test_what_is_allowed_lies_within_the_pattern_for_a_harmless_name(
        self, pattern: str, user: str, client: str, topic: str
    ) -> None:
        """With each placeholder as a wildcard for its one level, the pattern is as wide as any
        name may make it; and the topic holds the names themselves."""
        who = AccessList([AccessRule(allow=(Action.ALL,), topics=(pattern,))], {}).permissions(
            Identity(user), client
        )
        if not (who.may_publish(topic) or who.may_receive(topic)):
            return
        widest = "/".join("+" if "%" in part else part for part in pattern.split("/"))
        assert matches(widest, topic)
        for part, actual in zip(pattern.split("/"), topic.split("/"), strict=False):
            if "%" in part:
                pieces = part.replace("%u", "\1").replace("%c", "\2")
                assert actual == pieces.replace("\1", user).replace("\2", client)

    @given(
        st.sampled_from(["%c", "%c/#", "a/%c", "a/%c/#", "a/x%c/+", "+/%c/#"]),
        name,
        st.text("ab%c", min_size=1, max_size=4),
    )
    def test_no_subscription_to_what_is_another_s(
        self, pattern: str, client: str, other: str
    ) -> None:
        assume(other != client)
        who = AccessList(
            [AccessRule(allow=(Action.SUBSCRIBE,), topics=(pattern,))], {}
        ).permissions(ANYONE, client)
        assert not who.may_subscribe(pattern.replace("%c", other))
        own = pattern.replace("%c", client)
        for wider in ("#", "+", "a/#", "a/+", "$SYS/#"):
            assert covers(own, wider) or not who.may_subscribe(wider)

    @given(st.lists(rules, max_size=5), st.sampled_from(["a", "b", "ab", "+", "a/b"]), topics)
    def test_decisions_follow_the_list_read_from_top_to_bottom(
        self, acl: list[AccessRule], client: str, topic: str
    ) -> None:
        assume(not topic.startswith(("$SYS", "$CONTROL")))
        who = AccessList(acl, {}).permissions(Identity("u"), client)
        assert who.may_publish(topic) is _read_down(acl, Action.PUBLISH, client, topic)
        assert who.may_receive(topic) is _read_down(acl, Action.SUBSCRIBE, client, topic)

    @given(st.lists(rules, max_size=5), patterns, topics)
    def test_all_that_a_granted_subscription_matches_is_received_or_denied_by_a_rule(
        self, acl: list[AccessRule], pattern: str, topic: str
    ) -> None:
        who = AccessList(acl, {}).permissions(Identity("u"), "ab")
        topic_filter = pattern.replace("%u", "a").replace("%c", "b")
        if who.may_subscribe(topic_filter) and matches(topic_filter, topic):
            denied = any(
                rule.deny
                and any(
                    matches(subject.replace("%u", "u").replace("%c", "ab"), topic)
                    for subject in rule.topics
                )
                for rule in acl
            )
            assert who.may_receive(topic) or denied


def _read_down(acl: list[AccessRule], action: Action, client: str, topic: str) -> bool:
    """The reference: one pass over the list, with nothing compiled or kept."""
    harmless = not set(client) & set("+#/")
    for rule in acl:
        if rule.clients and not any(fnmatchcase(client, glob) for glob in rule.clients):
            continue
        if action not in rule.actions and Action.ALL not in rule.actions:
            continue
        for subject in rule.topics:
            if "%c" in subject and not harmless:
                if rule.deny:
                    levels = subject.split("/")
                    cut = next(n for n, part in enumerate(levels) if "%" in part)
                    if matches("/".join([*levels[:cut], "#"]), topic):
                        return False
                continue
            filled = subject.replace("%u", "\1").replace("%c", client).replace("\1", "u")
            if matches(filled, topic):
                return rule.allow is not None
    return False


def test_what_is_kept_of_decisions_is_bounded_and_stays_right() -> None:
    who = may("[{allow: publish, topics: a/+}]")
    for number in range(1000):
        assert who.may_publish(f"a/{number}")
        assert not who.may_publish(f"b/{number}")
    assert who.may_publish("a/" + "x" * 60_000)
    assert len(who._publishing) <= 16
    assert all(len(topic) <= 128 for topic in who._publishing)
