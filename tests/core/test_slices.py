"""Many packets in one read that cost more than others: nobody waits for all of them."""

from __future__ import annotations

from durability.peer import Publisher, Subscriber

from headgate.config import Configuration
from headgate.core.channel import SLOW
from headgate.wire.packets import Disconnect, Puback, Publish, Subscribe, SubscriptionOptions
from headgate.wire.reasons import Reason

from .stage import Stage, Wire


def entered(on: Stage, client: Publisher | Subscriber) -> Wire:
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
