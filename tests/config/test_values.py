"""What correct files mean."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.config import (
    Action,
    Address,
    Configuration,
    Durability,
    InvalidConfigurationError,
    ListenerType,
    PlannerMode,
    defaults,
    describe,
    load,
    parse,
    remarks,
    summarise,
    units,
)
from headgate.config.addresses import address
from headgate.contract import Discipline, FlowSelector, Requirement

CONTRACT = """\
listeners:
  - {type: tcp, address: "0.0.0.0:1883"}      # tcp, tls, ws, wss, unix
data_dir: ./data
auth: {allow_anonymous: true}
applications:
  fire-alarm:
    clients: ["app-RT-*"]                      # client id globs; users: [...] for user names
    category: RT
    requirement: {response_ms: 20, percentile: 99, loss: 0.0}
    weight: 10
links:
  - {name: floor-2, clients: ["app-*"], rate: 10Mbit, discipline: strict}
policy:                                        # the policy at start, when nothing was planned yet
  - {category: RT, priority: 0}
  - {category: AN, priority: 3, drop: 0.05}
planner: {mode: auto}                          # off, advise, auto
"""


def test_the_contract_works_word_by_word(tmp_path: Path) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text(CONTRACT)
    found = load(file)
    (listener,) = found.listeners
    assert listener.type is ListenerType.TCP
    assert listener.address == Address(host="0.0.0.0", port=1883)
    assert found.data_dir == tmp_path / "data"
    assert found.auth.allow_anonymous is True
    (application,) = found.applications
    assert application.name == "fire-alarm"
    assert application.clients == ("app-RT-*",)
    assert application.category == "RT"
    assert application.requirement == Requirement(response_ms=20, percentile=99, loss=0)
    assert application.weight == 10
    (link,) = found.links
    assert (link.name, link.rate, link.discipline) == ("floor-2", 10_000_000, Discipline.STRICT)
    assert [(entry.category, entry.priority, entry.drop) for entry in found.policy] == [
        ("RT", 0, None),
        ("AN", 3, 0.05),
    ]
    assert found.planner.mode is PlannerMode.AUTO


def test_off_is_a_mode_and_not_a_boolean() -> None:
    assert parse("planner: {mode: off}").planner.mode is PlannerMode.OFF


def test_a_word_that_yaml_would_read_as_something_else_stays_text() -> None:
    found = parse("applications: {007: {clients: [1e3, on, 12:30]}}")
    assert found.applications[0].name == "007"
    assert found.applications[0].clients == ("1e3", "on", "12:30")


def test_an_anchor_can_be_used_again() -> None:
    found = parse(
        "applications:\n  a: {requirement: &r {response_ms: 5}}\n  b: {requirement: *r}\n"
    )
    assert found.applications[0].requirement == found.applications[1].requirement


@pytest.mark.parametrize("text", ["", "# nothing but a remark\n", "{}"])
def test_an_empty_file_is_the_safe_default(text: str) -> None:
    assert parse(text) == defaults()


def test_the_default_listens_on_loopback_only_and_keeps_what_it_acknowledges() -> None:
    found = defaults(port=0, data_dir="/x")
    assert [str(listener.address) for listener in found.listeners] == ["127.0.0.1:0"]
    assert found.auth.allow_anonymous is None
    assert found.durability is Durability.FSYNC
    assert found.data_dir == Path("/x")


def test_the_default_refuses_to_open_the_broker_to_others() -> None:
    with pytest.raises(InvalidConfigurationError, match="auth section"):
        defaults(host="0.0.0.0")
    assert defaults(host="::1").listeners[0].address.is_local


def test_every_selector_and_setting_of_a_policy() -> None:
    (entry,) = parse(
        "policy: [{application: a, category: c, topic: t/#, flow: {client: x, filter: f/+}, "
        "priority: 15, drop: 1e-3, join: .5, lifetime: 1.5min, capacity: 1_000}]"
    ).policy
    assert entry.flow == FlowSelector(client="x", filter="f/+")
    assert (entry.priority, entry.drop, entry.join) == (15, 0.001, 0.5)
    assert (entry.lifetime, entry.capacity) == (90.0, 1000)


def test_a_link_that_measures_its_own_rate() -> None:
    (link,) = parse("links: [{name: a, addresses: [10.1.2.3/16], rate: auto}]").links
    assert link.rate is None
    assert link.addresses == ("10.1.0.0/16",)


def test_one_action_may_stand_alone_or_several_in_a_list() -> None:
    acl = parse(
        "auth: {acl: [{allow: urgent, topics: alarms/#}, {deny: [publish, claim]}]}"
    ).auth.acl
    assert acl is not None
    assert acl[0].allow == (Action.URGENT,)
    assert acl[0].topics == ("alarms/#",)
    assert acl[1].deny == (Action.PUBLISH, Action.CLAIM)
    assert acl[1].topics == ("#",)


def test_no_access_list_and_an_empty_one_are_different() -> None:
    assert parse("").auth.acl is None
    assert parse("auth: {acl: []}").auth.acl == ()


def test_a_requirement_of_the_category_serves_applications_without_their_own() -> None:
    found = parse(
        "categories: {video: {requirement: {response_ms: 40, loss: 0.2}}}\n"
        "applications:\n"
        "  a: {category: video}\n"
        "  b: {category: video, requirement: {response_ms: 1}}\n"
        "  c: {category: RT}\n"
    )
    wanted = [found.requirement_of(application) for application in found.applications]
    assert wanted[0] == Requirement(response_ms=40, loss=0.2)
    assert wanted[1] == Requirement(response_ms=1)
    assert wanted[2] is None


class TestFiles:
    def test_paths_start_from_the_folder_of_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "users").write_text("")
        file = tmp_path / "headgate.yaml"
        file.write_text(
            "listeners: [{type: unix, address: ./broker.sock}]\nauth: {password_file: users}\n"
        )
        found = load(file)
        assert found.auth.password_file == tmp_path / "users"
        assert found.listeners[0].address.path == str(tmp_path / "broker.sock")
        assert found.data_dir == tmp_path / "data"

    def test_a_socket_s_path_must_fit_into_the_kernel_s_address(self) -> None:
        fits, longer = "/" + "x" * 106, "/" + "x" * 107
        assert parse(f"listeners: [{{type: unix, address: {fits}}}]").listeners[0].address.path
        with pytest.raises(InvalidConfigurationError, match="at most 107 bytes"):
            parse(f"listeners: [{{type: unix, address: {longer}}}]")

    def test_a_file_that_is_not_there_is_a_mistake_with_its_line(self, tmp_path: Path) -> None:
        file = tmp_path / "headgate.yaml"
        file.write_text("auth:\n  password_file: users\n")
        with pytest.raises(InvalidConfigurationError) as caught:
            load(file)
        (mistake,) = caught.value.mistakes
        assert (mistake.line, mistake.key) == (2, "auth.password_file")
        assert "No such file" in mistake.message

    def test_a_folder_is_not_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "headgate.yaml"
        file.write_text("auth: {password_file: .}\n")
        with pytest.raises(InvalidConfigurationError, match="directory"):
            load(file)

    def test_the_configuration_itself_may_be_missing(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidConfigurationError, match=r"cannot be read: No such file"):
            load(tmp_path / "none.yaml")

    def test_what_is_not_utf_8_is_a_mistake_with_its_line(self, tmp_path: Path) -> None:
        file = tmp_path / "headgate.yaml"
        file.write_bytes(b"data_dir: d\noverflow: \xff\n")
        with pytest.raises(InvalidConfigurationError) as caught:
            load(file)
        (mistake,) = caught.value.mistakes
        assert (mistake.line, mistake.column) == (2, 11)


class TestUnits:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("4096", 4096),
            ("16MiB", 16 << 20),
            ("64KB", 64_000),
            ("1.5 GiB", 3 << 29),
            ("0", 0),
        ],
    )
    def test_sizes(self, text: str, value: int) -> None:
        assert units.size(text) == value

    @pytest.mark.parametrize(
        ("text", "value"),
        [("10Mbit", 10_000_000), ("1.5Gbit", 1_500_000_000), ("800kbit", 800_000), ("9600", 9600)],
    )
    def test_rates_are_decimal_bits(self, text: str, value: int) -> None:
        assert units.rate(text) == value

    @pytest.mark.parametrize(
        ("text", "value"),
        [("10s", 10), ("5min", 300), ("1h", 3600), ("250ms", 0.25), ("30", 30), ("2d", 172_800)],
    )
    def test_durations(self, text: str, value: float) -> None:
        assert units.duration(text) == value

    @pytest.mark.parametrize(
        "text", ["", "MiB", "-1", "1e9", "1 000", "5m", "10mbit", "٣", "9" * 40]
    )
    def test_what_is_none_of_them(self, text: str) -> None:
        for parse_quantity in (units.size, units.rate, units.duration):
            with pytest.raises(ValueError):
                parse_quantity(text)

    @given(st.integers(0, 2**50))
    def test_sizes_and_rates_read_back_exactly(self, value: int) -> None:
        assert units.size(units.format_size(value)) == value
        assert units.rate(units.format_rate(value)) == value

    @given(st.integers(0, 10**9))
    def test_durations_read_back_exactly(self, milliseconds: int) -> None:
        value = milliseconds / 1000
        assert units.duration(units.format_duration(value)) == pytest.approx(value, rel=1e-12)


class TestAddresses:
    @pytest.mark.parametrize(
        ("text", "host", "port", "local"),
        [
            ("127.0.0.1:1883", "127.0.0.1", 1883, True),
            ("127.8.8.8:1", "127.8.8.8", 1, True),
            ("[::1]:0", "::1", 0, True),
            ("localhost:1", "localhost", 1, True),
            ("0.0.0.0:1883", "0.0.0.0", 1883, False),
            ("[::]:1883", "::", 1883, False),
            ("broker.example:8883", "broker.example", 8883, False),
        ],
    )
    def test_host_and_port(self, text: str, host: str, port: int, local: bool) -> None:
        found = address(text)
        assert (found.host, found.port, found.is_local) == (host, port, local)
        assert str(found) == text

    def test_a_path_is_a_unix_socket(self) -> None:
        found = address("/run/headgate.sock")
        assert (found.path, found.is_local) == ("/run/headgate.sock", True)


class TestDescribing:
    def test_the_description_reads_back_to_the_same_configuration(self) -> None:
        for text in (
            "",
            CONTRACT,
            "links: [{name: a, users: [u], rate: auto, discipline: drr, weights: {1: 2.5}}]",
            "auth: {acl: [{allow: [publish, urgent], clients: ['1', 'null']}]}",
            "listeners: [{type: tls, address: '[::1]:1', tls: {certificate: c, key: k}}]",
            "limits: {keep_alive_max: 1250ms, queued_bytes: 12345}\nsys_interval: 0.3s",
        ):
            configuration = parse(text)
            assert parse(describe(configuration)) == configuration

    def test_the_summary_counts_what_there_is(self) -> None:
        assert summarise(parse(CONTRACT)) == (
            "1 listener (tcp://0.0.0.0:1883), 1 application, 1 link, 2 policy rules"
        )

    def test_a_category_that_nothing_else_mentions_is_worth_a_remark(self) -> None:
        found = parse(
            "categories: {video: }\npolicy: [{category: vidoe, drop: 0}, {category: RT, drop: 0}]"
        )
        assert list(remarks(found)) == [
            "policy[0].category: nothing else here is called vidoe; did you mean video?"
        ]

    def test_passwords_in_the_clear_are_worth_a_remark(self) -> None:
        found = parse(
            "listeners: [{type: tcp, address: '0.0.0.0:1'}, {type: tcp, address: '127.0.0.1:1'}]\n"
            "auth: {password_file: p}"
        )
        (remark,) = remarks(found)
        assert remark.startswith("tcp://0.0.0.0:1:")


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        defaults().sys_interval = 1.0  # type: ignore[misc]


def test_one_setting_can_be_replaced() -> None:
    assert msgspec.structs.replace(defaults(), sys_interval=1.0) == parse("sys_interval: 1s")
    assert isinstance(defaults(), Configuration)
