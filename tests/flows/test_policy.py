"""Policies: which flow gets which setting, and what a command does to the one in force."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.config import Configuration
from headgate.contract import Application, FlowSelector, Policy, PolicyRule
from headgate.contract.schema import MOST
from headgate.core.policies import DEFAULTS, Topics
from headgate.core.repetition import refuse_repeated_keys
from headgate.wire.packets import Properties, Puback, Publish, Pubrec, Version
from headgate.wire.reasons import Reason
from headgate.wire.topics import covers

from .scene import Client, Gate, Scene, SlowJournal

POLICY = "$CONTROL/headgate/policy"


def priorities(scene: Scene) -> dict[tuple[str, str], int]:
    return {(flow.session.client_id, flow.filter): flow.priority for flow in scene.flows()}


def subscribed(config: Configuration, *flows: tuple[str, str]) -> Scene:
    scene = Scene(config)
    clients: dict[str, Client] = {}
    for name, topic_filter in flows:
        if name not in clients:
            clients[name] = scene.connect(name)
        clients[name].subscribe(topic_filter)
    return scene


# Selection


def test_each_setting_comes_from_the_last_rule_that_has_it() -> None:
    config = Configuration(
        policy=(
            PolicyRule(priority=5, lifetime=1.0),
            PolicyRule(topic="a/#", priority=4, capacity=10),
            PolicyRule(flow=FlowSelector(client="c", filter="a/b"), priority=3, drop=0.1),
            PolicyRule(topic="a/+", join=0.5, drop=0.2),
        )
    )
    scene = subscribed(config, ("c", "a/b"), ("c", "a/c/d"), ("c", "x"))
    flows = {flow.filter: flow for flow in scene.flows()}
    b, cd, x = flows["a/b"], flows["a/c/d"], flows["x"]
    assert (b.priority, b.drop_rate, b.join, b.lifetime, b.capacity) == (3, 0.2, 0.5, 1.0, 10)
    assert (cd.priority, cd.drop_rate, cd.join, cd.lifetime, cd.capacity) == (4, 0, 1, 1.0, 10)
    assert (x.priority, x.drop_rate, x.join, x.lifetime, x.capacity) == (5, 0, 1, 1.0, 0)


def test_selectors_of_one_rule_must_all_hold() -> None:
    config = Configuration(
        applications=(
            Application(name="one", clients=("one-*",), category="RT"),
            Application(name="two", clients=("two-*",), category="RT"),
        ),
        policy=(
            PolicyRule(category="RT", priority=1),
            PolicyRule(category="RT", application="two", topic="t/#", priority=2),
            PolicyRule(
                flow=FlowSelector(client="one-1", filter="t/a"), application="two", priority=9
            ),
            PolicyRule(flow=FlowSelector(client="two-1", filter="t/b"), topic="u/#", priority=9),
        ),
    )
    scene = subscribed(
        config, ("one-1", "t/a"), ("two-1", "t/a"), ("two-1", "u"), ("two-1", "t/b"), ("x", "t/a")
    )
    assert priorities(scene) == {
        ("one-1", "t/a"): 1,
        ("two-1", "t/a"): 2,
        ("two-1", "u"): 1,
        ("two-1", "t/b"): 2,
        ("x", "t/a"): DEFAULTS.priority,
    }


def test_a_shared_subscription_is_selected_by_its_plain_topic_and_its_full_filter() -> None:
    config = Configuration(
        policy=(
            PolicyRule(topic="t/#", priority=1),
            PolicyRule(flow=FlowSelector(client="c", filter="$share/g/t/b"), priority=2),
        )
    )
    scene = subscribed(config, ("c", "$share/g/t/a"), ("c", "$share/g/t/b"), ("c", "t/b"))
    assert list(priorities(scene).values()) == [1, 2, 1]


LEVELS = st.sampled_from(["a", "b", "+", "$x", ""])
FILTERS = st.builds(
    lambda levels, rest: "/".join([*levels, "#"] if rest or not levels else levels),
    st.lists(LEVELS, max_size=4),
    st.booleans(),
).filter(bool)


@settings(max_examples=500, deadline=None)
@given(st.lists(FILTERS, max_size=12), FILTERS)
def test_rules_by_topic_are_found_as_if_each_were_compared(
    topics: list[str], topic_filter: str
) -> None:
    tree = Topics()
    for rank, topic in enumerate(topics):
        tree.add((rank, PolicyRule(topic=topic, priority=1)))
    names = ("+", "#") if topic_filter == "#" else topic_filter.split("/")
    found = sorted(rank for rank, _ in tree.covering(names))
    assert found == [rank for rank, topic in enumerate(topics) if covers(topic, topic_filter)]


# Commands


def send(
    client: Client, payload: bytes | dict[str, Any], qos: int = 1, **properties: Any
) -> list[int]:
    """Publish a policy; the reason codes of its acknowledgement."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    client.publish(POLICY, data, qos, properties=Properties(**properties))
    return [answer.reason for answer in client.take(Puback) + client.take(Pubrec)]


def rules(*some: dict[str, Any], version: int = 1) -> dict[str, Any]:
    return {"version": version, "rules": list(some)}


@pytest.mark.parametrize("qos", [1, 2])
def test_a_policy_takes_effect_and_is_answered_with_its_version(qos: int) -> None:
    scene = subscribed(Configuration(), ("c", "t"), ("d", "u"))
    admin = scene.connect("admin")
    admin.subscribe("$SYS/headgate/control")
    admin.subscribe("$SYS/headgate/policy")
    admin.subscribe("answers")
    admin.take(Publish)
    wanted = rules({"topic": "t", "priority": 2}, version=7)
    assert send(admin, wanted, qos, response_topic="answers", correlation_data=b"\x00me") == [0]
    assert priorities(scene)["c", "t"] == 2
    heard = {message.topic: message for message in admin.take(Publish)}
    assert Policy.from_json(heard["$SYS/headgate/policy"].payload) == Policy(
        version=7, rules=(PolicyRule(topic="t", priority=2),)
    )
    answer = {
        "ok": True,
        "version": 7,
        "flows": 5,
        "command": POLICY,
        "client": "admin",
    }
    assert json.loads(heard["$SYS/headgate/control"].payload) == answer
    assert json.loads(heard["answers"].payload) == answer
    assert heard["answers"].properties.correlation_data == b"\x00me"


def test_a_policy_without_rules_is_taken_if_it_says_so() -> None:
    scene = subscribed(Configuration(), ("c", "t"))
    admin = scene.connect("admin")
    assert send(admin, rules({"priority": 2})) == [0]
    assert send(admin, b'{"version": 2}') == [Reason.PAYLOAD_FORMAT_INVALID]
    assert priorities(scene)["c", "t"] == 2
    assert send(admin, rules(version=2)) == [0]
    assert priorities(scene)["c", "t"] == DEFAULTS.priority


def test_the_largest_numbers_of_a_policy_can_be_obeyed() -> None:
    scene = subscribed(Configuration(), ("c", "t"))
    admin = scene.connect("admin")
    most = {"capacity": MOST, "lifetime": MOST, "threshold_s": MOST, "priority": 15, "join": 1}
    assert send(admin, {**rules(most), "periods": {"t": MOST}}) == [0]
    late = scene.connect("late")
    late.subscribe("t", 1)
    scene.connect("p").publish("t", b"x", 1)
    assert late.payloads() == [b"x"]


@pytest.mark.parametrize(
    "setting",
    [
        {"weight": 1e300},
        {"threshold_s": 1e300},
        {"requirement": {"mean_ms": 1e300}},
        {"requirement": {"response_ms": 9223372036854775808}},
        {"requirement": {"throughput": 1e300}},
    ],
)
def test_an_application_with_a_number_beyond_all_use_is_refused(setting: dict[str, Any]) -> None:
    scene = Scene()
    admin = scene.connect("admin")
    admin.subscribe("$SYS/headgate/control")
    applications = json.dumps([{"name": "a", **setting}]).encode()
    admin.publish("$CONTROL/headgate/applications", applications, 1)
    (told,) = admin.payloads()
    assert "<= 1000000000000000" in json.loads(told)["reason"]


@pytest.mark.parametrize(
    "rest", [b'"version": 1180591620717411303424', b'"version": 1, "x": ' + b"[" * 9999]
)
def test_a_plan_that_cannot_be_put_on_record_is_refused(rest: bytes) -> None:
    scene = Scene()
    admin = scene.connect("admin")
    plan = b'{"event": "applied", "why": "", %s' % rest + b"]" * rest.count(b"[") + b"}"
    admin.publish("$CONTROL/headgate/plan", plan, 1)
    assert [answer.reason for answer in admin.take(Puback)] == [0x99]


def test_of_two_applications_with_one_name_neither_is_taken() -> None:
    scene = Scene()
    admin = scene.connect("admin")
    admin.subscribe("$SYS/headgate/control")
    twins = [{"name": "a", "clients": ["x"]}, {"name": "a", "clients": ["y"]}]
    admin.publish("$CONTROL/headgate/applications", json.dumps(twins).encode(), 1)
    assert [answer.reason for answer in admin.take(Puback)] == [Reason.PAYLOAD_FORMAT_INVALID]
    (answer,) = admin.take(Publish)
    assert json.loads(answer.payload)["reason"] == "there are two applications called 'a'"
    assert scene.broker.control.applications == []


def test_the_policy_in_force_is_retained() -> None:
    scene = Scene()
    send(scene.connect("admin"), rules({"priority": 3}))
    late = scene.connect("late")
    late.subscribe("$SYS/headgate/policy")
    (message,) = late.take(Publish)
    assert message.retain
    assert json.loads(message.payload) == rules({"priority": 3})


INVALID = {
    b'{"version": 1}': '"rules": []',
    b"{}": '"rules": []',
    b"nonsense": "malformed",
    b"": "truncated",
    b"[]": "Expected `object`",
    b"\xff\xfe": "malformed",
    b'{"version": 1, "rules": [{"priority": 16}]}': "priority",
    b'{"version": 1, "rules": [{"priority": -1}]}': "priority",
    b'{"version": 1, "rules": [{"drop": 1.1}]}': "drop",
    b'{"version": 1, "rules": [{"drop": "much"}]}': "drop",
    b'{"version": 1, "rules": [{"capacity": 1.5}]}': "capacity",
    b'{"version": 1, "rules": [{"lifetime": -1}]}': "lifetime",
    b'{"version": 1, "rules": [{"topic": "t"}]}': "sets nothing",
    b'{"version": 1, "rules": [{"topic": "a/#/b", "priority": 1}]}': "rules[0]",
    b'{"version": 1, "rules": [{"topic": "", "priority": 1}]}': "empty",
    b'{"version": 1, "rules": [{"priority": 1}, {"flow": {"client": "c", "filter": "a+"},'
    b' "priority": 1}]}': "rules[1]",
    b'{"version": 1, "rules": [{"flow": {"filter": "a"}, "priority": 1}]}': "client",
    b'{"version": 1, "rules": [], "colour": 1}': "colour",
    b'{"version": -1, "rules": []}': "version",
    b'{"version": 9007199254740992, "rules": []}': "version",
    b'{"version": 1000000000000000, "rules": []}': "expected at most 10000000000000",
    b'{"version": 10000000000001, "rules": []}': "too far above 0",
    b'{"version": 1, "rules": [{"capacity": 9223372036854775808}]}': "<= 1000000000000000",
    b'{"version": 1, "rules": [{"capacity": 1000000000000001}]}': "<= 1000000000000000",
    b'{"version": 1, "rules": [{"lifetime": 1e16}]}': "<= 1000000000000000",
    b'{"version": 1, "rules": [{"threshold_s": 1e300}]}': "<= 1000000000000000",
    b'{"version": 1, "rules": [], "periods": {"t": 1e16}}': "<= 1000000000000000",
    b'{"version": 0, "rules": []}': "version 0 is not above 0",
    b'{"rules": []}': "version 0 is not above 0",
    b'{"version": 1, "rules": ' + b"[" * 10_000: "array",
}


@pytest.mark.parametrize("payload", INVALID)
def test_an_invalid_policy_is_refused_with_the_reason_and_the_old_one_stays(payload: bytes) -> None:
    config = Configuration(policy=(PolicyRule(priority=4),))
    scene = subscribed(config, ("c", "t"))
    admin = scene.connect("admin")
    admin.subscribe("$SYS/headgate/control")
    admin.subscribe("$SYS/headgate/policy")
    admin.take(Publish)
    assert send(admin, payload) == [0x99]
    (told,) = admin.take(Publish)
    answer = json.loads(told.payload)
    assert answer["ok"] is False
    assert INVALID[payload] in answer["reason"]
    assert priorities(scene)["c", "t"] == 4
    assert scene.broker.enforcer.policy.version == 0


PREFIX = "$SYS/headgate/period/"

UNTELLABLE = {
    "x" * (65_536 - len(PREFIX)): "is 65536 bytes, more than 65535",
    "ü" * 32_760: "more than 65535",
    "": "is empty",
    "a/+": "contains a wildcard",
    "#": "contains a wildcard",
    "a\0b": "contains U+0000",
    "$SYS/x": "begins with $",
    "a/" * 1000: "more than 128 levels",
}


@pytest.mark.parametrize("topic", UNTELLABLE)
def test_a_period_that_could_not_be_announced_is_refused(topic: str) -> None:
    scene = Scene()
    admin = scene.connect("admin")
    admin.subscribe("$SYS/headgate/control")
    assert send(admin, {"version": 1, "rules": [], "periods": {topic: 5}}) == [0x99]
    (told,) = admin.payloads()
    reason = json.loads(told)["reason"]
    assert UNTELLABLE[topic] in reason
    assert len(reason) < 300
    assert scene.broker.enforcer.policy.version == 0


def test_the_longest_topic_whose_period_can_be_announced() -> None:
    scene = Scene()
    topic = "x" * (65_535 - len(PREFIX))
    policy = {"version": 1, "rules": [], "periods": {topic: 5}}
    assert send(scene.connect("admin"), policy) == [0]
    listener = scene.connect("listener")
    listener.subscribe("$SYS/#")
    assert PREFIX + topic in [message.topic for message in listener.take(Publish)]


def test_a_kept_policy_is_taken_up_without_what_cannot_be_announced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = subscribed(Configuration(), ("c", "t"))
    periods = {"x" * 65_535: 5, "a/" * 1000: 5, "fine": 2.5}
    kept = {**rules({"priority": 2}, version=3), "periods": periods}
    scene.broker.control.restore({"policy": json.dumps(kept).encode()})
    scene.broker.control.announce(scene.now)
    assert priorities(scene)["c", "t"] == 2
    listener = scene.connect("listener")
    listener.subscribe("$SYS/headgate/period/#")
    assert [message.topic for message in listener.take(Publish)] == [PREFIX + "fine"]
    assert caplog.text.count("is left out") == 2


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("policy", b'{"version": 3, "rules": [{"priority": 99}]}'),
        ("policy", b'{"version": 3, "rules": [{"topic": "#/a", "priority": 1}]}'),
        ("policy", b"nonsense"),
        ("applications", b'[{"name": ""}]'),
    ],
)
def test_what_was_kept_and_is_refused_now_does_not_keep_the_broker_from_starting(
    name: str, payload: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    scene = subscribed(Configuration(policy=(PolicyRule(priority=4),)), ("c", "t"))
    scene.broker.control.restore({name: payload})
    assert priorities(scene)["c", "t"] == 4
    assert f"the {name} kept from before" in caplog.text
    assert send(scene.connect("admin"), rules({"priority": 5})) == [0]


TWICE = {
    b'{"version": 5, "version": 10, "rules": []}': "version",
    b' { "version" : 1 , "rules" : [ ] , "rules" : [{"drop": 1}] } ': "rules",
    b'{"version": 1, "rules": [{"priority": 1}, {"drop": 1, "drop": 0}]}': "drop",
    b'{"version": 1, "rules": [{"flow": {"client": "a", "client": "b", "filter": "t"},'
    b' "drop": 1}]}': "client",
    b'{"version": 1, "rules": [], "periods": {"a/b": 1, "a\\/b": 2}}': "a/b",
    b'[{"name": "a", "weight": 1, "weight": 2}]': "weight",
    b'[{"name": "a", "requirement": {"loss": 0, "loss": 1}}]': "loss",
    b'{"holder": "a", "holder": "b", "seconds": 1}': "holder",
    b'{"event": "a", "why": "", "version": 1, "more": [{"x": 1, "x": 2}]}': "x",
}


@pytest.mark.parametrize("payload", TWICE)
def test_a_key_that_stands_twice_is_refused(payload: bytes) -> None:
    scene = Scene()
    admin = scene.connect("admin")
    admin.subscribe("$SYS/headgate/control")
    commands = {b"holder": "lease", b"event": "plan", b"name": "applications"}
    command = next((commands[word] for word in commands if word in payload), "policy")
    admin.publish("$CONTROL/headgate/" + command, payload, 1)
    assert [answer.reason for answer in admin.take(Puback)] == [0x99]
    (told,) = admin.payloads()
    assert json.loads(told)["reason"] == f"the key {TWICE[payload]!r} stands twice in one object"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


@settings(deadline=None)
@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_json_without_repetition_is_taken_however_it_is_written(
    value: Any, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    for _ in refuse_repeated_keys(text.encode()):
        pass


def test_a_stale_version_is_refused() -> None:
    scene = subscribed(Configuration(), ("c", "t"))
    admin = scene.connect("admin")
    assert send(admin, rules({"priority": 1}, version=5)) == [0]
    for version in (5, 4, 0):
        assert send(admin, rules({"priority": 2}, version=version)) == [0x99]
    assert priorities(scene)["c", "t"] == 1
    assert send(admin, rules({"priority": 2}, version=6)) == [0]
    assert priorities(scene)["c", "t"] == 2


def test_there_is_always_a_version_above_the_one_in_force() -> None:
    scene = Scene()
    admin = scene.connect("admin")
    highest = 0
    for _ in range(50):
        highest += 10**13
        assert send(admin, rules(version=highest + 1)) == [0x99]
        assert send(admin, rules(version=highest)) == [0]
    assert send(admin, rules(version=highest + 1)) == [0]


def test_a_kept_version_that_nothing_can_follow_is_given_up_at_the_start() -> None:
    scene = Scene()
    scene.broker.control.restore({"policy": b'{"version": 9007199254740992, "rules": []}'})
    assert send(scene.connect("admin"), rules()) == [0]


def test_a_new_policy_replaces_the_old_one_as_a_whole() -> None:
    scene = subscribed(Configuration(), ("c", "t"))
    admin = scene.connect("admin")
    send(admin, rules({"priority": 1, "drop": 0.5, "lifetime": 3, "capacity": 2, "join": 0}))
    send(admin, rules(version=2))
    (flow,) = scene.flows()
    assert (flow.priority, flow.drop_rate, flow.lifetime, flow.capacity) == (7, 0.0, 0.0, 0)
    assert flow.join == 1.0


def test_it_applies_between_two_messages_of_one_read() -> None:
    scene = subscribed(Configuration(), ("c", "t"))
    (client,) = scene.clients
    admin = scene.connect("admin")
    before = [Publish("t", b"before %d" % number) for number in range(50)]
    after = [Publish("t", b"after %d" % number) for number in range(50)]
    policy = Publish(POLICY, json.dumps(rules({"drop": 1.0})).encode(), 1, packet_id=1)
    admin.say(*before, policy, *after)
    scene.turn()
    assert client.payloads() == [message.payload for message in before]


def test_an_urgent_command_is_a_command_and_answered_as_one() -> None:
    scene = subscribed(Configuration(), ("c", "t"))
    admin = scene.connect("admin")
    for payload, reason in ((b"nonsense", 0x99), (json.dumps(rules({"priority": 1})).encode(), 0)):
        admin.publish("$urgent/" + POLICY, payload, 1)
        assert [answer.reason for answer in admin.take(Puback)] == [reason]
    assert priorities(scene)["c", "t"] == 1


def test_an_older_client_learns_it_from_the_answers() -> None:
    scene = Scene()
    admin = scene.connect("admin", Version.V311)
    admin.subscribe("$SYS/headgate/control")
    admin.publish(POLICY, b"{}", 1)
    assert json.loads(admin.payloads()[0])["ok"] is False


def test_who_may_not_publish_there_changes_nothing() -> None:
    gate = Gate()
    gate.publishers = lambda client_id, topic: client_id == "admin"
    scene = Scene(gate=gate)
    watcher = scene.connect("watcher")
    watcher.subscribe("$SYS/headgate/#")
    watcher.take(Publish)
    assert send(scene.connect("stranger"), rules({"priority": 1})) == [0x87]
    assert send(scene.connect("stranger-2"), rules({"priority": 1}), 2) == [0x87]
    scene.connect("stranger-3", Version.V311).publish("$urgent/" + POLICY, b"{}", 1)
    assert scene.broker.enforcer.policy.version == 0
    assert watcher.take(Publish) == []


def test_a_command_that_does_not_exist() -> None:
    scene = Scene()
    admin = scene.connect("admin")
    admin.publish("$CONTROL/headgate/polity", b"{}", 1)
    assert admin.take(Puback)[0].reason >= 0x80


def test_answers_wait_until_the_policy_is_kept() -> None:
    scene = Scene(journal=SlowJournal())
    admin = scene.connect("admin")
    admin.subscribe("answers")
    admin.subscribe("$SYS/headgate/#")
    admin.take(Publish)
    assert send(admin, rules({"priority": 1}), response_topic="answers") == []
    assert scene.broker.enforcer.policy.version == 1
    assert admin.take(Publish) == []
    scene.commit()
    assert [answer.reason for answer in admin.take(Puback)] == [0]
    topics = [message.topic for message in admin.take(Publish)]
    assert topics == ["$SYS/headgate/policy", "$SYS/headgate/control", "answers"]


def test_answers_come_in_the_order_of_the_commands() -> None:
    scene = Scene(journal=SlowJournal())
    admin = scene.connect("admin")
    admin.subscribe("$SYS/headgate/control")
    send(admin, rules(version=1))
    send(admin, b"nonsense")
    assert admin.take(Publish) == []
    scene.commit()
    assert [json.loads(payload)["ok"] for payload in admin.payloads()] == [True, False]


def test_flows_that_come_later_obey_it_too() -> None:
    scene = Scene()
    send(scene.connect("admin"), rules({"topic": "t", "priority": 1}))
    client = scene.connect("c")
    client.subscribe("t")
    assert client.flow("t").priority == 1


def test_what_waits_is_moved_to_its_new_level() -> None:
    scene = subscribed(Configuration(), ("stalled", "t"))
    (stalled,) = scene.clients
    stalled.room = 0
    publisher = scene.connect("p")
    for _ in range(3):
        publisher.publish("t", b"x")
    flow = stalled.flow("t")
    send(publisher, rules({"priority": 12}))
    lane = flow.lanes[2]
    assert lane is not None
    assert lane.level == 2 + 12
    assert [bool(lanes) for lanes in scene.broker.pool.lanes].index(True) == 2 + 12
    stalled.read_all()
    assert len(stalled.payloads()) == 3
    assert not any(scene.broker.pool.lanes)


@pytest.mark.parametrize(
    ("topic", "heard"), [("$SYS/headgate/policy", "$SYS/headgate/policy"), ("/" * 600, "#")]
)
def test_an_answer_goes_only_where_the_client_could_publish(topic: str, heard: str) -> None:
    scene = subscribed(Configuration())
    admin = scene.connect("admin")
    admin.subscribe(heard)
    admin.take(Publish)
    assert send(admin, b"{}", 1, response_topic=topic) != [0]  # version 0 is not above 0
    assert [message.payload for message in admin.take(Publish)] == []
