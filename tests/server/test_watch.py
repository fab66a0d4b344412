"""What stays under way on a link with a rate, asked of real TCP connections."""

import os
import socket
from collections.abc import Iterator
from random import Random
from typing import cast

import pytest
from core.stage import MemoryJournal, OpenGate

from bench import packets
from headgate.config import Configuration
from headgate.contract import LinkSpec
from headgate.core.access import Peer
from headgate.core.broker import Broker
from headgate.core.journal import Journal
from headgate.core.link import SEGMENT, Link
from headgate.server.connection import Connection
from headgate.server.estimator import Estimator
from headgate.server.reactor import Reactor
from headgate.server.tcp import unacknowledged
from headgate.server.transport.plain import PlainStream
from headgate.server.watch import INTERVAL, STALLED, Watch

BEGIN = 1000.0


class Place:
    """A broker with one paced link, and a client behind it that reads when it is told to."""

    def __init__(self) -> None:
        links = (LinkSpec(name="floor", clients=("app-*",), rate=10e6),)
        journal = cast(Journal, MemoryJournal())
        self.broker = Broker(Configuration(links=links), OpenGate(), journal, Random(1))
        self.reactor = Reactor()
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.client = socket.socket()
            self.client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            self.client.settimeout(5)
            self.client.connect(server.getsockname())
            theirs, _ = server.accept()
        peer = Peer("127.0.0.1")
        channel = self.broker.open(peer, BEGIN)
        self.descriptor = theirs.detach()
        stream = PlainStream(self.descriptor, peer)
        self.connection = Connection(self.reactor, self.broker, None, stream, channel)
        channel.receive(packets.connect("app-1"), BEGIN)
        self.watch = Watch(self.broker, Estimator(self.broker, BEGIN), BEGIN)

    @property
    def link(self) -> Link:
        return next(iter(self.broker.links))

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.broker.timers.run(self.broker.timers.due)

    def close(self) -> None:
        self.client.close()
        os.close(self.descriptor)
        self.reactor.epoll.close()


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.close()


def test_what_stays_under_way_is_held_against_the_pace(place: Place) -> None:
    link = place.link
    link.refill(BEGIN)
    link.sent += 1.0
    os.write(place.descriptor, b"x" * 200_000)
    assert unacknowledged(place.descriptor) > 100_000
    while place.broker.timers.due < BEGIN + 3.5 * INTERVAL:
        place.look()
    assert link.tokens < link.burst - 0.4 * INTERVAL * link.rate


def test_a_client_that_no_longer_takes_anything_slows_nobody_for_long(place: Place) -> None:
    link = place.link
    link.sent += 1.0
    os.write(place.descriptor, b"x" * 200_000)
    while place.broker.timers.due <= BEGIN + STALLED + 0.5:
        place.look()
    link.refill(place.broker.timers.due)
    assert link.tokens == link.burst


def test_less_than_a_segment_may_be_an_acknowledgement_held_back(place: Place) -> None:
    link = place.link
    link.refill(BEGIN)
    link.sent += 1.0
    os.write(place.descriptor, b"x" * SEGMENT)
    while place.broker.timers.due <= BEGIN + 5 * INTERVAL:
        place.look()
    link.refill(BEGIN + 6 * INTERVAL)
    assert link.tokens == link.burst
