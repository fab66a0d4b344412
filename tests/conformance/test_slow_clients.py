"""Clients that do not read: others go on, nothing arrives damaged (MQTT 5 §4.2, §4.6, §4.9)."""

from __future__ import annotations

import pytest

from headgate.wire.packets import (
    Disconnect,
    Properties,
    Publish,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Version,
)
from headgate.wire.reasons import Reason

from .client import Client
from .conftest import Dial, Enter

CHUNK = b"x" * 8192
MANY = 2500
"""20 MB: more than the sockets' buffers take, less than a client's queue may hold."""


def flood(publisher: Client, topic: str) -> None:
    """Publish much at QoS 0, numbered."""
    for start in range(0, MANY, 50):
        publisher.send(*[Publish(topic, b"%08d" % n + CHUNK) for n in range(start, start + 50)])
    publisher.expect_nothing()


def test_a_stalled_client_delays_nobody(enter: Enter, name: str, version: Version) -> None:
    """§4.9: one does not read; another on the same topic gets everything in order."""
    stalled = enter(f"{name}-stalled", version)
    stalled.subscribe(name)
    reader = enter(f"{name}-reader", version)
    reader.subscribe(name)
    publisher = enter(name, version)
    flood(publisher, f"{name}-other")
    for number in range(0, MANY, 50):
        publisher.send(*[Publish(name, b"%08d" % n + CHUNK) for n in range(number, number + 50)])
        for n in range(number, number + 50):
            assert reader.expect(Publish).payload[:8] == b"%08d" % n
    for n in range(MANY):
        assert stalled.expect(Publish, topic=name).payload[:8] == b"%08d" % n
    stalled.expect_nothing()


def test_options_may_change_while_messages_wait(enter: Enter, name: str) -> None:
    """[MQTT-3.8.4-3], [MQTT-4.6.0-6]: what waited is complete and in order."""
    client = enter(name)
    client.subscribe(name)
    publisher = enter(f"{name}-p")
    flood(publisher, name)
    identifier = Properties(subscription_identifiers=[7])
    client.send(Subscribe(9, [(name, SubscriptionOptions(1))], identifier))
    publisher.publish(name, b"last", 1)
    numbers: list[int] = []
    while True:
        packet = client.receive()
        if isinstance(packet, Suback):
            continue
        assert isinstance(packet, Publish)
        assert packet.topic == name
        if packet.payload == b"last":
            break
        numbers.append(int(packet.payload[:8]))
    assert numbers == list(range(MANY))
    assert packet.properties.subscription_identifiers == [7]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_stalled_client_is_taken_over(dial: Dial, enter: Enter, name: str, qos: int) -> None:
    """[MQTT-3.1.4-3]: the old connection is given up, and its messages are not lost."""
    lasting = Properties(session_expiry=60)
    stalled = enter(name, properties=lasting)
    stalled.subscribe(f"{name}/bulk")
    stalled.subscribe(name, qos)
    publisher = enter(f"{name}-p")
    flood(publisher, f"{name}/bulk")
    publisher.publish(name, b"important", qos)
    again = dial()
    connack = again.connect(name, clean_start=False, properties=lasting)
    assert connack.session_present is True
    again.take(qos, payload=b"important")
    while isinstance(packet := stalled.receive(), Publish):
        pass
    assert packet is None or (
        isinstance(packet, Disconnect) and packet.reason == Reason.SESSION_TAKEN_OVER
    )


def test_a_stalled_client_may_leave(enter: Enter, name: str, version: Version) -> None:
    """[MQTT-3.14.4-1]: DISCONNECT is heard though there is much to send."""
    stalled = enter(name, version)
    stalled.subscribe(name)
    flood(enter(f"{name}-p", version), name)
    stalled.send(Disconnect())
    while isinstance(packet := stalled.receive(), Publish):
        pass
    assert packet is None
