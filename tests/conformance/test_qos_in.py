"""What clients publish: acknowledgements, their order, exactly once (MQTT 5 §4.3, §4.6, §3.3)."""

from __future__ import annotations

import pytest

from headgate.wire.packets import (
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Version,
)
from headgate.wire.reasons import Reason

from .client import Client
from .conftest import Dial, Enter


@pytest.fixture
def watcher(enter: Enter, name: str, version: Version) -> Client:
    client = enter(f"{name}-watcher", version)
    client.subscribe(name, 2)
    return client


def test_qos_0_is_not_acknowledged(enter: Enter, watcher: Client, name: str) -> None:
    """[MQTT-4.3.1-1], §4.3.1: delivered at most once."""
    publisher = enter(name, watcher.version)
    publisher.send(Publish(name, b"one"))
    publisher.expect_nothing()
    watcher.take(payload=b"one")
    watcher.expect_nothing()


def test_qos_1_is_acknowledged(enter: Enter, watcher: Client, name: str) -> None:
    """[MQTT-4.3.2-4]: PUBACK with the same packet identifier."""
    publisher = enter(name, watcher.version)
    publisher.send(Publish(name, b"one", 1, packet_id=4711))
    publisher.expect(Puback, packet_id=4711, reason=0)
    watcher.take(1, payload=b"one", dup=False)


def test_a_repeated_qos_1_message_is_a_new_message(
    enter: Enter, watcher: Client, name: str
) -> None:
    """[MQTT-4.3.2-5]: after PUBACK the same identifier is a new message, whatever DUP says."""
    publisher = enter(name, watcher.version)
    for dup in (False, True):
        publisher.send(Publish(name, b"one", 1, packet_id=7, dup=dup))
        publisher.expect(Puback, packet_id=7)
        watcher.take(1, payload=b"one", dup=False)


def test_dup_is_not_passed_on(enter: Enter, watcher: Client, name: str) -> None:
    """[MQTT-3.3.1-3]: DUP of what is sent is the broker's own."""
    publisher = enter(name, watcher.version)
    publisher.send(Publish(name, b"one", 1, packet_id=1, dup=True))
    publisher.expect(Puback)
    watcher.take(1, dup=False)


def test_qos_2_is_acknowledged_in_two_steps(enter: Enter, watcher: Client, name: str) -> None:
    """[MQTT-4.3.3-8], [MQTT-4.3.3-11]: PUBREC, then PUBCOMP, same identifier."""
    publisher = enter(name, watcher.version)
    publisher.send(Publish(name, b"one", 2, packet_id=65535))
    publisher.expect(Pubrec, packet_id=65535, reason=0)
    publisher.send(Pubrel(65535))
    publisher.expect(Pubcomp, packet_id=65535, reason=0)
    watcher.take(2, payload=b"one", dup=False)


def test_a_repeated_qos_2_message_is_delivered_once(
    enter: Enter, watcher: Client, name: str
) -> None:
    """[MQTT-4.3.3-10]: until PUBREL, the same identifier is the same message."""
    publisher = enter(name, watcher.version)
    for dup in (False, True, True):
        publisher.send(Publish(name, b"one", 2, packet_id=9, dup=dup))
        publisher.expect(Pubrec, packet_id=9, reason=0)
    publisher.send(Pubrel(9))
    publisher.expect(Pubcomp, packet_id=9)
    watcher.take(2, payload=b"one")
    watcher.expect_nothing()


def test_after_release_the_identifier_is_free(enter: Enter, watcher: Client, name: str) -> None:
    """[MQTT-4.3.3-12]: after PUBCOMP the same identifier is a new message."""
    publisher = enter(name, watcher.version)
    for payload in (b"one", b"two"):
        publisher.send(Publish(name, payload, 2, packet_id=9))
        publisher.expect(Pubrec, packet_id=9)
        publisher.send(Pubrel(9))
        publisher.expect(Pubcomp, packet_id=9)
        watcher.take(2, payload=payload)


def test_exactly_once_survives_the_connection(
    dial: Dial, watcher: Client, name: str, version: Version
) -> None:
    """[MQTT-4.3.3-10], [MQTT-4.4.0-1]: PUBLISH, then PUBREL, come again."""
    lasting = Properties(session_expiry=60) if version is Version.V5 else Properties()
    first = dial(version)
    first.connect(name, clean_start=False, properties=lasting)
    first.send(Publish(name, b"once", 2, packet_id=5))
    first.expect(Pubrec, packet_id=5)
    first.close()
    second = dial(version)
    second.connect(name, clean_start=False, properties=lasting)
    second.send(Publish(name, b"once", 2, packet_id=5, dup=True))
    second.expect(Pubrec, packet_id=5, reason=0)
    second.send(Pubrel(5))
    second.close()
    third = dial(version)
    third.connect(name, clean_start=False, properties=lasting)
    third.send(Pubrel(5))
    completed = third.expect(Pubcomp, packet_id=5)
    assert completed.reason in (Reason.SUCCESS, Reason.PACKET_IDENTIFIER_NOT_FOUND)
    watcher.take(2, payload=b"once")
    watcher.expect_nothing()


def test_a_release_of_nothing_is_answered(enter: Enter, name: str, version: Version) -> None:
    """§3.7.2.1: PUBCOMP with 0x92; in 3.1.1 a plain PUBCOMP."""
    client = enter(name, version)
    client.send(Pubrel(1234))
    expected = Reason.PACKET_IDENTIFIER_NOT_FOUND if version is Version.V5 else 0
    client.expect(Pubcomp, packet_id=1234, reason=expected)
    client.expect_nothing()


def test_a_receipt_of_nothing_is_answered(enter: Enter, name: str, version: Version) -> None:
    """§3.6.2.1: PUBREL with 0x92; in 3.1.1 a plain PUBREL."""
    client = enter(name, version)
    client.send(Pubrec(1234))
    expected = Reason.PACKET_IDENTIFIER_NOT_FOUND if version is Version.V5 else 0
    client.expect(Pubrel, packet_id=1234, reason=expected)


def test_acknowledgements_of_nothing_are_harmless(
    enter: Enter, name: str, version: Version
) -> None:
    """§4.13: neither PUBACK nor PUBCOMP for an unknown identifier is worth a disconnection."""
    client = enter(name, version)
    client.send(Puback(77), Pubcomp(78))
    client.expect_nothing()


@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledgements_come_in_order(enter: Enter, watcher: Client, name: str, qos: int) -> None:
    """[MQTT-4.6.0-2], [MQTT-4.6.0-3]: PUBACK and PUBREC in the order of the messages."""
    publisher = enter(name, watcher.version)
    identifiers = [17, 3, 99, 1, 65535, 42]
    publisher.send(*[Publish(name, b"%d" % i, qos, packet_id=i) for i in identifiers])
    kind: type[Puback | Pubrec] = Puback if qos == 1 else Pubrec
    assert [publisher.expect(kind).packet_id for _ in identifiers] == identifiers
    for identifier in identifiers:
        watcher.take(qos, payload=b"%d" % identifier)


def test_releases_are_completed_in_order(enter: Enter, name: str, version: Version) -> None:
    """[MQTT-4.6.0-4] of the peer, answered in order too."""
    publisher = enter(name, version)
    identifiers = [17, 3, 99]
    publisher.send(*[Publish(name, b"", 2, packet_id=i) for i in identifiers])
    for _ in identifiers:
        publisher.expect(Pubrec)
    publisher.send(*[Pubrel(i) for i in identifiers])
    assert [publisher.expect(Pubcomp).packet_id for _ in identifiers] == identifiers


def test_messages_of_one_publisher_stay_in_order(enter: Enter, watcher: Client, name: str) -> None:
    """[MQTT-4.6.0-6]: per topic and QoS, at whatever pace."""
    publisher = enter(name, watcher.version)
    publisher.send(*[Publish(name, b"%d" % number) for number in range(500)])
    publisher.send(
        *[Publish(name, b"%d" % number, 1, packet_id=number + 1) for number in range(500)]
    )
    for number in range(500):
        watcher.take(0, payload=b"%d" % number)
    for number in range(500):
        watcher.take(1, payload=b"%d" % number)


@pytest.mark.parametrize("qos", [1, 2])
def test_nobody_listening_is_told(enter: Enter, name: str, qos: int) -> None:
    """§3.4.2.1, §3.5.2.1: 0x10, no matching subscribers; never in 3.1.1."""
    publisher = enter(name)
    assert publisher.publish(name, b"", qos) == Reason.NO_MATCHING_SUBSCRIBERS
    publisher.subscribe(name)
    publisher.send(Publish(name, b"", qos, packet_id=50))
    kind = Puback if qos == 1 else Pubrec
    answers = [publisher.receive(), publisher.receive()]
    assert any(isinstance(a, kind) and a.reason == Reason.SUCCESS for a in answers)
    old = enter(f"{name}-old", Version.V311)
    old.send(Publish(f"{name}/old", b"", qos, packet_id=51))
    assert old.socket.recv(100) == (b"\x40" if qos == 1 else b"\x50") + b"\x02\x00\x33"


def test_a_publisher_may_subscribe_to_itself(enter: Enter, name: str, version: Version) -> None:
    """§4.6, §3.3.4: it is a subscriber like any other."""
    client = enter(name, version)
    client.send(
        Subscribe(1, [(name, SubscriptionOptions(1))]), Publish(name, b"mine", 1, packet_id=2)
    )
    client.expect(Suback, packet_id=1)
    answers = {type(client.receive()) for _ in range(2)}
    assert answers == {Puback, Publish}


def test_a_payload_may_be_empty(enter: Enter, watcher: Client, name: str) -> None:
    """§3.3.3: zero bytes are a valid payload."""
    enter(name, watcher.version).publish(name, b"", 1)
    watcher.take(1, payload=b"")


def test_a_payload_may_be_anything(enter: Enter, watcher: Client, name: str) -> None:
    """§3.3.3: bytes come out as they went in, at sizes around every length encoding."""
    publisher = enter(name, watcher.version)
    for size in (1, 127, 128, 16383, 16384, 300_000):
        payload = bytes(number % 256 for number in range(size))
        publisher.publish(name, payload, 1)
        watcher.take(1, payload=payload)
