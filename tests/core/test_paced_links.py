"""Links with a rate: who goes first, and that time goes on."""

from random import Random
from typing import cast

from bench import packets
from core.stage import MemoryJournal, OpenGate
from headgate.config import Configuration
from headgate.contract import LinkSpec, PolicyRule
from headgate.core.access import Peer
from headgate.core.broker import Broker
from headgate.core.channel import Channel
from headgate.core.journal import Journal
from headgate.core.scheduler import pump

NOW = 1_800_000_000.25
"""An epoch time: a float of this size resolves a quarter of a microsecond."""


def slow_broker() -> Broker:
    config = Configuration(
        links=(LinkSpec(name="slow", clients=("app-*",), rate=1e6),),
        policy=(PolicyRule(topic="#", priority=3), PolicyRule(topic="alarm", priority=0)),
    )
    return Broker(config, OpenGate(), cast(Journal, MemoryJournal()), Random(1))


def subscriber(broker: Broker, name: str, topic_filter: str) -> Channel:
    channel = broker.open(Peer("127.0.0.1"), NOW)
    channel.receive(packets.connect(name) + packets.subscribe([topic_filter], 0), NOW)
    channel.outlet.take()
    return channel


def test_of_what_comes_in_one_turn_the_most_important_goes_first_on_an_idle_link() -> None:
    broker = slow_broker()
    other = subscriber(broker, "app-1", "+")
    important = subscriber(broker, "app-2", "alarm")
    device = subscriber(broker, "device", "nothing")
    message = packets.publish("alarm", b"x" * 5000)  # more than the link lets pass at once
    device.receive(message, NOW)
    broker.pace(NOW)
    assert important.outlet.take() == message
    assert not other.outlet.pieces
    broker.timers.run(NOW + 0.1)
    assert other.outlet.take() == message


def test_a_debt_smaller_than_the_clock_resolves_does_not_stop_time() -> None:
    broker = slow_broker()
    subscriber(broker, "app-1", "alarm")
    device = subscriber(broker, "device", "nothing")
    device.receive(packets.publish("alarm", b"x"), NOW)
    (link,) = broker.links
    link.refilled = NOW
    link.tokens = -1e-9
    assert NOW - link.tokens / link.rate == NOW  # what a timer would have been set to
    assert pump(link, NOW) > NOW
