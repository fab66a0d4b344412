"""Topic names and filters as the broker matches them (MQTT 5 §4.7)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker_process import BrokerProcess

from headgate.wire.packets import Publish, Version
from headgate.wire.reasons import Reason

from .conftest import Enter

MATCHES = [
    ("sport/tennis/player1/#", "sport/tennis/player1"),
    ("sport/tennis/player1/#", "sport/tennis/player1/ranking"),
    ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon"),
    ("sport/#", "sport"),
    ("sport/#", "sport/"),
    ("sport/tennis/+", "sport/tennis/player1"),
    ("sport/+", "sport/"),
    ("sport/+/player1", "sport/tennis/player1"),
    ("+/+", "/finance"),
    ("/+", "/finance"),
    ("+/tennis/#", "sport/tennis/x"),
    ("+/tennis/#", "sport/tennis"),
    ("#", "anything/at all"),
    ("#", "/"),
    ("+/+", "/"),
    ("/", "/"),
    ("a//b", "a//b"),
    ("a/+/b", "a//b"),
    ("+", "a b"),
    ("møre/☃", "møre/☃"),
    ("a/$SYS/#", "a/$SYS/b"),
    ("+/$x", "a/$x"),
]
DIFFERS = [
    ("sport/+", "sport"),
    ("sport/tennis/+", "sport/tennis/player1/ranking"),
    ("+", "/finance"),
    ("ACCOUNTS", "Accounts"),
    ("/finance", "finance"),
    ("a", "a/"),
    ("a/", "a"),
    ("a/b", "a//b"),
    ("sport/tennis/#", "sport"),
    ("+", "a/b"),
    ("é", "e\u0301"),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of its own: `#` sees all that other tests retained."""
    process = BrokerProcess(tmp_path_factory.mktemp("topics"))
    process.start()
    yield process
    process.stop()


@pytest.mark.parametrize(("topic_filter", "topic"), MATCHES)
def test_a_filter_matches(enter: Enter, version: Version, topic_filter: str, topic: str) -> None:
    """[MQTT-4.7.1-1], [MQTT-4.7.1-2], §4.7.1, [MQTT-4.7.3-4]"""
    client = enter(version=version)
    client.subscribe(topic_filter)
    client.send(Publish(topic, b"x"))
    client.take(topic=topic, payload=b"x")


@pytest.mark.parametrize(("topic_filter", "topic"), DIFFERS)
def test_a_filter_does_not_match(
    enter: Enter, version: Version, topic_filter: str, topic: str
) -> None:
    """[MQTT-4.7.3-4]: by character, without normalising, without another reading of a level."""
    client = enter(version=version)
    client.subscribe(topic_filter)
    client.publish(topic, b"x")


@pytest.mark.parametrize("topic_filter", ["#", "+/headgate-test", "+/#"])
def test_wildcards_do_not_match_a_dollar(enter: Enter, version: Version, topic_filter: str) -> None:
    """[MQTT-4.7.2-1]"""
    client = enter(version=version)
    client.subscribe(topic_filter)
    client.publish("$else/headgate-test", b"x")


@pytest.mark.parametrize("topic_filter", ["$else/#", "$else/+", "$else/headgate-test"])
def test_a_dollar_matches_itself(enter: Enter, version: Version, topic_filter: str) -> None:
    """§4.7.2: who names the first level gets it."""
    client = enter(version=version)
    client.subscribe(topic_filter)
    client.send(Publish("$else/headgate-test", b"x"))
    client.take(payload=b"x")


@pytest.mark.parametrize("topic", ["a/+", "a/#", "#", "+", "a+b", "a#"])
def test_a_topic_name_has_no_wildcards(enter: Enter, version: Version, topic: str) -> None:
    """[MQTT-3.3.2-2], [MQTT-4.7.0-1]: 0x90."""
    client = enter(version=version)
    client.send(Publish(topic, b"x", 1, packet_id=1))
    client.expect_dismissed(Reason.TOPIC_NAME_INVALID)


def test_a_topic_name_is_not_empty(enter: Enter, version: Version) -> None:
    """[MQTT-4.7.3-1], §3.3.2.1: without an alias a protocol error."""
    client = enter(version=version)
    client.send(b"\x30\x03\x00\x00\x00" if version is Version.V5 else b"\x30\x02\x00\x00")
    client.expect_dismissed(Reason.PROTOCOL_ERROR)


@pytest.mark.parametrize(
    "name", [b"a\x00b", b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\xaf"], ids=lambda raw: raw.hex()
)
def test_a_topic_name_is_text(enter: Enter, version: Version, name: bytes) -> None:
    """[MQTT-1.5.4-1], [MQTT-1.5.4-2], [MQTT-4.7.3-2]: no U+0000, no surrogates."""
    client = enter(version=version)
    body = len(name).to_bytes(2, "big") + name + (b"\x00" if version is Version.V5 else b"")
    client.send(b"\x30" + bytes([len(body)]) + body)
    client.expect_dismissed(Reason.MALFORMED_PACKET)


def test_a_byte_order_mark_is_part_of_the_name(enter: Enter, version: Version) -> None:
    """[MQTT-1.5.4-3]: U+FEFF is neither skipped nor stripped."""
    client = enter(version=version)
    client.subscribe("bom/\ufeffx")
    client.subscribe("bom/x")
    client.send(Publish("bom/\ufeffx", b""))
    client.take(topic="bom/\ufeffx")
    client.expect_nothing()


def test_the_longest_topic_name_is_taken(enter: Enter, version: Version) -> None:
    """[MQTT-4.7.3-3]: up to 65,535 bytes. Filters have a limit of their own (`filter_size`)."""
    client = enter(version=version)
    topic = "long/" + "x" * 65530
    client.subscribe("long/+")
    client.send(Publish(topic, b"x"))
    client.take(topic=topic)


def test_a_deep_topic_is_taken(enter: Enter, version: Version) -> None:
    """§4.7.3: any number of levels within the length; here within the broker's own limit."""
    client = enter(version=version)
    topic = "/".join("abcdefghij" * 10)
    client.subscribe("/".join(["+"] * 100))
    client.send(Publish(topic, b"x"))
    client.take(topic=topic)
