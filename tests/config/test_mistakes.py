"""Every kind of mistake: its line, its key, and what would be right."""

from __future__ import annotations

import pytest

from headgate.config import InvalidConfigurationError, Mistake, parse
from headgate.errors import ConfigurationError


def mistakes(text: str) -> list[Mistake]:
    with pytest.raises(InvalidConfigurationError) as caught:
        parse(text, "headgate.yaml")
    return list(caught.value.mistakes)


def only(text: str) -> Mistake:
    (mistake,) = mistakes(text)
    return mistake


@pytest.mark.parametrize(
    ("text", "line", "column", "key", "words"),
    [
        ("data_dir: d\noverfow: newest\n", 2, 1, "overfow", "did you mean overflow?"),
        ("zzz: 1\n", 1, 1, "zzz", "known are listeners, data_dir"),
        ("limits:\n  inflight: 0\n", 2, 13, "limits.inflight", "whole number from 1 to 65535"),
        ("limits:\n  inflight: many\n", 2, 13, "limits.inflight", "found 'many'"),
        ("limits: {packet_size: 1 elephant}\n", 1, 23, "limits.packet_size", "16MiB"),
        ("limits: {packet_size: 512MiB}\n", 1, 23, "limits.packet_size", "to 268435460"),
        ("limits: {filter_size: 0.5}\n", 1, 23, "limits.filter_size", "found '0.5'"),
        ("limits: {topic_depth: 513}\n", 1, 23, "limits.topic_depth", "from 0 to 512"),
        (
            "planner: {periods: [{topic: t, min: 5s, max: 2s}]}\n",
            1,
            46,
            "planner.periods[0].max",
            "must not be below min",
        ),
        (
            f"planner: {{periods: [{{topic: {'x' * 65_515}, min: 2s, max: 5s}}]}}\n",
            1,
            29,
            "planner.periods[0].topic",
            "expected at most 65514",
        ),
        ("limits: {connect_timeout: 0}\n", 1, 27, "limits.connect_timeout", "above 0"),
        ("sys_interval: soon\n", 1, 15, "sys_interval", "10s, 5min or 250ms"),
        ("overflow: eldest\n", 1, 11, "overflow", "did you mean oldest?"),
        ("durability: [fsync]\n", 1, 13, "durability", "fsync, os, none, found a list"),
        ("overflow:\n", 1, 10, "overflow", "found nothing"),
        ("listeners: []\n", 1, 12, "listeners", "at least one"),
        ("listeners: tcp\n", 1, 12, "listeners", "expected a list"),
        ("listeners: [tcp]\n", 1, 13, "listeners[0]", "expected a mapping"),
        ("listeners: [{type: tcp}]\n", 1, 13, "listeners[0].address", "is missing"),
        ("metrics: {address: ./m.sock}\n", 1, 20, "metrics.address", "over HTTP: write 127.0.0.1"),
        ("planner: {mode: on}\n", 1, 17, "planner.mode", "one of off, advise, auto"),
        ("urgency: {raise_grant: maybe}\n", 1, 24, "urgency.raise_grant", "true or false"),
        ("hooks: [module]\n", 1, 9, "hooks[0]", "package.module:name"),
        ("policy:\n- {topic: 'a/#/b', drop: 1}\n", 2, 11, "policy[0].topic", "sensors/+/"),
        ("policy: [{drop: 1.5}]\n", 1, 17, "policy[0].drop", "a number from 0 to 1"),
        (
            "policy: [{capacity: 9223372036854775807}]\n",
            1,
            21,
            "policy[0].capacity",
            "a whole number from 0 to 1000000000000000, found '9223372036854775807'",
        ),
        ("limits: {memory: 8589934592GiB}\n", 1, 18, "limits.memory", "from 0 to 1000000000000000"),
        ("planner: {horizon: 2h}\n", 1, 20, "planner.horizon", "above 0, at most 3600"),
        ("policy: [{drop: .nan}]\n", 1, 17, "policy[0].drop", "a number"),
        ("policy: [{topic: a}]\n", 1, 10, "policy[0]", "sets nothing"),
        ("links: [{name: a, addresses: [10/8]}]\n", 1, 31, "links[0].addresses[0]", "10.1.0.0/16"),
        ("links: [{name: a, users: [u], rate: 0}]\n", 1, 37, "links[0].rate", "from 1 to"),
        ("links: [{name: a, users: u}]\n", 1, 26, "links[0].users", "expected a list"),
        ("links: [{name: a}]\n", 1, 9, "links[0]", "no client is behind it"),
        ("auth: {roles: {'': [x]}}\n", 1, 16, "auth.roles.", "of 1 to 128 characters"),
        ("? [a, b]\n: c\n", 1, 3, "", "expected a name as key, found a list"),
        ('data_dir: "\\ud800"\n', 1, 11, "data_dir", "text cannot have"),
        ("data_dir: !secret x\n", 1, 11, "data_dir", "found the tag !secret"),
        ("limits: &l {}\nurgency:\n  <<: *l\n", 3, 3, "urgency", "write the keys out"),
        ("- a\n- b\n", 1, 1, "", "expected a mapping"),
        ('data_dir: "a\\0b"\n', 1, 11, "data_dir", "text cannot have"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_what_would_be_right(
    text: str, line: int, column: int, key: str, words: str
) -> None:
    mistake = only(text)
    assert (mistake.line, mistake.column, mistake.key) == (line, column, key)
    assert words in mistake.message


def test_all_mistakes_come_in_one_pass_in_the_order_of_the_file() -> None:
    found = mistakes(
        "overflow: x\n"
        "limits: {inflight: 0, memry: 1GiB}\n"
        "listeners:\n"
        "  - {type: tcp, address: nowhere}\n"
        "  - {type: tls, address: '127.0.0.1:8883'}\n"
        "policy: [{priority: 99}, {}]\n"
    )
    assert [(mistake.line, mistake.key) for mistake in found] == [
        (1, "overflow"),
        (2, "limits.inflight"),
        (2, "limits.memry"),
        (4, "listeners[0].address"),
        (5, "listeners[1]"),
        (6, "policy[0].priority"),
        (6, "policy[1]"),
    ]


def test_a_rule_is_checked_although_another_field_of_its_record_is_wrong() -> None:
    found = mistakes("links: [{name: a, users: [u], rate: fast, shares: {1: 0.5}}]\n")
    assert [mistake.key for mistake in found] == ["links[0].rate", "links[0].shares"]


def test_what_stands_under_a_misspelt_key_is_read_as_what_was_meant() -> None:
    found = mistakes(
        "listners:\n- {type: tcp, adress: nowhere}\n- {type: tls, address: '[::1]:1'}\n"
    )
    assert [(mistake.line, mistake.key) for mistake in found] == [
        (1, "listners"),
        (2, "listners[0].adress"),
        (2, "listners[0].adress"),
        (3, "listners[1]"),
    ]


def test_what_is_given_twice_is_read_twice() -> None:
    found = mistakes("limits: {inflight: 0}\nlimits: {memory: much}\n")
    assert [mistake.key for mistake in found] == ["limits.inflight", "limits", "limits.memory"]


def test_settings_under_a_wrong_name_are_read() -> None:
    found = mistakes("applications:\n  '': {weight: 0}\n")
    assert [mistake.key for mistake in found] == ["applications.", "applications..weight"]


def test_one_wrong_item_does_not_hide_what_others_have_wrong() -> None:
    found = mistakes(
        "listeners:\n"
        "- {type: tpc, address: '0.0.0.0:1883', name: a}\n"
        "- {type: tcp, address: nowhere, name: a}\n"
        "- {type: tcp, address: '0.0.0.0:1883'}\n"
        "- tcp\n"
    )
    assert [(mistake.line, mistake.key) for mistake in found] == [
        (2, "listeners[0].type"),
        (2, "listeners[0].address"),  # anyone could connect
        (3, "listeners[1].address"),
        (3, "listeners[1].name"),
        (4, "listeners[2].address"),
        (4, "listeners[2].address"),
        (5, "listeners[3]"),
    ]


def test_a_mistake_in_one_section_does_not_hide_what_it_has_to_do_with_another() -> None:
    found = mistakes(
        "listeners: [{type: tcp, address: '0.0.0.0:1883', path: mqtt}]\n"
        "auth:\n"
        "  roles: {admin: [root]}\n"
        "  acl:\n"
        "  - {allow: all, topics: ['%x'], users: [a]}\n"
        "  - {allow: everything, users: [b]}\n"
        "  jwt: {secret_file: s, algorithms: [none, RS256]}\n"
    )
    assert [(mistake.line, mistake.key) for mistake in found] == [
        (1, "listeners[0].path"),
        (5, "auth.acl[0].topics[0]"),
        (6, "auth.acl[1].allow"),
        (7, "auth.jwt.algorithms[0]"),
        (7, "auth.jwt.algorithms[1]"),
    ]
    found = mistakes(
        "listeners: [{type: tcp, address: '0.0.0.0:1883', path: mqtt}]\n"
        "auth:\n"
        "  roles: {admin: [root]}\n"
        "  acl: [{allow: all, topics: ['%x']}, {deny: all, users: [b]}]\n"
    )
    assert [mistake.key for mistake in found] == [
        "listeners[0].address",
        "listeners[0].path",
        "auth.roles",
        "auth.acl[0].topics[0]",
        "auth.acl[1]",
    ]


def test_a_value_that_could_not_be_read_is_never_taken_for_another() -> None:
    # Whether somebody may enter is not known: nothing is said of it.
    found = mistakes("listeners: [{type: tcp, address: '0.0.0.0:1'}]\nauth: {allow_anonymous: x}\n")
    assert [mistake.key for mistake in found] == ["auth.allow_anonymous"]


def test_a_duplicate_key_names_the_line_of_the_first() -> None:
    mistake = only("overflow: oldest\ndata_dir: d\noverflow: newest\n")
    assert (mistake.line, mistake.key) == (3, "overflow")
    assert mistake.message == "is given twice, first in line 1"


def test_two_spellings_of_one_level_are_a_duplicate() -> None:
    link = "{name: a, users: [u], discipline: drr, weights: {1: 2, 01: 3}}"
    assert only(f"links: [{link}]").message == "is given twice"


@pytest.mark.parametrize("text", ["a: [1\nb: 2\n", "a: b: c\n", "\tx: 1\n", "a: 1\n---\nb: 2\n"])
def test_a_syntax_error_is_a_mistake_with_its_line(text: str) -> None:
    mistake = only(text)
    assert mistake.line >= 1
    assert mistake.message.startswith("not YAML: ")


def test_a_character_that_yaml_forbids_is_a_mistake_with_its_line() -> None:
    mistake = only("data_dir: d\noverflow: \x07\n")
    assert (mistake.line, mistake.column) == (2, 11)


def test_endless_nesting_is_a_mistake() -> None:
    assert "nested too deeply" in only("[" * 100_000).message


def test_the_error_is_a_configuration_error_that_reads_like_a_compiler_s() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse("overflow: x\n", "headgate.yaml")
    assert str(caught.value) == (
        "headgate.yaml:1:11: overflow: expected one of oldest, newest, found 'x'"
    )


class TestListeners:
    @pytest.mark.parametrize(
        ("listener", "key", "words"),
        [
            ("{type: tls, address: '127.0.0.1:1'}", "", "certificate: server.pem"),
            ("{type: wss, address: '127.0.0.1:1'}", "", "certificate: server.pem"),
            ("{type: tcp, address: '1.2.3:1'}", ".address", "1.2.3 is not an IP address"),
            ("{type: tcp, address: '1.2.3.4:65536'}", ".address", "at most 65535"),
            ("{type: tcp, address: '::1:1883'}", ".address", "[::1]:1883"),
            ("{type: tcp, address: 1883}", ".address", "127.0.0.1:1883"),
            ("{type: tcp, address: ./here}", ".address", "host:port"),
            ("{type: unix, address: '127.0.0.1:1'}", ".address", "a path with a '/'"),
            (
                "{type: ws, address: '127.0.0.1:1', tls: {certificate: c, key: k}}",
                ".tls",
                "use type: wss",
            ),
            (
                "{type: tls, address: '127.0.0.1:1', "
                "tls: {certificate: c, key: k, require_client_certificate: true}}",
                ".tls.require_client_certificate",
                "add client_ca",
            ),
            ("{type: ws, address: '127.0.0.1:1', path: mqtt}", ".path", "^/"),
        ],
    )
    def test_what_does_not_fit_together(self, listener: str, key: str, words: str) -> None:
        mistake = only(f"listeners:\n- {listener}\n")
        assert mistake.line == 2
        assert mistake.key == f"listeners[0]{key}"
        assert words in mistake.message

    def test_two_at_one_address(self) -> None:
        place = "{type: tcp, address: '127.0.0.1:1883'}"
        mistake = only(f"listeners:\n- {place}\n- {place}\n")
        assert (mistake.line, mistake.key) == (3, "listeners[1].address")

    def test_two_that_share_a_name(self) -> None:
        place = "{type: tcp, name: a, address: '127.0.0.1:0'}"
        mistake = only(f"listeners:\n- {place}\n- {place}\n")
        assert (mistake.line, mistake.key) == (3, "listeners[1].name")


class TestAuth:
    OPEN = "listeners: [{type: tcp, address: '0.0.0.0:1883'}]\n"

    def test_an_open_listener_without_any_auth_must_be_meant(self) -> None:
        mistake = only(self.OPEN)
        assert mistake.key == "listeners[0].address"
        assert "allow_anonymous: true" in mistake.message

    @pytest.mark.parametrize(
        "auth", ["{allow_anonymous: true}", "{password_file: p}", "{jwt: {secret_file: s}}"]
    )
    def test_an_open_listener_is_fine_once_somebody_decided(self, auth: str) -> None:
        parse(f"{self.OPEN}auth: {auth}\n")

    def test_an_empty_auth_section_decides_nothing(self) -> None:
        assert only(f"{self.OPEN}auth: {{}}\n").key == "listeners[0].address"

    def test_a_hook_may_be_what_asks(self) -> None:
        parse(f"{self.OPEN}hooks: ['my.auth:Directory']\n")

    def test_a_broker_that_nobody_can_enter(self) -> None:
        mistake = only("auth:\n  allow_anonymous: false\n")
        assert (mistake.line, mistake.key) == (2, "auth.allow_anonymous")

    @pytest.mark.parametrize(
        ("auth", "key"),
        [
            ("roles: {admin: [root]}", "auth.roles"),
            ("acl: [{allow: all, users: [root]}]", "auth.acl[0]"),
            ("acl: [{allow: all, topics: 'home/%u/#'}]", "auth.acl[0]"),
        ],
    )
    def test_rules_about_users_need_users_that_were_verified(self, auth: str, key: str) -> None:
        assert only(f"auth: {{allow_anonymous: true, {auth}}}\n").key == key

    def test_scram_needs_the_password_file(self) -> None:
        assert only("auth: {scram: true}\n").key == "auth.scram"

    def test_certificates_need_a_listener_that_asks_for_them(self) -> None:
        assert only("auth: {certificates: true}\n").key == "auth.certificates"

    @pytest.mark.parametrize("jwt", ["{}", "{secret_file: s, public_key_file: p}"])
    def test_a_token_has_one_kind_of_key(self, jwt: str) -> None:
        assert only(f"auth: {{jwt: {jwt}}}\n").key == "auth.jwt"

    @pytest.mark.parametrize(
        ("key_file", "algorithm"), [("secret_file", "RS256"), ("public_key_file", "HS256")]
    )
    def test_an_algorithm_that_does_not_go_with_the_key(
        self, key_file: str, algorithm: str
    ) -> None:
        mistake = only(f"auth: {{jwt: {{{key_file}: s, algorithms: [{algorithm}]}}}}\n")
        assert mistake.key == "auth.jwt.algorithms[0]"

    def test_no_signature_is_no_algorithm(self) -> None:
        mistake = only("auth: {jwt: {secret_file: s, algorithms: [none]}}\n")
        assert mistake.key == "auth.jwt.algorithms[0]"

    @pytest.mark.parametrize("rule", ["{topics: a}", "{allow: all, deny: all}"])
    def test_a_rule_either_allows_or_denies(self, rule: str) -> None:
        assert only(f"auth: {{acl: [{rule}]}}\n").key == "auth.acl[0]"

    def test_an_unknown_pattern(self) -> None:
        mistake = only("auth: {acl: [{allow: all, topics: ['a/%x']}]}\n")
        assert mistake.key == "auth.acl[0].topics[0]"
        assert "%u" in mistake.message


class TestLinks:
    @pytest.mark.parametrize(
        ("settings", "key", "words"),
        [
            ("discipline: strict-min", ".discipline", "shares: {3: 0.1}"),
            ("discipline: strict-min, shares: {0: 0.6, 1: 0.6}", ".shares", "add up to 1.2"),
            ("discipline: drr, shares: {0: 0.6}", ".shares", "use strict-min"),
            ("weights: {0: 2}", ".weights", "use drr"),
            ("discipline: drr, weights: {16: 2}", ".weights.16", "from 0 to 15"),
            ("discipline: drr, weights: {1: 0}", ".weights.1", "above 0"),
        ],
    )
    def test_shares_and_weights_fit_the_discipline(
        self, settings: str, key: str, words: str
    ) -> None:
        mistake = only(f"links: [{{name: a, users: [u], {settings}}}]\n")
        assert mistake.key == f"links[0]{key}"
        assert words in mistake.message

    def test_two_of_one_name(self) -> None:
        link = "{name: a, users: [u]}"
        assert only(f"links: [{link}, {link}]\n").key == "links[1].name"
