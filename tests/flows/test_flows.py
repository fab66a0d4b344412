"""Every subscription is its own flow: managed apart, and MQTT as ever for whoever uses it."""

from __future__ import annotations

import pytest

from headgate.config import Configuration, Overflow
from headgate.config.limits import Limits
from headgate.contract import Application, FlowSelector, LinkSpec, PolicyRule, Requirement
from headgate.core.link import NORMAL_LEVEL
from headgate.core.reasons import Drop
from headgate.wire.packets import Properties, Puback, Publish, Version

from .scene import Client, Scene, claimed, drops, lasting

MANAGED = Configuration(
    policy=(PolicyRule(priority=3, drop=0.5, lifetime=10.0, capacity=1000),),
    links=(LinkSpec(name="all", clients=("*",), rate=100_000_000),),
    categories=(),
    applications=(Application(name="whole", clients=("whole-*",), requirement=Requirement()),),
)
"""A policy with every setting, on a paced link; clients called `whole-…` tolerate no loss."""


@pytest.fixture
def scene() -> Scene:
    return Scene(MANAGED)


def test_two_applications_on_one_topic_are_managed_differently() -> None:
    config = Configuration(
        applications=(
            Application(name="alarm", clients=("alarm-*",), category="RT"),
            Application(name="archive", clients=("archive-*",), category="AN"),
        ),
        policy=(
            PolicyRule(category="RT", priority=0),
            PolicyRule(category="AN", priority=9, drop=1.0),
        ),
    )
    scene = Scene(config)
    alarm, archive = scene.connect("alarm-1"), scene.connect("archive-1")
    for client in (alarm, archive):
        client.subscribe("building/+/smoke", 1)
    publisher = scene.connect("sensor", Version.V311)
    publisher.publish("building/7/smoke", b"1", 1)
    assert alarm.payloads() == [b"1"]
    assert archive.payloads() == []
    assert [alarm.flow("building/+/smoke").priority, archive.flow("building/+/smoke").priority] == [
        0,
        9,
    ]
    assert len(publisher.take(Puback)) == 1


def test_two_subscriptions_of_one_client_are_two_flows() -> None:
    config = Configuration(
        policy=(PolicyRule(flow=FlowSelector(client="c", filter="a/#"), drop=1.0),)
    )
    scene = Scene(config)
    client = scene.connect("c")
    client.subscribe("a/#")
    client.subscribe("a/+")
    scene.connect("p").publish("a/b", b"x")
    assert client.payloads() == [b"x"]
    assert drops(client.flow("a/#")) == {Drop.RATE: 1}
    assert drops(client.flow("a/+")) == {}


@pytest.mark.parametrize(
    "topic_filter",
    ["a/b/c/d/e/f/g", "a/+/c/+/e/+/g", "a/b/#", "#", "+/+/+/+/+/+/+", "$share/g/a/b/#"],
)
def test_wildcards_levels_and_groups(scene: Scene, topic_filter: str) -> None:
    client = scene.connect("whole-1")
    client.subscribe(topic_filter)
    scene.connect("p").publish("a/b/c/d/e/f/g", b"deep")
    assert client.payloads() == [b"deep"]
    assert client.flow(topic_filter).priority == 3


def test_members_of_a_group_share(scene: Scene) -> None:
    members = [scene.connect(f"whole-{number}") for number in range(3)]
    for member in members:
        member.subscribe("$share/g/t", 1)
    publisher = scene.connect("p")
    for number in range(30):
        publisher.publish("t", b"%d" % number, 1)
    got = [member.payloads() for member in members]
    assert sorted(payload for some in got for payload in some) == sorted(
        b"%d" % number for number in range(30)
    )
    assert all(len(some) == 10 for some in got)


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_retained_messages_of_any_age(scene: Scene, version: Version) -> None:
    """Lifetime is about waiting, and so is the response time."""
    publisher = scene.connect("p")
    publisher.publish("state/a", b"old", 1, retain=True)
    scene.advance(3600)
    client = scene.connect("whole-1", version)
    client.subscribe("state/#", 1)
    (message,) = client.take(Publish)
    assert (message.payload, message.retain) == (b"old", True)
    flow = client.flow("state/#")
    assert flow.waited is None or flow.waited.quantile(1.0) < 1.0
    publisher.publish("state/a", b"new", 1, retain=True)
    (message,) = client.take(Publish)
    assert (message.payload, message.retain) == (b"new", False)


def test_properties_pass_through(scene: Scene) -> None:
    client = scene.connect("whole-1")
    client.subscribe("t", 1, Properties(subscription_identifiers=[77]))
    sent = Properties(
        payload_format=1,
        content_type="text/plain",
        response_topic="answers",
        correlation_data=b"\x00\xff",
        message_expiry=100,
        user_properties=[("b", "2"), ("a", "1"), ("b", "3")],
    )
    scene.connect("p").publish("t", "é".encode(), 1, properties=sent)
    (message,) = client.take(Publish)
    got = message.properties
    assert got.subscription_identifiers == [77]
    assert got.content_type == "text/plain"
    assert got.response_topic == "answers"
    assert got.correlation_data == b"\x00\xff"
    assert got.message_expiry == 100
    assert got.user_properties == sent.user_properties


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_binary_payloads_of_any_size(scene: Scene, version: Version) -> None:
    client = scene.connect("whole-1", version)
    client.subscribe("t", 2)
    publisher = scene.connect("p", version)
    payloads = [b"", bytes(range(256)), b"\xff" * 127, b"\x00" * 128, bytes(70_000)]
    for payload in payloads:
        publisher.publish("t", payload, 2)
    scene.advance(10)
    assert client.payloads() == payloads


def test_order_within_a_flow(scene: Scene) -> None:
    client = scene.connect("whole-1")
    client.subscribe("t", 1)
    publisher = scene.connect("p")
    numbers = [b"%d" % number for number in range(300)]
    publisher.say(*[Publish("t", number, 1, packet_id=1 + i) for i, number in enumerate(numbers)])
    scene.advance(10)
    assert client.payloads() == numbers


# Capacity and lifetime


def stalled(scene: Scene, name: str = "slow", qos: int = 0) -> Client:
    """A subscriber to `t` whose socket takes nothing more."""
    client = scene.connect(name, properties=lasting())
    client.subscribe("t", qos)
    client.room = 0
    scene.connect("filler").publish("t", b"gathered")
    return client


def test_no_more_wait_than_the_capacity_and_the_newest_goes() -> None:
    scene = Scene(Configuration(policy=(PolicyRule(capacity=5),), overflow=Overflow.OLDEST))
    client = stalled(scene)
    publisher = scene.connect("p")
    for number in range(8):
        publisher.publish("t", b"%d" % number)
    assert client.flow("t").backlog == 5
    assert drops(client.flow("t")) == {Drop.CAPACITY: 3}
    client.read_all()
    assert client.payloads() == [b"gathered", b"0", b"1", b"2", b"3", b"4"]


def test_an_urgent_message_takes_the_place_of_a_normal_one() -> None:
    scene = Scene(Configuration(policy=(PolicyRule(capacity=2),)))
    client = stalled(scene)
    publisher = scene.connect("p")
    publisher.publish("t", b"0")
    publisher.publish("t", b"1")
    publisher.publish("t", b"urgent", properties=claimed("urgent"))
    publisher.publish("t", b"critical", properties=claimed("critical"))
    publisher.publish("t", b"2")
    assert drops(client.flow("t")) == {Drop.CAPACITY: 3}
    client.read_all()
    assert client.payloads() == [b"gathered", b"urgent", b"critical"]


def test_what_waited_too_long_is_dropped() -> None:
    scene = Scene(Configuration(policy=(PolicyRule(lifetime=2.0),)))
    client = stalled(scene)
    publisher = scene.connect("p")
    publisher.publish("t", b"stale")
    scene.advance(1.5)
    publisher.publish("t", b"fresh")
    scene.advance(1.0)
    client.read_all()
    assert client.payloads() == [b"gathered", b"fresh"]
    assert drops(client.flow("t")) == {Drop.EXPIRED: 1}


def test_what_is_stale_makes_room_for_what_is_not() -> None:
    scene = Scene(Configuration(policy=(PolicyRule(lifetime=2.0, capacity=3),)))
    client = stalled(scene)
    publisher = scene.connect("p")
    for _ in range(3):
        publisher.publish("t", b"stale")
    scene.advance(3.0)
    publisher.publish("t", b"fresh")
    client.read_all()
    assert client.payloads() == [b"gathered", b"fresh"]
    assert drops(client.flow("t")) == {Drop.EXPIRED: 3}


@pytest.mark.parametrize("qos", [1, 2])
def test_capacity_and_lifetime_while_the_client_is_away(qos: int) -> None:
    scene = Scene(Configuration(policy=(PolicyRule(lifetime=60.0, capacity=10),)))
    client = scene.connect("c", properties=lasting())
    client.subscribe("t", qos)
    client.drop()
    publisher = scene.connect("p")
    for number in range(15):
        publisher.publish("t", b"%d" % number, qos)
        scene.advance(5)
    back = scene.connect("c", clean_start=False, properties=lasting())
    flow = back.flow("t")
    # There is no room for 10 to 12; then 0 and 1 are stale and make room; 2 is stale at the end.
    assert back.payloads() == [b"%d" % number for number in [*range(3, 10), 13, 14]]
    assert drops(flow) == {Drop.CAPACITY: 3, Drop.EXPIRED: 3}


def test_messages_own_expiry_counts_beside_the_lifetime() -> None:
    scene = Scene(Configuration(policy=(PolicyRule(lifetime=100.0),)))
    client = stalled(scene)
    publisher = scene.connect("p")
    publisher.publish("t", b"short", properties=Properties(message_expiry=5))
    publisher.publish("t", b"long", properties=Properties(message_expiry=50))
    scene.advance(10)
    client.read_all()
    messages = client.take(Publish)
    assert [message.payload for message in messages] == [b"gathered", b"long"]
    assert messages[1].properties.message_expiry == 40


# Levels


def test_sixteen_priorities_are_served_in_order() -> None:
    rules = tuple(PolicyRule(topic=f"t/{level}", priority=level) for level in range(16))
    scene = Scene(Configuration(policy=rules))
    client = scene.connect("c")
    for level in range(16):
        client.subscribe(f"t/{level}")
    client.room = 0
    publisher = scene.connect("p")
    publisher.publish("t/15", b"gathered")
    for level in reversed(range(16)):
        publisher.publish(f"t/{level}", b"%d" % level)
    client.read_all()
    assert client.payloads() == [b"gathered", *[b"%d" % level for level in range(16)]]


def test_a_new_policy_changes_the_order_of_what_waits() -> None:
    scene = Scene(Configuration(policy=(PolicyRule(topic="a", priority=0),)))
    client = scene.connect("c")
    client.subscribe("a")
    client.subscribe("b")
    client.room = 0
    publisher = scene.connect("p")
    publisher.publish("a", b"gathered")
    publisher.publish("a", b"a")
    publisher.publish("b", b"b")
    publisher.publish(
        "$CONTROL/headgate/policy", b'{"version": 1, "rules": [{"topic": "b", "priority": 0}]}', 1
    )
    assert client.flow("a").level(2) == NORMAL_LEVEL + 7
    client.read_all()
    assert client.payloads() == [b"gathered", b"b", b"a"]


def test_flows_of_one_level_take_turns() -> None:
    scene = Scene()
    client = scene.connect("c")
    for name in "abc":
        client.subscribe(name)
    client.room = 0
    publisher = scene.connect("p")
    publisher.publish("a", b"gathered")
    for name in "aaabbbccc":
        publisher.publish(name, name.encode())
    client.read_all()
    assert b"".join(client.payloads()) == b"gathered" + b"abc" * 3


def test_client_limits_are_kept_by_urgent_messages_too() -> None:
    scene = Scene(Configuration(limits=Limits(queued_messages=3)))
    client = stalled(scene)
    publisher = scene.connect("p")
    for number in range(5):
        publisher.publish("t", b"u%d" % number, properties=claimed("urgent"))
    assert client.session.queued_messages == 3
    client.read_all()
    assert client.payloads() == [b"gathered", b"u2", b"u3", b"u4"]


@pytest.mark.parametrize("qos", [1, 2])
def test_an_urgent_message_passes_a_full_window(qos: int) -> None:
    scene = Scene()
    client = scene.connect("c", acknowledges=False, properties=Properties(receive_maximum=1))
    client.subscribe("t", qos)
    publisher = scene.connect("p")
    for number in range(3):
        publisher.publish("t", b"%d" % number, qos)
    assert client.payloads() == [b"0"]
    publisher.publish("t", b"urgent", 2, properties=claimed("urgent"))
    (message,) = client.take(Publish)
    assert (message.payload, message.qos) == (b"urgent", 0)
    publisher.publish("t", b"critical", properties=claimed("critical"))
    assert client.take(Publish) == []  # its acknowledgement needs the window
