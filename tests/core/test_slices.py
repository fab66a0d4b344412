"""Many packets in one read that cost more than others: nobody waits for all of them."""

from __future__ import annotations

import pytest
from durability.peer import Peer, Publisher, Subscriber

from headgate.config import Configuration
from headgate.config.limits import Limits
from headgate.core.channel import SLOW
from headgate.core.subscribing import SLICE
from headgate.wire.codec import encode
from headgate.wire.decoding import MOST_FILTERS
from headgate.wire.packets import (
    Disconnect,
    Properties,
    Puback,
    Publish,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
    Version,
)
from headgate.wire.properties import MOST_USER_PROPERTIES
from headgate.wire.reasons import Reason

from .stage import Stage, Wire

# Of `core/channel.py`, where the compiled module keeps them to itself.
EFFORT = 5_000
LARGE = 64 * 1024


def entered(on: Stage, client: Peer) -> Wire:
    wire = on.connect(client)
    on.turn()
    return wire


def in_slices(on: Stage, wire: Wire, data: bytes) -> int:
    """Handle what one read brought as the server does; returns in how many goes."""
    channel = wire.channel
    goes = 0
    more = channel.take(data, on.now)
    while more:
        channel.process(on.now)
        goes += 1
        more = channel.unfinished and channel.take(b"", on.now)
    return goes


def test_a_flood_of_subscribe_is_handled_in_slices() -> None:
    on = Stage(Configuration())
    client = Subscriber("reader", expiry=0)
    wire = entered(on, client)
    for number in range(3 * SLOW):
        client.send(Subscribe(number + 1, [(f"t/{number}", SubscriptionOptions(0))]))
    assert wire.channel.take(client.speak(), on.now)
    wire.channel.process(on.now)
    assert on.broker.router.subscriptions == SLOW
    assert in_slices(on, wire, b"") == 2
    assert on.broker.router.subscriptions == 3 * SLOW
    assert not wire.channel.unfinished


def test_what_was_routed_early_is_not_routed_again_in_a_later_slice() -> None:
    on = Stage(Configuration())
    reader = Subscriber("reader", expiry=0)
    entered(on, reader)
    reader.send(Subscribe(1, [("t/#", SubscriptionOptions(0))]))
    on.turn()
    sender = Publisher("sender", expiry=0)
    wire = entered(on, sender)
    for number in range(SLOW + 3):
        # With a reason code it is not the short form that the hot path reads.
        sender.send(Puback(number + 1, Reason.NO_MATCHING_SUBSCRIBERS))
    sender.send(Publish("$urgent/t/fire", b"now"))
    sender.send(Publish("t/plain", b"later"))
    assert in_slices(on, wire, sender.speak()) == 2
    on.turn()
    assert [message.payload for message in reader.messages] == [b"now", b"later"]


def test_nothing_is_left_to_do_after_the_end() -> None:
    on = Stage(Configuration())
    client = Subscriber("reader", expiry=0)
    wire = entered(on, client)
    for number in range(SLOW - 1):
        client.send(Subscribe(number + 1, [("t", SubscriptionOptions(0))]))
    client.send(Disconnect())
    client.send(Subscribe(1, [("late", SubscriptionOptions(0))]))
    assert in_slices(on, wire, client.speak()) <= 2
    assert on.broker.router.subscriptions == 0


def filters(count: int) -> list[tuple[str, SubscriptionOptions]]:
    return [(f"t/{number}", SubscriptionOptions(0)) for number in range(count)]


def test_a_long_subscribe_is_handled_in_slices_and_answered_once() -> None:
    on = Stage(Configuration())
    client = Peer("reader", expiry=0)
    wire = entered(on, client)
    client.send(Subscribe(1, filters(3 * SLICE + 1)))
    assert wire.channel.take(client.speak(), on.now)
    wire.channel.process(on.now)
    assert on.broker.router.subscriptions == SLICE
    assert in_slices(on, wire, b"") == 3
    assert on.broker.router.subscriptions == 3 * SLICE + 1
    on.turn()
    (answer,) = [packet for packet in client.other if isinstance(packet, Suback)]
    assert answer.reasons == [0] * (3 * SLICE + 1)


def test_what_comes_after_a_long_packet_waits_for_it() -> None:
    on = Stage(Configuration())
    client = Peer("reader", expiry=0)
    entered(on, client)
    client.send(Subscribe(1, filters(3 * SLICE)))
    client.send(Unsubscribe(2, [name for name, _ in filters(3 * SLICE)]))
    client.send(Subscribe(3, filters(1)))
    on.turn()
    answers = [type(packet) for packet in client.other]
    assert answers == [Suback, Unsuback, Suback]
    assert on.broker.router.subscriptions == 1


def test_a_connection_that_ends_within_a_long_packet_leaves_the_session_in_order() -> None:
    on = Stage(Configuration())
    client = Subscriber("reader")
    wire = entered(on, client)
    client.send(Subscribe(1, filters(3 * SLICE)))
    assert wire.channel.take(client.speak(), on.now)
    wire.channel.process(on.now)
    on.lose(client)
    wire.channel.process(on.now)
    assert on.broker.router.subscriptions == SLICE
    entered(on, client)
    client.send(Subscribe(2, filters(3 * SLICE)))
    on.turn()
    assert on.broker.router.subscriptions == 3 * SLICE


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_more_filters_than_one_packet_may_have_are_refused(version: Version) -> None:
    on = Stage(Configuration())
    client = Subscriber("reader", version, expiry=0)
    entered(on, client)
    client.send(Subscribe(1, filters(MOST_FILTERS + 1)))
    on.turn()
    assert not client.connected
    assert on.broker.router.subscriptions == 0
    if version is Version.V5:
        assert client.farewell is not None
        assert client.farewell.reason == Reason.QUOTA_EXCEEDED


@pytest.mark.parametrize("more", [0, 1])
def test_a_message_has_no_more_user_properties_than_it_may(more: int) -> None:
    on = Stage(Configuration())
    client = Publisher("sender", expiry=0)
    entered(on, client)
    many = Properties(user_properties=[("", "")] * (MOST_USER_PROPERTIES + more))
    client.send(Publish("t", b"", properties=many))
    on.turn()
    assert client.connected == (more == 0)
    if more:
        assert client.farewell is not None
        assert client.farewell.reason == Reason.QUOTA_EXCEEDED


def test_messages_that_are_hard_to_route_are_handled_one_at_a_time() -> None:
    """Every level of a topic that may be a name or a wildcard doubles what has to be looked at."""
    on = Stage(Configuration())
    reader = Subscriber("reader", expiry=0)
    entered(on, reader)
    levels = 1
    while 2**levels < EFFORT:
        levels += 1
    wilds = [""]
    for _ in range(levels):
        wilds = [f"{head}{level}/" for head in wilds for level in "a+"]
    some = [(f"{wild}z", SubscriptionOptions(0)) for wild in wilds]
    for start in range(0, len(some), 1000):
        reader.send(Subscribe(1 + start, some[start : start + 1000]))
    on.turn()
    assert on.broker.router.subscriptions == 2**levels
    sender = Publisher("sender", expiry=0)
    wire = entered(on, sender)
    for number in range(3):
        sender.send(Publish(levels * "a/" + f"q{number}", b""))
    assert in_slices(on, wire, sender.speak()) == 3


def test_unfinished_packets_count_as_memory() -> None:
    room = 1024 * 1024
    on = Stage(Configuration(limits=Limits(memory=2 * room)))
    large = encode(Publish("t", bytes(room)), Version.V5)
    senders = [Publisher(f"sender-{number}", expiry=0) for number in range(3)]
    wires = [entered(on, sender) for sender in senders]
    for wire in wires:
        wire.channel.receive(large[: room // 3], on.now)
        wire.channel.receive(large[room // 3 : room // 2], on.now)
    on.turn()
    assert [sender.connected for sender in senders] == [True, True, False]
    assert senders[2].farewell is not None
    assert senders[2].farewell.reason == Reason.QUOTA_EXCEEDED
    assert on.broker.pool.arriving == 2 * (room // 2)
    on.lose(senders[0])
    wires[1].channel.receive(large[room // 2 :], on.now)
    assert on.broker.pool.arriving == 0
    assert on.broker.counters.messages_received == 1


def test_small_packets_that_are_not_complete_count_for_nothing() -> None:
    on = Stage(Configuration(limits=Limits(memory=1024)))
    sender = Publisher("sender", expiry=0)
    wire = entered(on, sender)
    wire.channel.receive(encode(Publish("t", bytes(LARGE)), Version.V5)[:LARGE], on.now)
    assert on.broker.pool.arriving == 0
    on.turn()
    assert sender.connected
