"""What survives the end of the process, one thing at a time: by SIGKILL, and by SIGTERM."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.wire.packets import (
    Packet,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Version,
    Will,
)

from .peer import Peer, Publisher, Subscriber, run
from .process import MortalBroker

BOTH = [Version.V311, Version.V5]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MortalBroker]:
    with MortalBroker(tmp_path) as process:
        yield process
        process.stop()


def connect(peer: Peer, broker: MortalBroker) -> None:
    peer.connect(broker.port)
    peer.until_connected()


def present(peer: Peer) -> bool:
    assert peer.connack is not None
    return peer.connack.session_present


def restart(broker: MortalBroker, *peers: Peer) -> None:
    """Kill it and start it again."""
    broker.kill()
    for peer in peers:
        peer.abandon()
    broker.start()


def publish(broker: MortalBroker, *messages: tuple[str, bytes, int], retain: bool = False) -> None:
    """Publish and wait for every acknowledgement."""
    publisher = Publisher("publisher")
    connect(publisher, broker)
    for topic, payload, qos in messages:
        publisher.publish(topic, payload, qos, retain)
    publisher.until(lambda: publisher.idle, "acknowledgements")
    publisher.disconnect()


def settle(broker: MortalBroker) -> None:
    """SUBACK to a session that survives comes after a commit, and so after all that was before."""
    other = Subscriber("other")
    connect(other, broker)
    other.subscribe("other")
    other.disconnect()


def expect(packets: list[Packet], kind: type[Packet], peer: Peer) -> Packet:
    """The next packet that nobody took is of a kind."""
    peer.until(lambda: bool(packets), kind.__name__)
    packet = packets.pop(0)
    assert isinstance(packet, kind), packet
    return packet


# What waits and what was subscribed


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [1, 2])
def test_what_waits_for_a_client_that_is_away(
    broker: MortalBroker, version: Version, qos: int
) -> None:
    subscriber = Subscriber("away", version)
    connect(subscriber, broker)
    subscriber.subscribe("t/+", qos=qos)
    subscriber.disconnect()
    publish(broker, *[("t/a", b"%d" % number, qos) for number in range(50)])
    restart(broker)
    connect(subscriber, broker)
    assert present(subscriber)
    subscriber.until_messages(50)
    assert subscriber.payloads("t/a") == [b"%d" % number for number in range(50)]
    assert {message.qos for message in subscriber.messages} == {qos}


def test_subscriptions_with_their_options(broker: MortalBroker) -> None:
    subscriber = Subscriber("client")
    connect(subscriber, broker)
    subscriber.subscribe("own", qos=1, no_local=1)
    subscriber.subscribe("kept", qos=2, retain_as_published=1)
    subscriber.subscribe("$share/group/shared", qos=1)
    subscriber.subscribe("left", qos=1)
    subscriber.unsubscribe("left")
    restart(broker, subscriber)
    connect(subscriber, broker)
    assert present(subscriber)
    subscriber.send(Publish("own", b"mine", qos=1, packet_id=1))
    publish(broker, ("own", b"yours", 1), ("left", b"nobody's", 1), ("shared", b"ours", 1))
    publish(broker, ("kept", b"kept", 2), retain=True)
    subscriber.until_messages(3)
    subscriber.ping()
    found = [(m.topic, m.payload, m.qos, m.retain) for m in subscriber.messages]
    assert found == [
        ("own", b"yours", 1, False),
        ("shared", b"ours", 1, False),
        ("kept", b"kept", 2, True),
    ]


def test_retained_messages_and_their_removal(broker: MortalBroker) -> None:
    messages = [(f"r/{number}", b"%d" % number, number % 3) for number in range(30)]
    publish(broker, *[m for m in messages if m[2]], retain=True)
    publish(broker, ("r/1", b"", 1), ("r/2", b"again", 1), retain=True)
    restart(broker)
    subscriber = Subscriber("new")
    connect(subscriber, broker)
    subscriber.subscribe("r/#")
    subscriber.ping()
    expected = {topic: payload for topic, payload, qos in messages if qos}
    del expected["r/1"]
    expected["r/2"] = b"again"
    subscriber.until(lambda: len(subscriber.messages) >= len(expected), "retained messages")
    assert {m.topic: m.payload for m in subscriber.messages} == expected
    assert all(message.retain for message in subscriber.messages)


def test_a_message_expires_while_the_broker_is_down(broker: MortalBroker) -> None:
    subscriber = Subscriber("away")
    connect(subscriber, broker)
    subscriber.subscribe("t", qos=1)
    subscriber.disconnect()
    publisher = Peer("publisher")
    connect(publisher, broker)
    for number, expiry in enumerate([1, 600], start=1):
        publisher.send(
            Publish(
                "t",
                b"%d" % expiry,
                qos=1,
                packet_id=number,
                properties=Properties(message_expiry=expiry),
            )
        )
    publisher.until(lambda: len(publisher.other) == 2, "PUBACKs")
    broker.kill()
    publisher.abandon()
    time.sleep(1.1)  # the time that the message lives, and nothing else
    broker.start()
    connect(subscriber, broker)
    subscriber.until_messages(1)
    assert subscriber.payloads("t") == [b"600"]
    left = subscriber.messages[0].properties.message_expiry
    assert left is not None and 500 < left < 600


# Exchanges under way (MQTT 5 §4.3.3)


def test_a_message_received_at_qos_2_is_known_after_a_crash(broker: MortalBroker) -> None:
    subscriber = Subscriber("subscriber")
    connect(subscriber, broker)
    subscriber.subscribe("t")
    publisher = Peer("publisher")
    connect(publisher, broker)
    publisher.send(Publish("t", b"once", qos=2, packet_id=7))
    assert expect(publisher.other, Pubrec, publisher) == Pubrec(7)
    restart(broker, publisher, subscriber)
    connect(publisher, broker)
    # As if PUBREC had been lost with the connection.
    publisher.send(Publish("t", b"once", qos=2, dup=True, packet_id=7))
    assert expect(publisher.other, Pubrec, publisher) == Pubrec(7)
    publisher.send(Pubrel(7))
    assert expect(publisher.other, Pubcomp, publisher) == Pubcomp(7)
    # The identifier is free: the same one is a new message now, and after another crash too.
    restart(broker, publisher)
    connect(publisher, broker)
    publisher.send(Publish("t", b"new", qos=2, packet_id=7))
    assert expect(publisher.other, Pubrec, publisher) == Pubrec(7)
    connect(subscriber, broker)
    subscriber.until_messages(2)
    assert subscriber.payloads("t") == [b"once", b"new"]


def test_a_release_is_known_after_a_crash(broker: MortalBroker) -> None:
    subscriber = Subscriber("subscriber")
    connect(subscriber, broker)
    subscriber.subscribe("t")
    publisher = Peer("publisher")
    connect(publisher, broker)
    publisher.send(Publish("t", b"once", qos=2, packet_id=7))
    expect(publisher.other, Pubrec, publisher)
    publisher.send(Pubrel(7))
    expect(publisher.other, Pubcomp, publisher)
    restart(broker, publisher, subscriber)
    connect(publisher, broker)
    publisher.send(Pubrel(7))  # as if PUBCOMP had been lost
    assert expect(publisher.other, Pubcomp, publisher) == Pubcomp(7, 0x92)


def test_a_delivery_at_qos_2_goes_on_where_it_stopped(broker: MortalBroker) -> None:
    subscriber = Subscriber("setup")
    subscriber.client_id = "subscriber"
    connect(subscriber, broker)
    subscriber.subscribe("t")
    subscriber.disconnect()
    publish(broker, ("t", b"once", 2))

    raw = Peer("subscriber")  # answers only what is said here
    connect(raw, broker)
    first = expect(raw.other, Publish, raw)
    assert isinstance(first, Publish)
    assert (first.payload, first.qos, first.dup) == (b"once", 2, False)
    restart(broker, raw)
    connect(raw, broker)
    second = expect(raw.other, Publish, raw)
    assert isinstance(second, Publish)
    assert (second.payload, second.dup, second.packet_id) == (b"once", True, first.packet_id)
    raw.send(Pubrec(first.packet_id))
    assert expect(raw.other, Pubrel, raw) == Pubrel(first.packet_id)
    restart(broker, raw)
    connect(raw, broker)  # from now on the message itself must not come again
    assert expect(raw.other, Pubrel, raw) == Pubrel(first.packet_id)
    raw.send(Pubcomp(first.packet_id))
    publish(broker, ("t", b"next", 2))
    following = expect(raw.other, Publish, raw)
    assert isinstance(following, Publish)
    assert following.payload == b"next"


def test_a_delivery_at_qos_1_is_repeated_until_acknowledged(broker: MortalBroker) -> None:
    subscriber = Subscriber("subscriber")
    connect(subscriber, broker)
    subscriber.subscribe("t", qos=1)
    subscriber.holding = True
    publish(broker, ("t", b"first", 1), ("t", b"second", 1))
    subscriber.until_messages(2)
    restart(broker, subscriber)
    connect(subscriber, broker)
    subscriber.until_messages(4)
    assert subscriber.payloads("t") == [b"first", b"second"] * 2
    assert [message.dup for message in subscriber.messages] == [False, False, True, True]


def test_a_publisher_may_fill_the_receive_maximum(broker: MortalBroker) -> None:
    """At QoS 2, with every message waiting for its commit [MQTT-3.3.4-7]."""
    subscriber = Subscriber("subscriber")
    connect(subscriber, broker)
    subscriber.subscribe("t")
    publisher = Publisher("publisher")
    connect(publisher, broker)
    assert publisher.connack is not None
    publisher.window = publisher.connack.properties.receive_maximum or 65535
    for number in range(3 * publisher.window):
        publisher.publish("t", b"%d" % number, 2)
    run(
        [publisher, subscriber],
        lambda: publisher.ended or (publisher.idle and len(subscriber.messages) >= 3000),
        "all messages",
    )
    assert publisher.farewell is None
    assert subscriber.payloads("t") == [b"%d" % number for number in range(3 * publisher.window)]


# Wills


def watcher(broker: MortalBroker) -> Subscriber:
    subscriber = Subscriber("watcher")
    connect(subscriber, broker)
    subscriber.subscribe("will/#", qos=1)
    return subscriber


def mortal(broker: MortalBroker, delay: int) -> Subscriber:
    will = Will("will/of/mortal", b"gone", 1, properties=Properties(will_delay=delay))
    client = Subscriber("mortal", will=will)
    connect(client, broker)
    settle(broker)
    return client


@pytest.mark.parametrize("lost_before", [True, False], ids=["lost before", "lost by the crash"])
def test_a_delayed_will_is_published_after_a_restart(
    broker: MortalBroker, lost_before: bool
) -> None:
    subscriber = watcher(broker)
    client = mortal(broker, 2)
    if lost_before:
        client.abandon()
        settle(broker)
    crashed = time.monotonic()
    restart(broker, client, subscriber)
    connect(subscriber, broker)
    subscriber.until_messages(1)
    if not lost_before:
        assert time.monotonic() - crashed > 2.0  # its delay was counted, from the restart
    assert subscriber.payloads("will/of/mortal") == [b"gone"]


def test_a_will_that_the_crash_made_due_is_kept_for_whoever_is_away(broker: MortalBroker) -> None:
    subscriber = watcher(broker)
    client = mortal(broker, 0)
    restart(broker, client, subscriber)
    # Published by the restart, and acknowledged by nobody yet: it must survive another one.
    settle(broker)
    restart(broker)
    connect(subscriber, broker)
    subscriber.until_messages(1)
    assert subscriber.payloads("will/of/mortal") == [b"gone"]


def test_no_will_if_the_client_comes_back_in_time(broker: MortalBroker) -> None:
    subscriber = watcher(broker)
    client = mortal(broker, 3)
    restart(broker, client, subscriber)
    connect(subscriber, broker)
    connect(client, broker)
    client.disconnect()
    time.sleep(3.2)  # the delay, and nothing else
    publish(broker, ("will/end", b"end", 1))
    subscriber.until_messages(1)
    assert [message.topic for message in subscriber.messages] == ["will/end"]


# The end of sessions


def test_a_session_ends_while_the_broker_is_down(broker: MortalBroker) -> None:
    short, long = Peer("short", expiry=1), Peer("long", expiry=600)
    for peer in (short, long):
        connect(peer, broker)
        peer.disconnect()
    settle(broker)
    broker.kill()
    time.sleep(1.1)  # the session's life, and nothing else
    broker.start()
    for peer in (short, long):
        connect(peer, broker)
    assert not present(short)
    assert present(long)


def test_restarts_do_not_prolong_a_session(broker: MortalBroker) -> None:
    client = Peer("client", expiry=2)
    connect(client, broker)
    settle(broker)
    restart(broker, client)  # from now on it is disconnected
    began = time.monotonic()
    settle(broker)
    restart(broker)
    time.sleep(max(0.0, began + 2.2 - time.monotonic()))  # the session's life, and nothing else
    connect(client, broker)
    assert not present(client)


# SIGTERM


def test_a_graceful_end_says_why_and_keeps_everything(broker: MortalBroker) -> None:
    modern, old = Subscriber("modern"), Subscriber("old", Version.V311)
    away = Subscriber("away")
    for subscriber in (modern, old, away):
        connect(subscriber, broker)
        subscriber.subscribe("t")
    away.disconnect()
    modern.holding = old.holding = True
    publish(broker, *[("t", b"%d" % number, number % 2 + 1) for number in range(20)])
    publish(broker, ("t", b"kept", 1), retain=True)
    run([modern, old], lambda: len(modern.messages) == len(old.messages) == 21, "messages")

    broker.terminate()
    run([modern, old], lambda: modern.ended and old.ended, "the end of the connections")
    assert broker.wait() == 0
    assert modern.farewell is not None
    assert modern.farewell.reason == 0x8B  # server shutting down
    assert old.farewell is None  # MQTT 3.1.1 has no such packet

    broker.start()
    for subscriber in (modern, old, away):
        subscriber.holding = False
        connect(subscriber, broker)
        assert present(subscriber)
    expected = [b"%d" % number for number in range(20)] + [b"kept"]
    run([modern, old, away], lambda: len(away.messages) >= 21, "what waited")
    assert away.payloads("t") == expected
    for subscriber in (modern, old):
        subscriber.ping()
        subscriber.until_messages(21 + 11)
        again = [m.payload for m in subscriber.messages[21:]]
        assert again == [b"%d" % number for number in range(0, 20, 2)] + [b"kept"]


@pytest.mark.parametrize("durability", ["fsync", "os", "none"])
def test_a_graceful_end_loses_nothing_whatever_the_durability(
    tmp_path: Path, durability: str
) -> None:
    with MortalBroker(tmp_path, f"durability: {durability}") as broker:
        subscriber = Subscriber("away")
        connect(subscriber, broker)
        subscriber.subscribe("t")
        publish(broker, ("t", b"live", 2))
        subscriber.until_messages(1)
        subscriber.disconnect()
        publish(broker, *[("t", b"%d" % number, number % 2 + 1) for number in range(100)])
        broker.stop()
        broker.start()
        connect(subscriber, broker)
        subscriber.until_messages(101)
        assert subscriber.payloads("t")[1:] == [b"%d" % number for number in range(100)]
        broker.stop()


def test_an_unsubscription_that_was_answered_is_kept(broker: MortalBroker) -> None:
    """UNSUBACK waits for its commit as SUBACK does, however soon the crash comes."""
    for _ in range(3):
        subscriber = Subscriber("client")
        connect(subscriber, broker)
        subscriber.subscribe("t", qos=1)
        subscriber.unsubscribe("t")
        restart(broker, subscriber)
        publish(broker, ("t", b"unwanted", 1))
        connect(subscriber, broker)
        subscriber.subscribe("end", qos=1)
        publish(broker, ("end", b"end", 1))
        subscriber.until_messages(1)
        assert [message.topic for message in subscriber.messages] == ["end"]
        subscriber.expiry = 0
        subscriber.disconnect()


def test_qos_1_is_acknowledged_after_its_commit(broker: MortalBroker) -> None:
    """One message at a time and a kill right after its PUBACK: the shortest moment there is."""
    subscriber = Subscriber("away")
    connect(subscriber, broker)
    subscriber.subscribe("t", qos=1)
    subscriber.disconnect()
    for number in range(3):
        publisher = Peer("publisher")
        connect(publisher, broker)
        publisher.send(Publish("t", b"%d" % number, qos=1, packet_id=1))
        assert expect(publisher.other, Puback, publisher) == Puback(1)
        restart(broker, publisher)
    connect(subscriber, broker)
    subscriber.until_messages(3)
    assert subscriber.payloads("t") == [b"0", b"1", b"2"]
