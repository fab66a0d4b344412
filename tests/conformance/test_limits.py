"""The broker's own limits, and how it says goodbye (MQTT 5 §4.13, §3.14, §5.4.6)."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from broker_process import COMMAND, StartBroker

from headgate.wire.codec import encode
from headgate.wire.packets import (
    Connack,
    Connect,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Version,
)
from headgate.wire.reasons import Reason

from .conftest import Dial, Enter


def test_too_many_connections_are_refused(
    start_broker: StartBroker, dial: Dial, enter: Enter, version: Version
) -> None:
    """§3.2.2.2: 0x89, in 3.1.1 return code 3; a place that is free again is given away."""
    small = start_broker("limits: {connections: 2}")
    first = enter("a", version, port=small.port)
    enter("b", version, port=small.port)
    third = dial(version, port=small.port)
    third.send(Connect("c", version))
    third.expect(Connack, reason=Reason.SERVER_BUSY if version is Version.V5 else 3)
    third.expect_closed()
    third.close()
    first.disconnect()
    deadline = time.monotonic() + 5
    while True:
        again = dial(version, port=small.port)
        again.send(Connect("c", version))
        answer = again.receive()
        if isinstance(answer, Connack) and answer.reason == 0:
            break
        again.close()
        assert time.monotonic() < deadline


def test_too_many_subscriptions_are_refused(start_broker: StartBroker, enter: Enter) -> None:
    """§3.9.3: 0x97 for what is too much; replacing is always possible."""
    small = start_broker("limits: {subscriptions: 2}")
    client = enter("c", port=small.port)
    client.send(Subscribe(1, [(topic, SubscriptionOptions(1)) for topic in ("a", "b", "c")]))
    client.expect(Suback, reasons=[1, 1, Reason.QUOTA_EXCEEDED])
    assert client.subscribe("a", 2) == 2


def test_topics_that_are_too_deep_are_refused(start_broker: StartBroker, enter: Enter) -> None:
    """§4.7.3: an implementation's own limit."""
    shallow = start_broker("limits: {topic_depth: 3}")
    client = enter("c", port=shallow.port)
    assert client.subscribe("a/b/c", 1) == 1
    assert client.subscribe("a/b/c/d", 1) >= 0x80
    assert client.publish("x/b/c/d", b"", 1) >= 0x80
    assert client.publish("x/b/c", b"", 1) == Reason.NO_MATCHING_SUBSCRIBERS


def test_a_fast_publisher_is_slowed_down(start_broker: StartBroker, enter: Enter) -> None:
    """§4.9, §5.4.6: by reading more slowly, without losing or refusing anything."""
    slow = start_broker("limits: {publish_rate: 50}")
    watcher = enter("w", port=slow.port)
    watcher.subscribe("t")
    client = enter("c", port=slow.port)
    started = time.monotonic()
    client.send(*[Publish("t", b"%d" % number) for number in range(100)])
    for number in range(100):
        watcher.take(payload=b"%d" % number)
    client.send(Publish("t", b"later"))
    watcher.take(payload=b"later")
    assert time.monotonic() - started > 0.9  # 50 may come at once, 50 more take a second


def test_who_is_not_read_is_not_taken_for_silent(start_broker: StartBroker, enter: Enter) -> None:
    """[MQTT-3.1.2-22] is about clients that send nothing; this one only waits for its turn."""
    slow = start_broker("limits: {publish_rate: 50}")
    client = enter("c", port=slow.port, keep_alive=1)
    client.send(*[Publish("t", b"") for _ in range(200)])
    client.send(Pingreq())  # not read before 3 s have passed: twice what silence may last
    client.expect(Pingresp)


def test_who_says_much_before_the_login_is_checked_is_slowed_down_too(
    start_broker: StartBroker, enter: Enter, dial: Dial, tmp_path: Path
) -> None:
    """§3.1.4: a client need not wait for CONNACK; §5.4.6: what it then sends too fast waits."""
    users = tmp_path / "users.txt"
    for name in ("w", "c"):
        command = [COMMAND, "passwd", users, name]
        subprocess.run(command, input=b"secret\n", check=True, capture_output=True)
    slow = start_broker(
        f"limits: {{publish_rate: 50}}\nauth: {{allow_anonymous: false, password_file: {users}}}"
    )
    login = {"username": "w", "password": b"secret"}
    watcher = enter("w", port=slow.port, **login)
    watcher.subscribe("t")
    client = dial(port=slow.port)
    client.send(
        b"".join(
            encode(packet, Version.V5)
            for packet in (
                Connect("c", username="c", password=b"secret"),
                *[Publish("t", b"%d" % number) for number in range(75)],
            )
        )
    )
    client.expect(Connack, reason=0)
    for number in range(75):
        watcher.take(payload=b"%d" % number)
    client.send(Publish("t", b"later"))
    watcher.take(payload=b"later")  # its debt is paid, and it is heard again


def test_a_full_queue_keeps_the_newest(start_broker: StartBroker, enter: Enter) -> None:
    """§4.1: resources are limited; the oldest are given up, and the order stays."""
    small = start_broker("limits: {queued_messages: 10}")
    lasting = Properties(session_expiry=60)
    client = enter("c", port=small.port, properties=lasting)
    client.subscribe("t", 1)
    client.disconnect()
    publisher = enter("p", port=small.port)
    for number in range(25):
        publisher.publish("t", b"%d" % number, 1)
    again = enter("c", port=small.port, clean_start=False, properties=lasting)
    for number in range(15, 25):
        again.take(1, payload=b"%d" % number)
    again.expect_nothing()


def test_a_broker_that_stops_says_so(start_broker: StartBroker, enter: Enter) -> None:
    """§3.14.2.1: 0x8B to MQTT 5, and both are closed."""
    mortal = start_broker()
    new = enter("new", port=mortal.port)
    old = enter("old", Version.V311, port=mortal.port)
    mortal.stop()
    new.expect_dismissed(Reason.SERVER_SHUTTING_DOWN)
    old.expect_closed()


def test_a_stopped_broker_remembers(start_broker: StartBroker, enter: Enter, dial: Dial) -> None:
    """§4.1: sessions, subscriptions, what was in flight and what is retained survive a restart."""
    mortal = start_broker()
    lasting = Properties(session_expiry=600)
    client = enter("c", port=mortal.port, properties=lasting)
    client.subscribe("t", 2, identifier=5, retain_as_published=True)
    publisher = enter("p", port=mortal.port)
    publisher.publish("t", b"in flight", 1)
    in_flight = client.expect(Publish, payload=b"in flight", qos=1)
    client.close()
    publisher.publish("t", b"waiting", 2, retain=True)
    mortal.stop()
    mortal.start()
    again = dial(port=mortal.port)
    assert again.connect("c", clean_start=False, properties=lasting).session_present
    again.take(1, payload=b"in flight", dup=True, packet_id=in_flight.packet_id)
    told = again.take(2, payload=b"waiting", retain=True)
    assert told.properties.subscription_identifiers == [5]
    again.expect_nothing()
    late = enter("late", port=mortal.port)
    late.subscribe("t")
    late.take(payload=b"waiting", retain=True)


@pytest.mark.parametrize("limits", ["{memory: 100kB}", "{retained_messages: 4}"])
@pytest.mark.parametrize("qos", [1, 2])
def test_too_much_to_retain_is_refused(
    start_broker: StartBroker, enter: Enter, limits: str, qos: int
) -> None:
    """§3.4.2.1, §3.5.2.1: 0x97, and nobody gets it; §4.3.3: the exchange ends with this PUBREC."""
    small = start_broker(f"limits: {limits}")
    client = enter("c", port=small.port)
    reader = enter("r", port=small.port)
    reader.subscribe("big/#", 0)
    for number in range(4):
        assert client.publish(f"big/{number}", bytes(10_000), qos, retain=True) == 0
        reader.take(topic=f"big/{number}")
    body = encode(Publish("big/9", bytes(10_000), qos, True, False, 77), Version.V5)
    client.send(body)
    first = 0x40 if qos == 1 else 0x50
    answer = client.receive()
    assert answer is not None
    assert encode(answer, Version.V5) == bytes([first, 3, 0, 77, 0x97])
    reader.expect_nothing()
    # The identifier is free: the next message that bears it is another one.
    other = Publish("big/other", b"x", qos, False, False, 77)
    client.send(other)
    if qos == 1:
        client.expect(Puback, packet_id=77, reason=0)
    else:
        client.expect(Pubrec, packet_id=77, reason=0)
    reader.take(topic="big/other", payload=b"x")
    # What is replaced by something no larger, or removed, needs no room.
    assert client.publish("big/1", bytes(10_000), 1, retain=True) == 0
    assert client.publish("big/2", b"", 1, retain=True) == 0
    assert client.publish("big/9", bytes(10_000), 1, retain=True) == 0


def test_who_cannot_be_told_has_it_delivered_and_not_retained(
    start_broker: StartBroker, enter: Enter
) -> None:
    """MQTT 3.1.1 has no reason codes."""
    version = Version.V311
    small = start_broker("limits: {retained_messages: 1}")
    client = enter("c", version, port=small.port)
    reader = enter("r", version, port=small.port)
    reader.subscribe("a/#", 0)
    for topic in ("a/1", "a/2"):
        client.publish(topic, b"x", 1, retain=True)
        reader.take(topic=topic, payload=b"x", retain=False)
    late = enter("late", version, port=small.port)
    late.subscribe("a/#", 0)
    late.take(topic="a/1", payload=b"x", retain=True)
    late.expect_nothing()
