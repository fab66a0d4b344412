"""What travels with a message: properties and lifetime (MQTT 5 §3.3.2.3)."""

from __future__ import annotations

import time

import pytest

from headgate.wire.packets import Properties, Puback, Publish, Version
from headgate.wire.reasons import Reason

from .conftest import Dial, Enter


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_properties_are_forwarded_unchanged(enter: Enter, name: str, qos: int) -> None:
    """[MQTT-3.3.2-4], [MQTT-3.3.2-15], [MQTT-3.3.2-16], [MQTT-3.3.2-17], [MQTT-3.3.2-20]"""
    said = Properties(
        payload_format=1,
        content_type="application/json; charset=utf-8",
        response_topic="answers/for/me",
        correlation_data=bytes(range(256)),
        user_properties=[("a", "1"), ("", ""), ("a", "2"), ("ü", "☃")],
    )
    client = enter(name)
    client.subscribe(name, 2)
    enter(f"{name}-p").publish(name, b"{}", qos, properties=said)
    assert client.take(qos, payload=b"{}").properties == said


def test_user_properties_keep_their_order(enter: Enter, name: str) -> None:
    """[MQTT-3.3.2-18]: also around those that the broker takes out."""
    client = enter(name)
    client.subscribe(name)
    body = len(name).to_bytes(2, "big") + name.encode()
    pair = b"\x26\x00\x01%c\x00\x01%c"
    properties = (
        pair % (b"z", b"1")
        + b"\x02\x00\x00\x00\x64"  # message expiry
        + pair % (b"a", b"2")
        + b"\x23\x00\x01"  # topic alias
        + pair % (b"z", b"3")
        + b"\x01\x00"  # payload format
        + pair % (b"a", b"4")
    )
    body += bytes([len(properties)]) + properties + b"payload"
    enter(f"{name}-p").send(b"\x30" + bytes([len(body)]) + body)
    told = client.take(payload=b"payload").properties
    assert told.user_properties == [("z", "1"), ("a", "2"), ("z", "3"), ("a", "4")]
    assert told.message_expiry in (99, 100)
    assert told.topic_alias is None
    assert told.payload_format == 0


def test_absent_properties_stay_absent(enter: Enter, name: str) -> None:
    """§3.3.2.3: the broker adds none but those of the subscription."""
    client = enter(name)
    client.subscribe(name, 1)
    enter(f"{name}-p").publish(name, b"x", 1)
    assert client.take(1).properties == Properties()


def test_version_3_subscribers_get_the_message_without_properties(enter: Enter, name: str) -> None:
    """§3.3.2.3: properties are for clients that know them."""
    old, new = enter(f"{name}-old", Version.V311), enter(f"{name}-new")
    old.subscribe(name, 1)
    new.subscribe(name, 1)
    said = Properties(user_properties=[("k", "v")], message_expiry=60)
    enter(f"{name}-p").publish(name, b"x", 1, properties=said)
    old.take(1, payload=b"x")
    new.take(1, payload=b"x")
    enter(f"{name}-p3", Version.V311).publish(name, b"y", 1)
    old.take(1, payload=b"y")
    assert new.take(1, payload=b"y").properties == Properties()


def test_request_and_response(enter: Enter, name: str) -> None:
    """§4.10: the requester's topic and correlation data come back with the answer."""
    requester, responder = enter(f"{name}-q"), enter(f"{name}-r")
    requester.subscribe(f"{name}/answers", 1)
    responder.subscribe(f"{name}/questions", 1)
    asked = Properties(response_topic=f"{name}/answers", correlation_data=b"\x07")
    requester.publish(f"{name}/questions", b"?", 1, properties=asked)
    request = responder.take(1, payload=b"?").properties
    assert request.response_topic is not None
    answer = Properties(correlation_data=request.correlation_data)
    responder.publish(request.response_topic, b"!", 1, properties=answer)
    assert requester.take(1, payload=b"!").properties.correlation_data == b"\x07"


def test_a_response_topic_has_no_wildcards_and_is_not_empty(enter: Enter, name: str) -> None:
    """[MQTT-3.3.2-14], [MQTT-4.7.3-1]"""
    for topic in (b"a/#", b"+", b""):
        client = enter(name)
        properties = b"\x08" + len(topic).to_bytes(2, "big") + topic
        body = b"\x00\x01t" + bytes([len(properties)]) + properties
        client.send(b"\x30" + bytes([len(body)]) + body)
        client.expect_dismissed(Reason.PROTOCOL_ERROR)


def test_a_client_may_not_send_a_subscription_identifier(enter: Enter, name: str) -> None:
    """[MQTT-3.3.4-6]"""
    client = enter(name)
    client.send(Publish(name, b"", properties=Properties(subscription_identifiers=[1])))
    client.expect_dismissed(Reason.PROTOCOL_ERROR)


@pytest.mark.parametrize("seconds", [1, 0x7FFF_FFFF, 0x8000_0001, 0xFFFF_FFFF])
def test_the_message_expiry_is_forwarded(enter: Enter, name: str, seconds: int) -> None:
    """[MQTT-3.3.2-6]: the received value minus the time that the message waited, here none."""
    client = enter(name)
    client.subscribe(name)
    enter(f"{name}-p").publish(name, b"x", properties=Properties(message_expiry=seconds))
    left = client.take().properties.message_expiry
    assert left is not None
    assert seconds - 1 <= left <= seconds


def test_the_message_expiry_is_reduced_by_waiting(dial: Dial, enter: Enter, name: str) -> None:
    """[MQTT-3.3.2-6]"""
    lasting = Properties(session_expiry=60)
    client = enter(name, properties=lasting)
    client.subscribe(name, 1)
    client.disconnect()
    enter(f"{name}-p").publish(name, b"x", 1, properties=Properties(message_expiry=10))
    time.sleep(2)
    again = dial()
    again.connect(name, clean_start=False, properties=lasting)
    assert again.take(1).properties.message_expiry in (7, 8)


def test_an_expired_message_is_not_delivered(dial: Dial, enter: Enter, name: str) -> None:
    """[MQTT-3.3.2-5]: what could not be sent in time is deleted; the rest keeps its order."""
    lasting = Properties(session_expiry=60)
    client = enter(name, properties=lasting)
    client.subscribe(name, 2)
    client.disconnect()
    publisher = enter(f"{name}-p")
    publisher.publish(name, b"short", 1, properties=Properties(message_expiry=1))
    publisher.publish(name, b"long", 1, properties=Properties(message_expiry=100))
    publisher.publish(name, b"short", 2, properties=Properties(message_expiry=1))
    publisher.publish(name, b"for ever", 2)
    time.sleep(1.3)
    again = dial()
    again.connect(name, clean_start=False, properties=lasting)
    again.take(1, payload=b"long")
    again.take(2, payload=b"for ever")
    again.expect_nothing()


def test_a_message_expires_behind_a_full_window(enter: Enter, name: str) -> None:
    """[MQTT-3.3.2-5]: connected or not."""
    client = enter(name, properties=Properties(receive_maximum=1))
    client.subscribe(name, 1)
    publisher = enter(f"{name}-p")
    publisher.publish(name, b"first", 1, properties=Properties(message_expiry=1))
    publisher.publish(name, b"too late", 1, properties=Properties(message_expiry=1))
    publisher.publish(name, b"in time", 1)
    message = client.expect(Publish, payload=b"first")
    time.sleep(1.3)
    client.send(Puback(message.packet_id))  # its delivery began, so that it may be completed
    client.take(1, payload=b"in time")
    client.expect_nothing()


def test_a_message_that_was_sent_is_completed_though_it_expired(
    dial: Dial, enter: Enter, name: str
) -> None:
    """[MQTT-3.3.2-5], [MQTT-4.4.0-1]: onward delivery had started."""
    lasting = Properties(session_expiry=60)
    client = enter(name, properties=lasting)
    client.subscribe(name, 1)
    said = Properties(message_expiry=1)
    enter(f"{name}-p").publish(name, b"x", 1, properties=said)
    message = client.expect(Publish, payload=b"x", qos=1)
    client.close()
    time.sleep(1.3)
    again = dial()
    again.connect(name, clean_start=False, properties=lasting)
    again.take(1, payload=b"x", dup=True, packet_id=message.packet_id)
