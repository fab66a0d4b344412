"""CONNECT and CONNACK (MQTT 5 §3.1, §3.2; MQTT 3.1.1 §3.1, §3.2)."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from broker_process import StartBroker

from headgate.wire.codec import encode
from headgate.wire.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Version,
    Will,
)
from headgate.wire.reasons import Reason

from .conftest import Dial, Enter

EVERY_VERSION = pytest.mark.parametrize("version", list(Version), ids=lambda v: v.name)


@EVERY_VERSION
def test_every_version_connects(dial: Dial, name: str, version: Version) -> None:
    """[MQTT-3.2.0-1], [MQTT-3.2.0-2]: CONNACK answers CONNECT, once and before all else."""
    client = dial(version)
    connack = client.connect(name)
    assert connack.session_present is False
    client.expect_nothing()


@EVERY_VERSION
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_version_speaks_to_every_other(
    enter: Enter, name: str, version: Version, qos: int
) -> None:
    """§3.3, 3.1.1 §3.3, 3.1 §3.3: a message is a message."""
    subscribers = [enter(f"{name}-{other.name}", other) for other in Version]
    for subscriber in subscribers:
        subscriber.subscribe(name, 2)
    enter(name, version).publish(name, b"hello", qos)
    for subscriber in subscribers:
        subscriber.take(qos, topic=name, payload=b"hello")


def test_the_first_packet_must_be_connect(dial: Dial, version: Version) -> None:
    """[MQTT-3.1.0-1]"""
    client = dial(version)
    client.send(Pingreq())
    client.expect_closed()


def test_a_publish_before_connect_reaches_nobody(
    dial: Dial, enter: Enter, name: str, version: Version
) -> None:
    """[MQTT-3.1.0-1], [MQTT-3.1.4-6]"""
    watcher = enter(version=version)
    watcher.subscribe(name)
    stranger = dial(version)
    stranger.send(Publish(name, b"unasked"))
    stranger.expect_closed()
    watcher.expect_nothing()


def test_a_second_connect_ends_the_connection(enter: Enter, name: str, version: Version) -> None:
    """[MQTT-3.1.0-2]"""
    client = enter(name, version)
    client.send(Connect(name, version))
    client.expect_dismissed(Reason.PROTOCOL_ERROR)


def test_packets_may_follow_connect_at_once(dial: Dial, name: str, version: Version) -> None:
    """§3.1.4: a client need not wait for CONNACK; the answers come in order."""
    client = dial(version)
    client.send(
        Connect(name, version),
        Subscribe(1, [(name, SubscriptionOptions())]),
        Publish(name, b"early"),
        Pingreq(),
    )
    client.expect(Connack, reason=0)
    client.expect(Suback, packet_id=1)
    client.expect(Publish, payload=b"early")
    client.expect(Pingresp)


def test_an_unknown_protocol_level_is_refused(dial: Dial) -> None:
    """[MQTT-3.1.2-2]: 0x84, in 3.1.1 the return code 1, in a form that any client can read."""
    client = dial(Version.V311)
    client.send(b"\x10\x10\x00\x04MQTT\x07\x02\x00\x00\x00\x04late")
    client.expect(Connack, session_present=False, reason=1)
    client.expect_closed()


def test_another_protocol_is_refused(dial: Dial) -> None:
    """[MQTT-3.1.2-1]"""
    client = dial(Version.V311)
    client.send(b"\x10\x10\x00\x04HTTP\x04\x02\x00\x00\x00\x04late")
    client.expect(Connack, reason=1)
    client.expect_closed()


def test_the_reserved_connect_flag_must_be_zero(dial: Dial, version: Version) -> None:
    """[MQTT-3.1.2-3]"""
    client = dial(version)
    packet = bytearray(encode(Connect("reserved", version), version))
    packet[9] |= 0x01
    client.send(bytes(packet))
    client.expect_refused()


@pytest.mark.parametrize(
    "flags", [0x02 | 0x18 | 0x04, 0x02 | 0x08, 0x02 | 0x20], ids=["QoS 3", "QoS", "retain"]
)
def test_will_flags_must_agree(dial: Dial, version: Version, flags: int) -> None:
    """[MQTT-3.1.2-11], [MQTT-3.1.2-12], [MQTT-3.1.2-13]: QoS 3, or QoS or retain without a will."""
    client = dial(version)
    will = Will("w", b"w") if flags & 0x04 else None
    packet = bytearray(encode(Connect("will", version, will=will), version))
    packet[9] = flags
    client.send(bytes(packet))
    client.expect_refused()


def test_a_will_topic_with_a_wildcard_is_refused(dial: Dial, name: str) -> None:
    """[MQTT-3.3.2-2] holds for the PUBLISH that a will becomes: 0x90."""
    client = dial()
    client.send(Connect(name, will=Will("a/#", b"")))
    client.expect(Connack, reason=Reason.TOPIC_NAME_INVALID, session_present=False)
    client.expect_closed()


def test_a_password_without_a_user_name_is_for_version_5(dial: Dial, name: str) -> None:
    """3.1.1 [MQTT-3.1.2-22]; MQTT 5 §3.1.2.9 allows it."""
    dial().connect(name, password=b"token")
    client = dial(Version.V311)
    packet = bytearray(
        encode(Connect(name, Version.V311, username="u", password=b"p"), Version.V311)
    )
    packet[9] &= ~0x80
    client.send(bytes(packet))
    client.expect_closed()


def test_a_client_without_a_name_is_given_one(dial: Dial, enter: Enter) -> None:
    """[MQTT-3.1.3-6], [MQTT-3.1.3-7], [MQTT-3.2.2-16]: unique, and told in CONNACK."""
    names = {dial().connect("").properties.assigned_client_id for _ in range(3)}
    assert len(names) == 3
    assert all(names)


def test_an_assigned_name_leads_back_to_its_session(dial: Dial, name: str) -> None:
    """[MQTT-3.1.3-6]: the client goes on to use it."""
    first = dial()
    connack = first.connect("", properties=Properties(session_expiry=60))
    assigned = connack.properties.assigned_client_id
    assert assigned is not None
    first.subscribe(name)
    first.disconnect()
    again = dial()
    assert again.connect(assigned, clean_start=False).session_present is True


def test_a_name_of_its_own_is_not_assigned(dial: Dial, name: str) -> None:
    """§3.2.2.3.7"""
    assert dial().connect(name).properties.assigned_client_id is None


def test_without_a_name_version_3_needs_a_clean_session(dial: Dial) -> None:
    """3.1.1 [MQTT-3.1.3-7], [MQTT-3.1.3-8]: return code 2."""
    client = dial(Version.V311)
    client.send(Connect("", Version.V311, clean_start=False))
    client.expect(Connack, session_present=False, reason=2)
    client.expect_closed()
    dial(Version.V311).connect("", clean_start=True)


def test_long_and_foreign_names_are_taken(dial: Dial, version: Version) -> None:
    """[MQTT-3.1.3-4], [MQTT-3.1.3-5]: any UTF-8, and more than 23 characters."""
    dial(version).connect("smørrebrød/+#$ " + "x" * 1000)


def test_connack_says_what_the_broker_can(dial: Dial, name: str) -> None:
    """§3.2.2.3: what is absent is available, so nothing may be told unavailable."""
    told = dial().connect(name).properties
    assert told.maximum_qos is None
    assert told.retain_available in (None, True)
    assert told.wildcard_subscription_available in (None, True)
    assert told.subscription_identifier_available in (None, True)
    assert told.shared_subscription_available in (None, True)
    assert told.receive_maximum != 0
    assert told.server_keep_alive is None


def test_response_information_comes_when_asked_for(dial: Dial, name: str) -> None:
    """[MQTT-3.1.2-28]: never unasked; §3.2.2.3.15 otherwise."""
    for wanted in (None, False):
        properties = Properties(request_response_information=wanted)
        told = dial().connect(f"{name}-{wanted}", properties=properties).properties
        assert told.response_information is None
    asked = Properties(request_response_information=True)
    told = dial().connect(f"{name}-asked", properties=asked).properties
    assert told.response_information is not None
    assert name in told.response_information


@pytest.mark.parametrize("client_id", ["#", "a/+", "100%", "%23", "plain"])
def test_response_information_is_a_topic_whatever_the_client_is_called(
    dial: Dial, enter: Enter, client_id: str
) -> None:
    client = dial()
    asked = Properties(request_response_information=True)
    topic = client.connect(client_id, properties=asked).properties.response_information
    assert topic == "response/" + quote(client_id, safe="")
    client.subscribe(topic)
    enter().publish(topic, b"an answer")
    assert client.take().topic == topic


def test_without_problem_information_only_endings_have_reason_strings(
    enter: Enter, name: str
) -> None:
    """[MQTT-3.1.2-29]"""
    client = enter(name, properties=Properties(request_problem_information=False))
    client.send(Subscribe(1, [("a/#/b", SubscriptionOptions())]))
    answer = client.expect(Suback, reasons=[Reason.TOPIC_FILTER_INVALID])
    assert answer.properties.reason_string is None
    assert answer.properties.user_properties == []


def test_a_connection_that_says_nothing_is_closed(start_broker: StartBroker, dial: Dial) -> None:
    """§3.1.4: CONNECT within a reasonable time."""
    patience = start_broker("limits: {connect_timeout: 500ms}")
    client = dial(port=patience.port)
    client.expect_closed(timeout=5)


def test_disconnect_is_answered_by_closing(enter: Enter, name: str, version: Version) -> None:
    """[MQTT-3.14.4-1], [MQTT-3.14.4-2]: nothing more is sent, nothing more is heard."""
    client = enter(name, version)
    client.subscribe(name)
    client.send(Disconnect(), Publish(name, b"too late"))
    client.expect_closed()
