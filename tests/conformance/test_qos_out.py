"""What the broker delivers: QoS, identifiers, redelivery, exactly once (MQTT 5 §4.3, §4.4)."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.wire.packets import (
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Version,
)
from headgate.wire.reasons import Reason

from .client import Client
from .conftest import Dial, Enter


def resume(dial: Dial, client_id: str, version: Version, **properties: Any) -> Client:
    """Connect to the session that lasts, or begin one."""
    client = dial(version)
    lasting = Properties(session_expiry=60, **properties) if version is Version.V5 else Properties()
    client.connect(client_id, clean_start=False, properties=lasting)
    return client


@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
def test_the_lower_qos_is_delivered(
    enter: Enter, name: str, version: Version, published: int, granted: int
) -> None:
    """[MQTT-3.8.4-8], 3.1.1 [MQTT-3.8.4-6]: the smaller of published and granted."""
    subscriber = enter(f"{name}-s", version)
    assert subscriber.subscribe(name, granted) == granted
    enter(name, version).publish(name, b"x", published)
    subscriber.take(min(published, granted), payload=b"x", dup=False)


@pytest.mark.parametrize("qos", [1, 2])
def test_identifiers_in_flight_differ(enter: Enter, name: str, version: Version, qos: int) -> None:
    """[MQTT-2.2.1-4], [MQTT-4.3.2-1], [MQTT-4.3.3-1]: not 0, and none twice."""
    subscriber = enter(f"{name}-s", version)
    subscriber.subscribe(name, qos)
    publisher = enter(name, version)
    for _ in range(10):
        publisher.publish(name, b"x", qos)
    identifiers = [subscriber.expect(Publish, qos=qos).packet_id for _ in range(10)]
    assert 0 not in identifiers
    assert len(set(identifiers)) == 10


def test_qos_1_comes_again_until_acknowledged(
    dial: Dial, enter: Enter, name: str, version: Version
) -> None:
    """[MQTT-4.4.0-1], [MQTT-3.3.1-1]: after a reconnection, with DUP and the same identifier."""
    first = resume(dial, f"{name}-s", version)
    first.subscribe(name, 1)
    enter(name, version).publish(name, b"again", 1)
    message = first.expect(Publish, payload=b"again", qos=1, dup=False)
    for _ in range(2):
        first.close()
        first = resume(dial, f"{name}-s", version)
        first.expect(Publish, payload=b"again", qos=1, dup=True, packet_id=message.packet_id)
    first.send(Puback(message.packet_id))
    first.expect_nothing()
    first.close()
    resume(dial, f"{name}-s", version).expect_nothing()


def test_nothing_is_repeated_while_connected(enter: Enter, name: str, version: Version) -> None:
    """[MQTT-4.4.0-1]: a reconnection is the only time to send again."""
    subscriber = enter(f"{name}-s", version)
    subscriber.subscribe(name, 1)
    enter(name, version).publish(name, b"once", 1)
    subscriber.expect(Publish, payload=b"once")
    subscriber.expect_silence(1.2)


def test_qos_2_comes_again_until_received(
    dial: Dial, enter: Enter, name: str, version: Version
) -> None:
    """[MQTT-4.4.0-1], [MQTT-4.3.3-2]: PUBLISH with DUP until PUBREC, then PUBREL until PUBCOMP."""
    client = resume(dial, f"{name}-s", version)
    client.subscribe(name, 2)
    enter(name, version).publish(name, b"once", 2)
    message = client.expect(Publish, payload=b"once", qos=2, dup=False)
    client.close()

    client = resume(dial, f"{name}-s", version)
    client.expect(Publish, payload=b"once", qos=2, dup=True, packet_id=message.packet_id)
    client.send(Pubrec(message.packet_id))
    client.expect(Pubrel, packet_id=message.packet_id)
    client.close()

    client = resume(dial, f"{name}-s", version)
    client.expect(Pubrel, packet_id=message.packet_id)  # [MQTT-4.3.3-6]: never PUBLISH again
    client.send(Pubcomp(message.packet_id))
    client.expect_nothing()
    client.close()
    resume(dial, f"{name}-s", version).expect_nothing()


def test_a_repeated_receipt_is_answered_again(enter: Enter, name: str, version: Version) -> None:
    """[MQTT-4.3.3-4]: PUBREL answers PUBREC, however often it comes."""
    subscriber = enter(f"{name}-s", version)
    subscriber.subscribe(name, 2)
    enter(name, version).publish(name, b"x", 2)
    message = subscriber.expect(Publish, qos=2)
    for _ in range(2):
        subscriber.send(Pubrec(message.packet_id))
        subscriber.expect(Pubrel, packet_id=message.packet_id, reason=0)
    subscriber.send(Pubcomp(message.packet_id))
    subscriber.expect_nothing()


def test_redelivery_keeps_the_order(dial: Dial, enter: Enter, name: str, version: Version) -> None:
    """[MQTT-4.6.0-1], [MQTT-4.6.0-6]: what was in flight first, then what waited."""
    client = resume(dial, f"{name}-s", version)
    client.subscribe(name, 1)
    publisher = enter(name, version)
    for number in range(5):
        publisher.publish(name, b"%d" % number, 1)
    sent = [client.expect(Publish, payload=b"%d" % number, qos=1) for number in range(5)]
    client.send(Puback(sent[1].packet_id))
    client.expect_nothing()
    client.close()
    for number in range(5, 8):
        publisher.publish(name, b"%d" % number, 1)

    client = resume(dial, f"{name}-s", version)
    for number in (0, 2, 3, 4):
        identifier = sent[number].packet_id
        client.take(1, payload=b"%d" % number, dup=True, packet_id=identifier)
    for number in (5, 6, 7):
        client.take(1, payload=b"%d" % number, dup=False)
    client.expect_nothing()


def test_acknowledgements_may_come_in_any_order(enter: Enter, name: str, version: Version) -> None:
    """§4.3: each exchange stands alone."""
    subscriber = enter(f"{name}-s", version)
    subscriber.subscribe(name, 2)
    publisher = enter(name, version)
    for number in range(4):
        publisher.publish(name, b"%d" % number, 1 + number % 2)
    sent = [subscriber.receive() for _ in range(4)]
    for message in reversed(sent):
        assert isinstance(message, Publish)
        if message.qos == 1:
            subscriber.send(Puback(message.packet_id))
        else:
            subscriber.send(Pubrec(message.packet_id))
            subscriber.expect(Pubrel, packet_id=message.packet_id)
            subscriber.send(Pubcomp(message.packet_id))
    subscriber.expect_nothing()


@pytest.mark.parametrize("reason", [Reason.UNSPECIFIED_ERROR, Reason.QUOTA_EXCEEDED])
def test_a_receipt_with_an_error_ends_the_exchange(
    dial: Dial, enter: Enter, name: str, reason: Reason
) -> None:
    """[MQTT-4.3.3-3], [MQTT-4.3.3-4]: no PUBREL, no repetition, and the window opens."""
    subscriber = resume(dial, f"{name}-s", Version.V5, receive_maximum=1)
    subscriber.subscribe(name, 2)
    publisher = enter(name)
    publisher.publish(name, b"refused", 2)
    publisher.publish(name, b"next", 2)
    message = subscriber.expect(Publish, payload=b"refused", qos=2)
    subscriber.send(Pubrec(message.packet_id, reason))
    subscriber.take(2, payload=b"next")
    subscriber.expect_nothing()
    subscriber.close()
    resume(dial, f"{name}-s", Version.V5).expect_nothing()


def test_an_acknowledgement_with_an_error_ends_the_exchange(
    dial: Dial, enter: Enter, name: str
) -> None:
    """§3.4.2.1, §4.3.2: PUBACK with an error is an acknowledgement all the same."""
    subscriber = resume(dial, f"{name}-s", Version.V5, receive_maximum=1)
    subscriber.subscribe(name, 1)
    publisher = enter(name)
    publisher.publish(name, b"refused", 1)
    publisher.publish(name, b"next", 1)
    message = subscriber.expect(Publish, payload=b"refused", qos=1)
    subscriber.send(Puback(message.packet_id, Reason.IMPLEMENTATION_SPECIFIC_ERROR))
    subscriber.take(1, payload=b"next")
    subscriber.expect_nothing()


def test_a_release_not_found_ends_the_exchange(dial: Dial, enter: Enter, name: str) -> None:
    """§3.7.2.1: PUBCOMP with 0x92 during recovery is no error."""
    subscriber = resume(dial, f"{name}-s", Version.V5)
    subscriber.subscribe(name, 2)
    enter(name).publish(name, b"x", 2)
    message = subscriber.expect(Publish, qos=2)
    subscriber.send(Pubrec(message.packet_id))
    subscriber.expect(Pubrel, packet_id=message.packet_id)
    subscriber.send(Pubcomp(message.packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND))
    subscriber.expect_nothing()
    subscriber.close()
    resume(dial, f"{name}-s", Version.V5).expect_nothing()


def test_acknowledgements_may_be_talkative(enter: Enter, name: str) -> None:
    """§3.4.2, §3.5.2, §3.6.2, §3.7.2: reason and properties may be left out or be there."""
    said = Properties(reason_string="thanks", user_properties=[("k", "v")])
    subscriber = enter(f"{name}-s", properties=Properties(receive_maximum=1))
    subscriber.subscribe(name, 2)
    publisher = enter(name)
    for number in range(3):
        publisher.publish(name, b"%d" % number, 1)
    publisher.publish(name, b"two", 2)
    for long_form in (b"\x00", b"\x00\x00"):
        message = subscriber.expect(Publish, qos=1)
        body = message.packet_id.to_bytes(2, "big") + long_form
        subscriber.send(b"\x40" + bytes([len(body)]) + body)
    subscriber.send(Puback(subscriber.expect(Publish, qos=1).packet_id, 0, said))
    message = subscriber.expect(Publish, payload=b"two", qos=2)
    subscriber.send(Pubrec(message.packet_id, Reason.NO_MATCHING_SUBSCRIBERS, said))
    subscriber.expect(Pubrel, packet_id=message.packet_id, reason=0)
    subscriber.send(Pubcomp(message.packet_id, 0, said))
    subscriber.expect_nothing()
    publisher.send(Publish(name, b"three", 2, packet_id=90))
    publisher.expect(Pubrec, packet_id=90)
    publisher.send(Pubrel(90, 0, said))
    publisher.expect(Pubcomp, packet_id=90, reason=0)


def test_the_wrong_acknowledgement_completes_nothing(
    dial: Dial, enter: Enter, name: str, version: Version
) -> None:
    """§4.3: QoS 2 is not completed by PUBACK, nor QoS 1 by PUBCOMP."""
    subscriber = resume(dial, f"{name}-s", version)
    subscriber.subscribe(name, 2)
    publisher = enter(name, version)
    publisher.publish(name, b"one", 1)
    publisher.publish(name, b"two", 2)
    one = subscriber.expect(Publish, payload=b"one", qos=1)
    two = subscriber.expect(Publish, payload=b"two", qos=2)
    subscriber.send(Pubcomp(one.packet_id), Puback(two.packet_id))
    subscriber.expect_nothing()
    subscriber.close()
    again = resume(dial, f"{name}-s", version)
    again.expect(Publish, payload=b"one", dup=True, packet_id=one.packet_id)
    again.expect(Publish, payload=b"two", dup=True, packet_id=two.packet_id)


def test_identifiers_are_reused(enter: Enter, name: str) -> None:
    """§2.2.1: an identifier is free after its acknowledgement; more than 65,535 messages pass."""
    subscriber = enter(f"{name}-s")
    subscriber.subscribe(name, 1)
    held_back = enter(name)
    held_back.publish(name, b"held", 1)
    held = subscriber.expect(Publish, payload=b"held").packet_id
    count = 70_000
    batch = 500
    for start in range(0, count, batch):
        held_back.send(
            *[Publish(name, b"", 1, packet_id=2 + (start + i) % 60_000) for i in range(batch)]
        )
        acknowledgements = []
        for _ in range(batch):
            message = subscriber.expect(Publish)
            assert message.packet_id not in (0, held)
            acknowledgements.append(Puback(message.packet_id))
        subscriber.send(*acknowledgements)
        for _ in range(batch):
            held_back.expect(Puback)
    subscriber.expect_nothing()


def test_qos_0_does_not_wait_for_a_disconnected_client(
    dial: Dial, enter: Enter, name: str, version: Version
) -> None:
    """§4.3.1, 3.1.1 §3.1.2.4: the broker may store QoS 0 messages, and this one does not."""
    client = resume(dial, f"{name}-s", version)
    client.subscribe(name, 2)
    client.disconnect()
    publisher = enter(name, version)
    publisher.publish(name, b"fleeting", 0)
    publisher.publish(name, b"kept", 1)
    again = resume(dial, f"{name}-s", version)
    again.take(1, payload=b"kept")
    again.expect_nothing()
