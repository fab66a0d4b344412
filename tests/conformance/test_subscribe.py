"""SUBSCRIBE and UNSUBSCRIBE (MQTT 5 §3.8 to §3.11)."""

from __future__ import annotations

import pytest

from headgate.wire.packets import (
    Properties,
    Publish,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
    Version,
)
from headgate.wire.reasons import Reason

from .client import Client
from .conftest import Dial, Enter


def options(qos: int = 0) -> SubscriptionOptions:
    return SubscriptionOptions(qos)


def test_every_filter_is_answered_in_order(enter: Enter, name: str, version: Version) -> None:
    """[MQTT-3.8.4-1], [MQTT-3.8.4-2], [MQTT-3.8.4-5], [MQTT-3.9.3-1]"""
    client = enter(name, version)
    filters = [(f"{name}/{qos}/{turn}", options(qos)) for turn in range(3) for qos in (2, 0, 1)]
    client.send(Subscribe(0xABCD, filters))
    client.expect(Suback, packet_id=0xABCD, reasons=[2, 0, 1] * 3)


def test_one_bad_filter_spoils_no_other(enter: Enter, name: str, version: Version) -> None:
    """[MQTT-3.9.3-1], [MQTT-3.8.4-4]: 0x8F for what is no filter, in 3.1.1 0x80."""
    client = enter(name, version)
    client.send(
        Subscribe(1, [(f"{name}/a", options(1)), ("a/#/b", options(1)), (f"{name}/b", options(2))])
    )
    bad = Reason.TOPIC_FILTER_INVALID if version is Version.V5 else 0x80
    client.expect(Suback, reasons=[1, bad, 2])
    client.send(Publish(f"{name}/b", b"x"))
    client.expect(Publish, topic=f"{name}/b")


@pytest.mark.parametrize(
    "topic_filter", ["a#", "#/a", "a/#/b", "a+", "+a", "a/b+/c", "a/+b", "a/b#", "##", "++", ""]
)
def test_what_is_no_filter_is_refused(
    enter: Enter, name: str, version: Version, topic_filter: str
) -> None:
    """[MQTT-4.7.1-1], [MQTT-4.7.1-2], [MQTT-4.7.3-1]"""
    client = enter(name, version)
    bad = Reason.TOPIC_FILTER_INVALID if version is Version.V5 else 0x80
    assert client.subscribe(topic_filter) == bad


def test_the_same_filter_replaces_the_subscription(
    enter: Enter, name: str, version: Version
) -> None:
    """[MQTT-3.8.4-3]: one copy at the new QoS, not two."""
    client = enter(name, version)
    assert client.subscribe(name, 2) == 2
    assert client.subscribe(name, 0) == 0
    enter(f"{name}-p", version).publish(name, b"x", 2)
    client.take(0, payload=b"x")
    client.expect_nothing()


def test_replacing_loses_no_message(enter: Enter, name: str) -> None:
    """[MQTT-3.8.4-4]: messages are not lost by replacing a subscription; the window stays open."""
    client = enter(name, properties=Properties(receive_maximum=1))
    client.subscribe(name, 1)
    publisher = enter(f"{name}-p")
    for number in range(5):
        publisher.publish(name, b"%d" % number, 1)
    first = client.expect(Publish, payload=b"0", qos=1)
    client.subscribe(name, 1)
    client.send(b"\x40\x02" + first.packet_id.to_bytes(2, "big"))
    for number in range(1, 5):
        client.take(1, payload=b"%d" % number)
    client.expect_nothing()


def test_overlapping_subscriptions(enter: Enter, name: str, version: Version) -> None:
    """[MQTT-3.3.4-2], [MQTT-3.3.4-3], 3.1.1 [MQTT-3.3.5-1]: the highest QoS, at least once."""
    client = enter(name, version)
    client.subscribe(f"{name}/#", 2)
    client.subscribe(f"{name}/+", 1)
    enter(f"{name}-p", version).publish(f"{name}/a", b"x", 2)
    copies = [client.expect(Publish, payload=b"x")]
    assert len(copies) in (1, 2)
    if copies[0].qos != 2:
        copies.append(client.expect(Publish, payload=b"x"))
    assert max(copy.qos for copy in copies) == 2


def test_overlapping_subscriptions_tell_every_identifier(enter: Enter, name: str) -> None:
    """[MQTT-3.3.4-3], [MQTT-3.3.4-4], [MQTT-3.3.4-5]: in one copy or in one copy each."""
    client = enter(name)
    client.subscribe(f"{name}/#", 1, identifier=1)
    client.subscribe(f"{name}/+", 1, identifier=268_435_455)
    client.subscribe(f"{name}/a", 1, identifier=300)
    client.subscribe(f"{name}/a/#", 1)
    enter(f"{name}-p").publish(f"{name}/a", b"x", 1)
    told: list[int] = []
    while len(told) < 3:
        told += client.take(1, payload=b"x").properties.subscription_identifiers
    assert sorted(told) == [1, 300, 268_435_455]


def test_the_identifier_follows_the_subscription(enter: Enter, name: str) -> None:
    """§3.8.2.1.2, §3.8.4: replacing a subscription replaces or removes its identifier."""
    client = enter(name)
    publisher = enter(f"{name}-p")
    for identifier, expected in ((5, [5]), (6, [6]), (0, [])):
        client.subscribe(name, 1, identifier=identifier)
        publisher.publish(name, b"x", 1)
        assert client.take(1).properties.subscription_identifiers == expected


def test_identifiers_last_as_long_as_the_session(dial: Dial, enter: Enter, name: str) -> None:
    """§4.1: they are part of the session state."""
    lasting = Properties(session_expiry=60)
    first = enter(name, properties=lasting)
    first.subscribe(name, 1, identifier=77)
    first.disconnect()
    enter(f"{name}-p").publish(name, b"x", 1)
    again = dial()
    again.connect(name, clean_start=False, properties=lasting)
    assert again.take(1).properties.subscription_identifiers == [77]


def test_no_local_keeps_ones_own_messages_away(enter: Enter, name: str) -> None:
    """[MQTT-3.8.3-3]"""
    client = enter(name)
    client.subscribe(name, 2, no_local=True)
    for qos in (0, 1, 2):
        client.publish(name, b"mine", qos)
    client.expect_nothing()
    enter(f"{name}-p").publish(name, b"another's")
    client.take(payload=b"another's")


def test_no_local_is_each_subscriptions_own(enter: Enter, name: str) -> None:
    """[MQTT-3.8.3-3]: another subscription of the same client gets the message."""
    client = enter(name)
    client.subscribe(f"{name}/#", no_local=True, identifier=1)
    client.subscribe(f"{name}/+", identifier=2)
    client.send(Publish(f"{name}/a", b"mine"))
    assert client.take(payload=b"mine").properties.subscription_identifiers == [2]
    client.expect_nothing()


def test_no_local_holds_for_retained_messages(enter: Enter, name: str) -> None:
    """[MQTT-3.8.3-3]: the publishing connection had the same client id."""
    client = enter(name)
    client.publish(name, b"mine", retain=True)
    client.subscribe(name, no_local=True)
    client.expect_nothing()


def test_no_local_is_not_for_shared_subscriptions(enter: Enter, name: str) -> None:
    """[MQTT-3.8.3-4]: a protocol error."""
    client = enter(name)
    client.send(Subscribe(1, [(f"$share/g/{name}", SubscriptionOptions(0, no_local=True))]))
    client.expect_dismissed(Reason.PROTOCOL_ERROR)


def test_unsubscribing_stops_the_messages(enter: Enter, name: str, version: Version) -> None:
    """[MQTT-3.10.4-1], [MQTT-3.10.4-2], [MQTT-3.10.4-4]: the exact filter, at once."""
    client = enter(name, version)
    client.subscribe(f"{name}/+", 1)
    client.subscribe(f"{name}/a", 1)
    client.send(Unsubscribe(9, [f"{name}/+"]))
    client.expect(Unsuback, packet_id=9)
    publisher = enter(f"{name}-p", version)
    publisher.publish(f"{name}/b", b"not wanted", 1)
    publisher.publish(f"{name}/a", b"wanted", 1)
    client.take(1, payload=b"wanted")
    client.expect_nothing()


def test_each_unsubscription_is_answered(enter: Enter, name: str) -> None:
    """[MQTT-3.10.4-5], [MQTT-3.10.4-6], [MQTT-3.11.3-1]: in order, 0x11 where there was none."""
    client = enter(name)
    client.subscribe(f"{name}/a")
    client.subscribe(f"{name}/b")
    client.send(Unsubscribe(10, [f"{name}/b", f"{name}/none", f"{name}/a", f"{name}/a"]))
    missing = Reason.NO_SUBSCRIPTION_EXISTED
    client.expect(Unsuback, packet_id=10, reasons=[0, missing, 0, missing])


def test_unsubscribing_from_nothing_is_answered(enter: Enter, name: str) -> None:
    """3.1.1 [MQTT-3.10.4-5]: UNSUBACK even if no filter matched."""
    client = enter(name, Version.V311)
    client.send(Unsubscribe(11, [f"{name}/none"]))
    client.expect(Unsuback, packet_id=11)


def test_filters_are_compared_by_character(enter: Enter, name: str, version: Version) -> None:
    """[MQTT-3.10.4-1]: `a/+` does not end the subscription to `a/b`."""
    client = enter(name, version)
    client.subscribe(f"{name}/b")
    client.send(Unsubscribe(1, [f"{name}/+", f"{name}/B", f"{name}/b/"]))
    client.expect(Unsuback)
    client.send(Publish(f"{name}/b", b"x"))
    client.take(payload=b"x")


def test_what_was_sent_is_completed_after_unsubscribing(
    dial: Dial, enter: Enter, name: str
) -> None:
    """[MQTT-3.10.4-3]: deliveries of QoS 1 and 2 that began are completed, even by repeating."""
    lasting = Properties(session_expiry=60)
    client = enter(name, properties=lasting)
    client.subscribe(name, 2)
    publisher = enter(f"{name}-p")
    publisher.publish(name, b"one", 1)
    publisher.publish(name, b"two", 2)
    one = client.expect(Publish, payload=b"one", qos=1)
    two = client.expect(Publish, payload=b"two", qos=2)
    client.send(Unsubscribe(5, [name]))
    client.expect(Unsuback, reasons=[0])
    client.close()
    again: Client = dial()
    again.connect(name, clean_start=False, properties=lasting)
    again.take(1, payload=b"one", dup=True, packet_id=one.packet_id)
    again.take(2, payload=b"two", dup=True, packet_id=two.packet_id)
    again.expect_nothing()


def test_one_packet_can_hold_many_filters(enter: Enter, name: str, version: Version) -> None:
    """§3.8.3: as many as fit."""
    client = enter(name, version)
    filters = [(f"{name}/{number}", options(number % 3)) for number in range(3000)]
    client.send(Subscribe(1, filters))
    client.expect(Suback, reasons=[number % 3 for number in range(3000)])
    client.send(Unsubscribe(2, [topic_filter for topic_filter, _ in filters]))
    client.expect(Unsuback, packet_id=2)


def test_user_properties_of_requests_are_taken(enter: Enter, name: str) -> None:
    """§3.8.2.1.3, §3.10.2.1.2: their meaning is the application's."""
    client = enter(name)
    said = Properties(user_properties=[("a", "b"), ("a", "b")])
    client.send(Subscribe(1, [(name, options())], said))
    client.expect(Suback, packet_id=1, reasons=[0])
    client.send(Unsubscribe(2, [name], said))
    client.expect(Unsuback, packet_id=2, reasons=[0])
