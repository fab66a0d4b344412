"""Urgent, critical, normal (p-MQTT §2): three ways to say it, one thing inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headgate.config import Configuration, Unpermitted, Urgency
from headgate.contract import PolicyRule
from headgate.wire.packets import (
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    SubscriptionOptions,
    Version,
    Will,
)

from .scene import (
    CRITICAL_TYPE,
    URGENT_TYPE,
    Client,
    Gate,
    Scene,
    claimed,
    emergency,
    lasting,
)

TYPES = {"urgent": URGENT_TYPE, "critical": CRITICAL_TYPE}
Say = Callable[..., bytes | Packet]


def by_type(rank: str, topic: str, payload: bytes, qos: int = 0, packet_id: int = 0) -> bytes:
    return emergency(TYPES[rank], topic, payload, qos, packet_id)


def by_prefix(rank: str, topic: str, payload: bytes, qos: int = 0, packet_id: int = 0) -> Packet:
    return Publish(f"${rank}/{topic}", payload, qos, packet_id=packet_id)


def by_property(rank: str, topic: str, payload: bytes, qos: int = 0, packet_id: int = 0) -> Packet:
    return Publish(topic, payload, qos, packet_id=packet_id, properties=claimed(rank))


FORMS = [
    pytest.param(Version.V311, by_type, id="3.1.1 packet type"),
    pytest.param(Version.V31, by_type, id="3.1 packet type"),
    pytest.param(Version.V311, by_prefix, id="3.1.1 topic prefix"),
    pytest.param(Version.V5, by_prefix, id="5.0 topic prefix"),
    pytest.param(Version.V5, by_property, id="5.0 user property"),
]
RANKS = ["urgent", "critical"]


def turn(scene: Scene, client: Client, *packets: Packet | bytes) -> None:
    client.say(*packets)
    scene.turn()


# What subscribers see


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize(("version", "say"), FORMS)
def test_every_form_becomes_an_ordinary_publish_on_the_plain_topic(
    version: Version, say: Say, rank: str
) -> None:
    scene = Scene()
    old, new = scene.connect("old", Version.V311), scene.connect("new", Version.V5)
    for client in (old, new):
        client.subscribe("alarm/#", 2)
    publisher = scene.connect("p", version)
    turn(scene, publisher, say(rank, "alarm/1", b"\x00\xff", 1, 9))
    assert [answer.packet_id for answer in publisher.take(Puback)] == [9]
    qos = 0 if rank == "urgent" else 2
    for client in (old, new):
        (message,) = client.take(Publish)
        assert (message.topic, message.payload, message.qos) == ("alarm/1", b"\x00\xff", qos)
        assert message.retain is False
    assert message.properties.user_properties == [("class", rank)]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize(("version", "say"), FORMS)
def test_the_publisher_is_acknowledged_by_the_qos_it_used(
    version: Version, say: Say, rank: str, qos: int
) -> None:
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("t")
    publisher = scene.connect("p", version)
    turn(scene, publisher, say(rank, "t", b"x", qos, 5 if qos else 0))
    assert [answer.packet_id for answer in publisher.take(Puback)] == [5] * (qos == 1)
    assert [answer.packet_id for answer in publisher.take(Pubrec)] == [5] * (qos == 2)
    assert subscriber.payloads() == [b"x"]
    assert not publisher.session.received


@pytest.mark.parametrize("granted", [0, 1, 2])
def test_critical_is_raised_to_qos_2_bounded_by_the_grant(granted: int) -> None:
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("t", granted)
    turn(scene, scene.connect("p"), by_property("critical", "t", b"x"))
    assert [message.qos for message in subscriber.take(Publish)] == [granted]


@pytest.mark.parametrize("granted", [0, 1, 2])
def test_or_beyond_the_grant_if_so_configured(granted: int) -> None:
    scene = Scene(Configuration(urgency=Urgency(raise_grant=True)))
    subscriber = scene.connect("s")
    subscriber.subscribe("t", granted)
    publisher = scene.connect("p")
    turn(scene, publisher, by_property("critical", "t", b"x"))
    assert [message.qos for message in subscriber.take(Publish)] == [2]
    turn(scene, publisher, by_property("urgent", "t", b"x", 1, 1))
    assert [message.qos for message in subscriber.take(Publish)] == [0]
    turn(scene, publisher, Publish("t", b"x", 2, packet_id=2))
    assert [message.qos for message in subscriber.take(Publish)] == [granted]


def test_the_property_stands_once_and_among_the_others_in_their_order() -> None:
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("t")
    publisher = scene.connect("p")
    properties = Properties(
        correlation_data=b"\x26\x00\x05class\x00\x06urgent",  # looks like it, and is not
        message_expiry=50,
        topic_alias=3,
        user_properties=[
            ("a", "1"),
            ("class", "urgent"),
            ("b", "class"),
            ("class", "urgent"),
            ("class", "other"),
            ("a", "2"),
        ],
    )
    turn(scene, publisher, Publish("t", b"x", properties=properties))
    (message,) = subscriber.take(Publish)
    assert message.properties.user_properties == [
        ("a", "1"),
        ("class", "urgent"),
        ("b", "class"),
        ("class", "other"),
        ("a", "2"),
    ]
    assert message.properties.correlation_data == properties.correlation_data
    assert message.properties.message_expiry == 50


@pytest.mark.parametrize(("topic", "rank"), [("$critical/t", "critical"), ("$urgent/t", "urgent")])
def test_prefix_and_property_that_disagree_leave_one_class(topic: str, rank: str) -> None:
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("t", 2)
    other = "urgent" if rank == "critical" else "critical"
    turn(scene, scene.connect("p"), Publish(topic, b"x", properties=claimed(other)))
    (message,) = subscriber.take(Publish)
    assert message.properties.user_properties == [("class", rank)]


@pytest.mark.parametrize(
    "value", ["normal", "URGENT", "urgent ", "", "critical\u00e9", "urgentt", "urgen"]
)
def test_another_value_is_a_property_like_any_other(value: str) -> None:
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("t", 2)
    turn(scene, scene.connect("p"), Publish("t", b"x", 1, packet_id=1, properties=claimed(value)))
    (message,) = subscriber.take(Publish)
    assert message.qos == 1
    assert message.properties.user_properties == [("class", value)]
    assert scene.broker.counters.messages_urgent == scene.broker.counters.messages_critical == 0


def test_payload_that_looks_like_a_claim_is_payload() -> None:
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("t", 2)
    payload = b"\x26\x00\x05class\x00\x06urgent"
    properties = Properties(user_properties=[("x", "y")])
    turn(scene, scene.connect("p"), Publish("t", payload, 1, packet_id=1, properties=properties))
    (message,) = subscriber.take(Publish)
    assert (message.payload, message.qos) == (payload, 1)
    assert scene.broker.counters.messages_urgent == 0


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_nobody_hears_of_the_prefix(version: Version) -> None:
    scene = Scene()
    nosy, plain = scene.connect("nosy"), scene.connect("plain")
    nosy.subscribe("$urgent/#")
    plain.subscribe("#")
    turn(scene, scene.connect("p", version), Publish("$urgent/t", b"x"))
    assert nosy.payloads() == []
    assert plain.payloads() == [b"x"]


@pytest.mark.parametrize("topic", ["$urgent/", "$critical/", "$urgent/+", "$critical/a/#"])
def test_what_is_no_topic_without_the_prefix_is_none_with_it(topic: str) -> None:
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("#")
    publisher = scene.connect("p")
    body = bytes([0, len(topic)]) + topic.encode() + b"\0"
    turn(scene, publisher, bytes([0x30, len(body)]) + body)
    assert [farewell.reason for farewell in publisher.take(Disconnect)] == [0x90]
    assert subscriber.take(Publish) == []


def test_type_15_is_auth_in_mqtt_5_and_type_0_nothing() -> None:
    for first in (0xF0, 0x00):
        scene = Scene()
        publisher = scene.connect("p")
        turn(scene, publisher, bytes([first, 5, 0, 1]) + b"txx")
        assert len(publisher.take(Disconnect)) == 1


def test_retained_urgent_messages_stay_what_they_are() -> None:
    scene = Scene()
    turn(scene, scene.connect("p"), Publish("$critical/t", b"x", retain=True))
    late = scene.connect("late")
    late.subscribe("t", 1)
    (message,) = late.take(Publish)
    assert (message.retain, message.qos) == (True, 1)
    assert message.properties.user_properties == [("class", "critical")]


# First in every queue


def test_first_in_every_queue() -> None:
    scene = Scene(Configuration(policy=(PolicyRule(topic="best", priority=0),)))
    client = scene.connect("c", properties=lasting())
    for topic in ("t", "best"):
        client.subscribe(topic, 2)
    client.room = 0
    publisher = scene.connect("p")
    turn(scene, publisher, Publish("t", b"gathered"))
    for topic in ("t", "best"):
        for rank in ("", "critical", "urgent"):
            payload = f"{rank} {topic}".encode()
            properties = claimed(rank) if rank else Properties()
            turn(scene, publisher, Publish(topic, payload, properties=properties))
    client.read_all()
    got = client.payloads()
    assert got[0] == b"gathered"
    assert sorted(got[1:3]) == [b"urgent best", b"urgent t"]
    assert sorted(got[3:5]) == [b"critical best", b"critical t"]
    assert got[5:] == [b" best", b" t"]


def test_critical_waits_for_who_is_away_and_goes_first_then() -> None:
    scene = Scene()
    client = scene.connect("c", properties=lasting())
    client.subscribe("t", 2)
    client.drop()
    publisher = scene.connect("p")
    turn(scene, publisher, Publish("t", b"normal", 1, packet_id=1))
    turn(scene, publisher, by_property("urgent", "t", b"urgent", 2, 2))
    turn(scene, publisher, by_property("critical", "t", b"critical"))
    back = scene.connect("c", clean_start=False, properties=lasting())
    assert back.payloads() == [b"critical", b"normal"]


# Permission and rate


def guarded(unpermitted: Unpermitted, rate: float = 0.0) -> Scene:
    """A broker where `panel` alone may claim."""
    gate = Gate()
    gate.claimants = lambda client_id, what: client_id == "panel"
    return Scene(
        Configuration(urgency=Urgency(unpermitted=unpermitted, rate=rate)),
        gate=gate,
    )


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize(("version", "say"), FORMS)
def test_without_permission_it_is_delivered_as_normal_and_counted(
    version: Version, say: Say, rank: str
) -> None:
    scene = guarded(Unpermitted.DELIVER)
    subscriber = scene.connect("s")
    subscriber.subscribe("t", 2)
    stranger = scene.connect("stranger", version)
    turn(scene, stranger, say(rank, "t", b"x", 1, 4))
    (message,) = subscriber.take(Publish)
    assert (message.topic, message.qos) == ("t", 1)
    assert message.properties.user_properties == []
    assert [answer.reason for answer in stranger.take(Puback)] == [0]
    assert scene.broker.counters.claims_denied == 1
    turn(scene, scene.connect("panel", version), say(rank, "t", b"y", 1, 4))
    assert [message.qos for message in subscriber.take(Publish)] == [0 if rank == "urgent" else 2]
    assert scene.broker.counters.claims_denied == 1


def test_what_may_not_claim_does_not_overtake() -> None:
    scene = guarded(Unpermitted.DELIVER)
    subscriber = scene.connect("s")
    subscriber.subscribe("#")
    turn(
        scene,
        scene.connect("stranger"),
        Publish("a", b"1"),
        by_property("urgent", "b", b"2"),
        by_prefix("critical", "a", b"3"),
        Publish("a", b"4"),
    )
    assert subscriber.payloads() == [b"1", b"2", b"3", b"4"]
    assert scene.broker.counters.claims_denied == 2


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("rank", RANKS)
def test_or_refused(rank: str, qos: int) -> None:
    scene = guarded(Unpermitted.REFUSE)
    subscriber = scene.connect("s")
    subscriber.subscribe("t")
    stranger = scene.connect("stranger")
    turn(scene, stranger, by_property(rank, "t", b"x", qos, 4), Publish("t", b"normal"))
    answers = stranger.take(Puback) + stranger.take(Pubrec)
    assert [answer.reason for answer in answers] == [0x87]
    assert subscriber.payloads() == [b"normal"]
    assert scene.broker.counters.claims_denied == 1
    assert not stranger.session.received


def test_two_claims_in_one_message_are_both_judged() -> None:
    scene = guarded(Unpermitted.DELIVER)
    subscriber = scene.connect("s")
    subscriber.subscribe("t", 2)
    properties = Properties(user_properties=[("class", "critical"), ("class", "urgent")])
    turn(scene, scene.connect("stranger"), Publish("t", b"x", properties=properties))
    (message,) = subscriber.take(Publish)
    assert message.properties.user_properties == []


def test_claims_beyond_the_rate_are_normal_messages() -> None:
    scene = guarded(Unpermitted.DELIVER, rate=10.0)
    subscriber = scene.connect("s")
    subscriber.subscribe("t", 2)
    panel = scene.connect("panel")

    def burst() -> int:
        """How many of 30 were granted."""
        turn(scene, panel, *[by_property("critical", "t", b"x") for _ in range(30)])
        messages = subscriber.take(Publish)
        assert len(messages) == 30
        return sum(message.qos == 2 for message in messages)

    assert burst() == 10
    assert burst() == 0
    scene.advance(0.55)
    assert burst() == 5
    scene.advance(100)
    assert burst() == 10
    assert scene.broker.counters.claims_denied == 120 - 25


def test_one_clients_claims_are_not_anothers() -> None:
    gate = Gate()
    scene = Scene(Configuration(urgency=Urgency(rate=1.0)), gate=gate)
    subscriber = scene.connect("s")
    subscriber.subscribe("t", 2)
    for number in range(3):
        turn(scene, scene.connect(f"p{number}"), by_property("critical", "t", b"x"))
    assert [message.qos for message in subscriber.take(Publish)] == [2, 2, 2]


def test_the_permission_to_publish_is_still_needed_on_the_plain_topic() -> None:
    gate = Gate()
    gate.publishers = lambda client_id, topic: topic == "mine"
    scene = Scene(gate=gate)
    subscriber = scene.connect("s")
    subscriber.subscribe("#")
    publisher = scene.connect("p")
    turn(scene, publisher, by_prefix("urgent", "mine", b"1", 1, 1))
    turn(scene, publisher, by_prefix("urgent", "theirs", b"2", 1, 2))
    assert [answer.reason for answer in publisher.take(Puback)] == [0, 0x87]
    assert subscriber.payloads() == [b"1"]


# Wills


@pytest.mark.parametrize(
    "will",
    [
        Will("$critical/t", b"gone"),
        Will("t", b"gone", properties=claimed("critical")),
        Will("$critical/t", b"gone", properties=claimed("urgent")),
    ],
)
def test_a_will_can_be_critical(will: Will) -> None:
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("t", 2)
    scene.connect("p", will=will).drop()
    (message,) = subscriber.take(Publish)
    assert (message.payload, message.qos) == (b"gone", 2)
    assert message.properties.user_properties == [("class", "critical")]


def test_a_will_without_permission_is_a_normal_one_or_none() -> None:
    for unpermitted, expected in ((Unpermitted.DELIVER, [b"gone"]), (Unpermitted.REFUSE, [])):
        scene = guarded(unpermitted)
        subscriber = scene.connect("s")
        subscriber.subscribe("t", 2)
        scene.connect("stranger", will=Will("$critical/t", b"gone", 1)).drop()
        messages = subscriber.take(Publish)
        assert [message.payload for message in messages] == expected
        assert all(message.qos == 1 for message in messages)
        assert not any(message.properties.user_properties for message in messages)
        assert scene.broker.counters.claims_denied == 1


def test_a_will_with_nothing_but_the_prefix_is_published_nowhere() -> None:
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("#")
    scene.connect("p", will=Will("$urgent/", b"gone")).drop()
    assert subscriber.payloads() == []


# Before their turn


def normals(count: int, topic: str = "t") -> list[Packet]:
    return [Publish(topic, b"%d" % number) for number in range(count)]


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize(("version", "say"), FORMS)
def test_an_urgent_message_overtakes_what_came_before_it_in_the_same_read(
    version: Version, say: Say, rank: str
) -> None:
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("#")
    publisher = scene.connect("p", version)
    turn(scene, publisher, *normals(100), say(rank, "alarm", b"first", 1, 1), *normals(3))
    got = subscriber.payloads()
    assert got[0] == b"first"
    assert got[1:] == [b"%d" % number for number in [*range(100), *range(3)]]


def test_and_what_came_before_it_on_other_connections() -> None:
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("#")
    crowd = [scene.connect(f"p{number}") for number in range(20)]
    for number, client in enumerate(crowd):
        client.say(*normals(50, f"t/{number}"))
    crowd[13].say(by_property("urgent", "alarm", b"first", 1, 1))
    scene.turn()
    got = subscriber.payloads()
    assert got[0] == b"first"
    assert len(got) == 1001


def test_acknowledgements_come_in_the_order_of_the_messages() -> None:
    scene = Scene()
    scene.connect("s").subscribe("#", 2)
    publisher = scene.connect("p", acknowledges=False)
    turn(
        scene,
        publisher,
        Publish("t", b"", 1, packet_id=10),
        by_property("urgent", "t", b"", 1, 11),
        Publish("t", b"", 2, packet_id=12),
        by_prefix("critical", "t", b"", 2, 13),
        Publish("t", b"", 1, packet_id=14),
    )
    assert [packet.packet_id for packet in publisher.heard] == [10, 11, 12, 13, 14]  # type: ignore[union-attr]


def test_a_subscription_is_not_overtaken() -> None:
    scene = Scene()
    client = scene.connect("c")
    turn(
        scene,
        client,
        Subscribe(1, [("alarm", SubscriptionOptions(0))]),
        by_property("urgent", "alarm", b"x"),
    )
    assert client.payloads() == [b"x"]


def test_nothing_comes_after_goodbye() -> None:
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("#")
    publisher = scene.connect("p")
    turn(scene, publisher, Disconnect(), by_property("urgent", "alarm", b"x"))
    assert subscriber.payloads() == []


def test_a_duplicate_in_the_same_read_is_one() -> None:
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("#")
    publisher = scene.connect("p", acknowledges=False)
    first = Publish("$critical/t", b"x", 2, packet_id=7)
    again = Publish("$critical/t", b"x", 2, dup=True, packet_id=7)
    turn(scene, publisher, first, again, again)
    assert subscriber.payloads() == [b"x"]
    assert [answer.packet_id for answer in publisher.take(Pubrec)] == [7, 7, 7]
    turn(scene, publisher, Pubrel(7), Publish("$critical/t", b"y", 2, packet_id=7))
    assert subscriber.payloads() == [b"y"]


def test_a_duplicate_after_the_connection_broke_is_one() -> None:
    """What was routed early has come, even if a mistake ended the connection before its turn."""
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("#")
    publisher = scene.connect("p", properties=lasting(), acknowledges=False)
    turn(
        scene,
        publisher,
        Publish("t", b"0", 2, packet_id=1),
        b"\x36\x00",  # a PUBLISH with QoS 3
        Publish("$critical/t", b"x", 2, packet_id=7),
    )
    got = subscriber.payloads()
    back = scene.connect("p", clean_start=False, properties=lasting(), acknowledges=False)
    turn(scene, back, Publish("$critical/t", b"x", 2, dup=True, packet_id=7))
    assert sorted(got + subscriber.payloads()) == [b"0", b"x"]
    assert [answer.packet_id for answer in back.take(Pubrec)] == [7]


def test_the_answer_to_one_routed_early_is_the_true_one() -> None:
    scene = Scene()
    publisher = scene.connect("p")
    turn(scene, publisher, by_property("urgent", "nobody", b"", 1, 1))
    assert [answer.reason for answer in publisher.take(Puback)] == [0x10]


def aliased(topic: str, alias: int, payload: bytes, rank: str = "") -> Packet:
    properties = claimed(rank) if rank else Properties()
    properties.topic_alias = alias
    return Publish(topic, payload, properties=properties)


def test_an_alias_means_what_it_meant_when_it_was_said() -> None:
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("#")
    publisher = scene.connect("p")
    turn(
        scene,
        publisher,
        aliased("a", 1, b"0"),
        aliased("", 1, b"1", "urgent"),
        aliased("b", 1, b"2"),
        aliased("", 1, b"3", "urgent"),
        aliased("c", 2, b"4", "critical"),
        aliased("", 2, b"5", "critical"),
    )
    got = {message.payload: message.topic for message in subscriber.take(Publish)}
    assert got == {b"0": "a", b"1": "a", b"2": "b", b"3": "b", b"4": "c", b"5": "c"}


def test_a_known_alias_does_not_slow_an_urgent_message_down() -> None:
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("#")
    publisher = scene.connect("p")
    turn(scene, publisher, aliased("alarm", 1, b"learnt"))
    turn(scene, publisher, *normals(5), aliased("", 1, b"first", "urgent"))
    turn(scene, publisher, *normals(5), aliased("fire", 2, b"second", "urgent"))
    got = subscriber.payloads()
    assert (got[1], got[7]) == (b"first", b"second")


def test_an_alias_beyond_the_limit_routes_nothing() -> None:
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("#")
    publisher = scene.connect("p")
    turn(scene, publisher, aliased("alarm", 60_000, b"x", "urgent"))
    assert subscriber.payloads() == []
    assert publisher.take(Disconnect)[0].reason == 0x94


def test_a_padded_length_of_mqtt_3_is_read_as_it_stands() -> None:
    """MQTT 3.1.1 does not forbid a remaining length of more bytes than it needs."""
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("#")
    publisher = scene.connect("p", Version.V311)
    inner = emergency(URGENT_TYPE, "phantom", b"!")
    body = b"\x00\x01t" + inner
    padded = b"\x30" + bytes([len(body) | 0x80, 0x80, 0x00]) + body
    turn(scene, publisher, padded)
    assert [(message.topic, message.payload) for message in subscriber.take(Publish)] == [
        ("t", inner)
    ]


def test_two_reads_taken_before_one_is_processed() -> None:
    """A stream that has more to give than it said is read twice in one turn."""
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("#")
    channel = scene.connect("p").channel
    parts: list[Any] = [Publish("t", b"0"), by_property("urgent", "t", b"1"), Publish("t", b"2")]
    publisher = scene.clients[-1]
    for part in parts:
        publisher.say(part)
        data, publisher.outbox = publisher.outbox, b""
        assert channel.take(data, scene.now)
    channel.process(scene.now)
    channel.process(scene.now)
    turn(scene, publisher, Pingreq())
    assert subscriber.payloads() == [b"1", b"0", b"2"]


def test_connect_and_urgent_in_one_read() -> None:
    scene = Scene()
    subscriber = scene.connect("s")
    subscriber.subscribe("#")
    publisher = scene.connect("p")
    publisher.drop()
    client = Client(scene, scene.broker.open(publisher.channel.peer, scene.now), Version.V5)
    scene.clients.append(client)
    turn(scene, client, Connect("p"), Publish("t", b"0"), by_property("urgent", "t", b"1"))
    assert sorted(subscriber.payloads()) == [b"0", b"1"]
