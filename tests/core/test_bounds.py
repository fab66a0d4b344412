"""What clients may have the broker remember: counted to the byte, refused with the right reason."""

from __future__ import annotations

import pytest
from durability.peer import Publisher

from headgate.config import Configuration, Limits
from headgate.core.access import Peer
from headgate.core.bounds import flow_size, session_size, tree_size
from headgate.core.link import FREE
from headgate.core.router import CACHED_ROUTES
from headgate.core.wills import WILL
from headgate.wire.codec import Decoder, encode
from headgate.wire.packets import (
    Connack,
    Connect,
    Properties,
    Publish,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Unsubscribe,
    Version,
    Will,
)
from headgate.wire.reasons import Reason

from .stage import Stage

ANYBODY = Peer("127.0.0.1")
LASTING = Properties(session_expiry=600)


def stage(**limits: int) -> Stage:
    return Stage(Configuration(limits=Limits(**limits)))


def answer(on: Stage, packet: Connect) -> Connack:
    """Say CONNECT; what the broker answers."""
    channel = on.broker.open(ANYBODY, on.now)
    channel.receive(encode(packet, packet.version), on.now)
    (connack,) = Decoder(packet.version).feed(b"".join(channel.outlet.pieces))
    assert isinstance(connack, Connack)
    on.broker.board.clear()  # nobody reads it
    return connack


def test_sessions_are_counted_and_one_too_many_is_refused() -> None:
    on = stage(sessions=2)
    assert answer(on, Connect("a", properties=LASTING)).reason == 0
    assert answer(on, Connect("b", properties=LASTING)).reason == 0
    assert answer(on, Connect("c", properties=LASTING)).reason == Reason.QUOTA_EXCEEDED
    assert answer(on, Connect("c", Version.V311)).reason == 3  # server unavailable
    assert answer(on, Connect("a", properties=LASTING)).reason == 0  # it has its place
    assert on.broker.counters.connections_refused == 2
    assert set(on.broker.sessions) == {"a", "b"}


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_a_client_id_may_be_so_long_and_no_longer(version: Version) -> None:
    on = stage(client_id_size=100)
    assert answer(on, Connect("x" * 100, version)).reason == 0
    refused = Reason.CLIENT_IDENTIFIER_NOT_VALID if version is Version.V5 else 2
    assert answer(on, Connect("x" * 101, version)).reason == refused
    assert answer(on, Connect("ü" * 51, version)).reason == refused  # bytes, not characters


def test_a_will_may_be_so_large_and_no_larger() -> None:
    on = stage(will_size=100)
    assert answer(on, Connect("a", will=Will("t", bytes(99)))).reason == 0
    assert answer(on, Connect("b", will=Will("t", bytes(100)))).reason == Reason.QUOTA_EXCEEDED
    pairs = Properties(user_properties=[("k", "v" * 98)])
    large = Will("t", b"x", properties=pairs)
    assert answer(on, Connect("c", will=large)).reason == Reason.QUOTA_EXCEEDED


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_a_filter_may_be_so_long_and_no_longer(version: Version) -> None:
    on = stage(filter_size=100)
    reason = Reason.TOPIC_FILTER_INVALID if version is Version.V5 else 0x80
    assert subscribed(on, version, "x" * 100, "x" * 101) == [0, reason]
    assert on.broker.counters.subscriptions_refused == 1


def subscribed(on: Stage, version: Version, *filters: str) -> list[int]:
    channel = on.broker.open(ANYBODY, on.now)
    channel.receive(encode(Connect("reader", version), version), on.now)
    wanted = [(topic_filter, SubscriptionOptions(0)) for topic_filter in filters]
    channel.receive(encode(Subscribe(1, wanted), version), on.now)
    packets = Decoder(version).feed(b"".join(channel.outlet.pieces))
    return [r for packet in packets if isinstance(packet, Suback) for r in packet.reasons]


def test_sessions_take_a_quarter_of_the_memory_at_most() -> None:
    on = stage(memory=8 * FREE)
    size = flow_size("x" * 1000) + tree_size("x" * 1000)
    room = 2 * FREE - session_size("reader")
    filters = [f"{number:04}".ljust(1000, "x") for number in range(room // size + 3)]
    reasons = subscribed(on, Version.V5, *filters)
    assert reasons.count(0) == room // size
    assert reasons[-3:] == [Reason.QUOTA_EXCEEDED] * 3
    assert on.broker.pool.standing <= 2 * FREE
    assert answer(on, Connect("y" * 900)).reason == Reason.QUOTA_EXCEEDED
    assert subscribed(on, Version.V5, filters[0]) == [0]  # it took over: all of it is free again


def test_all_that_was_counted_is_given_back() -> None:
    on = stage()
    will = Will("last/words", b"farewell", properties=Properties(will_delay=5))
    client = Publisher("c", expiry=600)
    wire = on.connect(client)
    on.turn()
    on.commit()
    client.send(Subscribe(1, [("a/b", SubscriptionOptions(1)), ("c", SubscriptionOptions(0))]))
    on.turn()
    on.commit()
    counted = session_size("c") + sum(flow_size(f) + tree_size(f) for f in ("a/b", "c"))
    assert on.broker.pool.standing == counted
    client.send(Unsubscribe(2, ["c"]))
    on.turn()
    on.commit()
    counted -= flow_size("c") + tree_size("c")
    assert on.broker.pool.standing == counted
    wire.close()
    assert on.broker.pool.standing == counted  # the session waits for its client
    on.crash()
    assert on.broker.pool.standing == counted  # and is counted after a restart
    assert answer(on, Connect("c", clean_start=True, will=will)).reason == 0
    assert on.broker.pool.standing == session_size("c") + WILL + len(b"last/wordsfarewell")
    for channel in list(on.broker.channels):
        on.broker.lost(channel, on.now)
    on.broker.timers.run(on.now + 10)
    assert on.broker.pool.standing == 0


@pytest.mark.parametrize(
    ("most", "heard"), [(1, []), (4, []), (5, [0x95]), (15, [0x95]), (16, [0])]
)
def test_a_client_gets_no_packet_larger_than_it_takes(most: int, heard: list[int]) -> None:
    """[MQTT-3.1.2-24], CONNACK included."""
    on = stage()
    channel = on.broker.open(ANYBODY, on.now)
    hello = Connect("c", properties=Properties(maximum_packet_size=most))
    channel.receive(encode(hello, Version.V5), on.now)
    said = b"".join(channel.outlet.pieces)
    assert len(said) <= most
    assert [packet.reason for packet in Decoder(Version.V5).feed(said)] == heard


def test_aliases_are_for_so_many_bytes_of_topics() -> None:
    """A hundred of 64 KB each, for each connection, would be more than anybody has."""
    on = stage()
    channel = on.broker.open(ANYBODY, on.now)
    channel.receive(encode(Connect("c"), Version.V5), on.now)
    channel.outlet.pieces.clear()
    for alias in range(1, 6):
        topic = f"{alias}".ljust(60_000, "x")
        message = Publish(topic, qos=1, packet_id=1, properties=Properties(topic_alias=alias))
        channel.receive(encode(message, Version.V5), on.now)
    answers = Decoder(Version.V5).feed(b"".join(channel.outlet.pieces))
    assert [packet.reason for packet in answers] == [0x10] * 4 + [0x97]


def test_routes_of_long_topics_are_not_kept_without_end() -> None:
    on = stage()
    channel = on.broker.open(ANYBODY, on.now)
    channel.receive(encode(Connect("c"), Version.V5), on.now)
    for number in range(1000):
        topic = f"{number:04}".ljust(4000, "x")
        channel.receive(encode(Publish(topic), Version.V5), on.now)
    assert on.broker.router.cached == sum(
        1 + len(topic) // 256 for topic in on.broker.router.routes
    )
    assert not channel.topics
    on.broker.router.cached = CACHED_ROUTES
    channel.receive(encode(Publish("one more"), Version.V5), on.now)
    assert list(on.broker.router.routes) == [b"one more"]


def test_claims_that_are_kept_are_short_and_few() -> None:
    on = stage()
    channel = on.broker.open(ANYBODY, on.now)
    said = [("category", "x" * 1000), ("application", "a"), ("application", "b")]
    hello = Connect("c", properties=Properties(user_properties=said))
    channel.receive(encode(hello, Version.V5), on.now)
    assert on.broker.sessions["c"].claims == [("application", "b")]
