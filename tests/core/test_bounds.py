"""What clients may have the broker remember: counted to the byte, refused with the right reason."""

from __future__ import annotations

import pytest
from durability.peer import Publisher

from headgate.config import Configuration, Limits
from headgate.core.access import Peer
from headgate.core.bounds import flow_size, session_size
from headgate.core.link import FREE
from headgate.wire.codec import Decoder, encode
from headgate.wire.packets import (
    Connack,
    Connect,
    Properties,
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
    size = flow_size("x" * 1000)
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
    counted = session_size("c") + flow_size("a/b") + flow_size("c")
    assert on.broker.pool.standing == counted
    client.send(Unsubscribe(2, ["c"]))
    on.turn()
    on.commit()
    counted -= flow_size("c")
    assert on.broker.pool.standing == counted
    wire.close()
    assert on.broker.pool.standing == counted  # the session waits for its client
    on.crash()
    assert on.broker.pool.standing == counted  # and is counted after a restart
    assert answer(on, Connect("c", clean_start=True, will=will)).reason == 0
    assert on.broker.pool.standing == session_size("c") + len(b"last/wordsfarewell")
    for channel in list(on.broker.channels):
        on.broker.lost(channel, on.now)
    on.broker.timers.run(on.now + 10)
    assert on.broker.pool.standing == 0
