"""Retained messages (MQTT 5 §3.3.1.3, §3.8.3.1)."""

from __future__ import annotations

import time

import pytest

from headgate.wire.packets import (
    Properties,
    Publish,
    Subscribe,
    SubscriptionOptions,
    Version,
)
from headgate.wire.reasons import Reason

from .client import Client
from .conftest import Enter


@pytest.fixture
def publisher(enter: Enter, name: str, version: Version) -> Client:
    return enter(f"{name}-publisher", version)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_new_subscription_gets_the_last_retained_message(
    enter: Enter, publisher: Client, name: str, qos: int
) -> None:
    """[MQTT-3.3.1-5], [MQTT-3.3.1-8], [MQTT-3.3.1-9]: replaced, kept with its QoS, marked."""
    publisher.publish(name, b"old", 1, retain=True)
    publisher.publish(name, b"new", qos, retain=True)
    client = enter(name, publisher.version)
    client.subscribe(name, 2)
    client.take(qos, topic=name, payload=b"new", retain=True)
    client.expect_nothing()


def test_an_existing_subscription_gets_it_as_any_message(
    enter: Enter, publisher: Client, name: str
) -> None:
    """[MQTT-3.3.1-12], 3.1.1 [MQTT-3.3.1-9]: RETAIN is 0, whatever the publisher said."""
    client = enter(name, publisher.version)
    client.subscribe(name)
    publisher.publish(name, b"x", retain=True)
    client.take(payload=b"x", retain=False)
    client.expect_nothing()


def test_an_unretained_message_replaces_nothing(enter: Enter, publisher: Client, name: str) -> None:
    """[MQTT-3.3.1-8], 3.1.1 [MQTT-3.3.1-12]"""
    publisher.publish(name, b"kept", retain=True)
    publisher.publish(name, b"fleeting", retain=False)
    client = enter(name, publisher.version)
    client.subscribe(name)
    client.take(payload=b"kept", retain=True)
    client.expect_nothing()


def test_an_empty_message_removes_it(enter: Enter, publisher: Client, name: str) -> None:
    """[MQTT-3.3.1-6], [MQTT-3.3.1-7]: passed on, removes, and is not kept itself."""
    watcher = enter(f"{name}-watcher", publisher.version)
    watcher.subscribe(name)
    publisher.publish(name, b"kept", retain=True)
    publisher.publish(name, b"", retain=True)
    watcher.take(payload=b"kept", retain=False)
    watcher.take(payload=b"", retain=False)
    client = enter(name, publisher.version)
    client.subscribe(name)
    client.expect_nothing()


def test_wildcards_find_retained_messages(enter: Enter, publisher: Client, name: str) -> None:
    """[MQTT-3.3.1-9]: all that match, once each."""
    for topic in ("a", "a/b", "a/c", "b/c"):
        publisher.publish(f"{name}/{topic}", topic.encode(), 1, retain=True)
    client = enter(name, publisher.version)
    client.subscribe(f"{name}/a/#", 1)
    assert {client.take(1, retain=True).payload for _ in range(3)} == {b"a", b"a/b", b"a/c"}
    client.subscribe(f"{name}/+/c", 0)
    assert {client.take(retain=True).payload for _ in range(2)} == {b"a/c", b"b/c"}
    client.subscribe(f"{name}/+", 0)
    assert client.take(retain=True).payload == b"a"
    client.expect_nothing()


def test_wildcards_do_not_find_retained_dollar_topics(
    enter: Enter, publisher: Client, name: str
) -> None:
    """[MQTT-4.7.2-1]"""
    publisher.publish(f"$else/{name}", b"hidden", retain=True)
    client = enter(name, publisher.version)
    client.subscribe(f"+/{name}")
    client.expect_nothing()
    client.subscribe(f"$else/{name}")
    client.take(payload=b"hidden", retain=True)


def test_subscribing_again_sends_it_again(enter: Enter, publisher: Client, name: str) -> None:
    """[MQTT-3.3.1-9], 3.1.1 [MQTT-3.8.4-3]: with retain handling 0, the only one of 3.1.1."""
    publisher.publish(name, b"kept", retain=True)
    client = enter(name, publisher.version)
    for _ in range(2):
        client.subscribe(name)
        client.take(payload=b"kept", retain=True)


def test_retain_handling_1_sends_it_to_new_subscriptions_only(enter: Enter, name: str) -> None:
    """[MQTT-3.3.1-10]"""
    enter(f"{name}-p").publish(name, b"kept", retain=True)
    client = enter(name)
    client.subscribe(name, retain_handling=1)
    client.take(payload=b"kept", retain=True)
    client.subscribe(name, retain_handling=1)
    client.expect_nothing()
    client.subscribe(name, retain_handling=0)
    client.take(payload=b"kept", retain=True)


def test_retain_handling_2_never_sends_it(enter: Enter, name: str) -> None:
    """[MQTT-3.3.1-11]"""
    publisher = enter(f"{name}-p")
    publisher.publish(name, b"kept", retain=True)
    client = enter(name)
    client.subscribe(name, retain_handling=2)
    client.expect_nothing()
    publisher.publish(name, b"live", retain=True)
    client.take(payload=b"live", retain=False)


def test_retain_as_published(enter: Enter, name: str) -> None:
    """[MQTT-3.3.1-12], [MQTT-3.3.1-13]: the flag of the publisher, where asked for."""
    faithful, ordinary, publisher = enter(f"{name}-f"), enter(f"{name}-o"), enter(f"{name}-p")
    faithful.subscribe(name, 1, retain_as_published=True)
    ordinary.subscribe(name, 1, retain_as_published=False)
    for retain in (True, False):
        publisher.publish(name, b"x", 1, retain=retain)
        faithful.take(1, retain=retain)
        ordinary.take(1, retain=False)


def test_retain_as_published_lasts_while_a_message_waits(enter: Enter, name: str) -> None:
    """[MQTT-3.3.1-13]: also for a message that waited for the client."""
    lasting = Properties(session_expiry=60)
    first = enter(name, properties=lasting)
    first.subscribe(name, 1, retain_as_published=True)
    first.disconnect()
    enter(f"{name}-p").publish(name, b"x", 1, retain=True)
    again = enter(name, clean_start=False, properties=lasting)
    again.take(1, payload=b"x", retain=True)


def test_a_retained_message_is_downgraded(enter: Enter, publisher: Client, name: str) -> None:
    """[MQTT-3.8.4-8]: to what the subscription was granted."""
    publisher.publish(name, b"kept", 2, retain=True)
    client = enter(name, publisher.version)
    client.subscribe(name, 1)
    client.take(1, payload=b"kept", retain=True)
    client.subscribe(name, 0)
    client.take(0, payload=b"kept", retain=True)


def test_each_filter_of_a_packet_gets_its_own(enter: Enter, publisher: Client, name: str) -> None:
    """[MQTT-3.8.4-5]: as if each had come in a packet of its own."""
    publisher.publish(f"{name}/a", b"kept", retain=True)
    client = enter(name, publisher.version)
    wanted = [(f"{name}/a", SubscriptionOptions()), (f"{name}/+", SubscriptionOptions())]
    client.send(Subscribe(1, wanted))
    kinds = [client.receive() for _ in range(3)]
    copies = [packet for packet in kinds if isinstance(packet, Publish)]
    assert [(copy.payload, copy.retain) for copy in copies] == [(b"kept", True)] * 2


def test_a_shared_subscription_gets_no_retained_messages(enter: Enter, name: str) -> None:
    """§4.8.2: they are not sent when it is made."""
    enter(f"{name}-p").publish(name, b"kept", retain=True)
    client = enter(name)
    client.subscribe(f"$share/group/{name}")
    client.expect_nothing()


def test_a_retained_message_expires(enter: Enter, name: str) -> None:
    """[MQTT-3.3.2-5], §3.3.1.3: it is retained no longer than its expiry interval."""
    publisher = enter(f"{name}-p")
    publisher.publish(name, b"old", 1, retain=True, properties=Properties(message_expiry=1))
    client = enter(name)
    client.subscribe(name)
    client.take(payload=b"old", retain=True)
    time.sleep(1.2)
    client.subscribe(name)
    client.expect_nothing()


def test_a_retained_message_keeps_its_properties(enter: Enter, name: str) -> None:
    """§3.3.2.3: it is forwarded as it was published."""
    said = Properties(
        payload_format=1,
        content_type="text/plain",
        response_topic="r",
        correlation_data=b"c",
        user_properties=[("k", "v"), ("k", "w")],
    )
    enter(f"{name}-p").publish(name, b"kept", 1, retain=True, properties=said)
    client = enter(name)
    client.subscribe(name, identifier=9)
    told = client.take(payload=b"kept", retain=True).properties
    assert told.subscription_identifiers == [9]  # [MQTT-3.3.4-3]
    told.subscription_identifiers = []
    assert told == said


def test_retaining_is_acknowledged_without_subscribers(
    enter: Enter, publisher: Client, name: str
) -> None:
    """§3.4.2.1: 0x10 says that nobody listens, not that the message was not kept."""
    reason = publisher.publish(name, b"kept", 1, retain=True)
    assert reason in (Reason.SUCCESS, Reason.NO_MATCHING_SUBSCRIBERS)
    client = enter(name, publisher.version)
    client.subscribe(name)
    client.take(payload=b"kept", retain=True)


def test_retained_messages_do_not_outlive_their_removal_across_versions(
    enter: Enter, name: str
) -> None:
    """§3.3.1.3: one store for every version."""
    old, new = enter(f"{name}-old", Version.V311), enter(f"{name}-new", Version.V5)
    old.publish(name, b"kept", retain=True)
    new.subscribe(name)
    new.take(payload=b"kept", retain=True)
    enter(f"{name}-remover", Version.V5).publish(name, b"", retain=True)
    new.take(payload=b"")
    old.subscribe(name)
    old.expect_nothing()
