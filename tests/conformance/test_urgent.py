"""Urgent and critical messages overtake others and still obey the protocol (MQTT 5 §4.3, §4.6)."""

from __future__ import annotations

import pytest

from headgate.wire.packets import (
    Disconnect,
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

from .conftest import Enter


def test_a_critical_message_arrives_exactly_once(enter: Enter, name: str, version: Version) -> None:
    """[MQTT-4.3.3-10]: also if its repetition came in the same read."""
    watcher = enter(f"{name}-w", version)
    watcher.subscribe(name, 2)
    client = enter(name, version)
    client.send(
        Publish(f"$critical/{name}", b"once", 2, packet_id=9),
        Publish(f"$critical/{name}", b"once", 2, packet_id=9, dup=True),
    )
    client.expect(Pubrec, packet_id=9)
    client.expect(Pubrec, packet_id=9)
    client.send(Pubrel(9), Publish(f"$critical/{name}", b"next", 2, packet_id=9))
    client.expect(Pubcomp, packet_id=9)
    client.expect(Pubrec, packet_id=9)
    watcher.take(2, payload=b"once")
    watcher.take(2, payload=b"next")
    watcher.expect_nothing()


def test_nothing_is_said_after_goodbye(enter: Enter, name: str, version: Version) -> None:
    """[MQTT-3.14.4-2]: an urgent message does not overtake the DISCONNECT before it."""
    watcher = enter(f"{name}-w", version)
    watcher.subscribe(name)
    client = enter(name, version)
    client.send(Publish(name, b"good"), Disconnect(), Publish(f"$urgent/{name}", b"too late"))
    client.expect_closed()
    watcher.take(payload=b"good")
    watcher.expect_nothing()


def test_a_subscription_before_it_counts(enter: Enter, name: str, version: Version) -> None:
    """§3.8.4: an urgent message does not overtake the SUBSCRIBE before it."""
    client = enter(name, version)
    client.send(Subscribe(1, [(name, SubscriptionOptions())]), Publish(f"$urgent/{name}", b"mine"))
    client.expect(Suback, packet_id=1)
    client.take(topic=name, payload=b"mine")


@pytest.mark.parametrize("rank", ["$urgent", "$critical"])
def test_acknowledgements_stay_in_order(
    enter: Enter, name: str, version: Version, rank: str
) -> None:
    """[MQTT-4.6.0-2]: however the messages were routed."""
    client = enter(name, version)
    client.send(
        Publish(name, b"", 1, packet_id=1),
        Publish(f"{rank}/{name}", b"", 1, packet_id=2),
        Publish(name, b"", 1, packet_id=3),
    )
    assert [client.expect(Puback).packet_id for _ in range(3)] == [1, 2, 3]
