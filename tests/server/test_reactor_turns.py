"""Turns of the loop: what is urgent first, then those that say little, then those that say much."""

import select
import socket
from collections.abc import Iterator
from random import Random
from typing import cast

import pytest
from core.stage import MemoryJournal, OpenGate

from bench import packets
from headgate.config import Configuration
from headgate.core.access import Peer
from headgate.core.broker import Broker
from headgate.core.journal import Journal
from headgate.server.connection import Connection
from headgate.server.reactor import CROWD, Reactor
from headgate.server.transport.plain import PlainStream


class Place:
    """A reactor that turns when it is told to, and clients at the other end of real sockets."""

    def __init__(self) -> None:
        journal = cast(Journal, MemoryJournal())
        self.broker = Broker(Configuration(), OpenGate(), journal, Random(1))
        self.reactor = Reactor()
        self.ends: list[socket.socket] = []

    def client(self, name: str, *filters: str) -> tuple[socket.socket, Connection]:
        mine, theirs = socket.socketpair()
        mine.settimeout(5)
        peer = Peer("127.0.0.1")
        channel = self.broker.open(peer, self.reactor.clock())
        stream = PlainStream(theirs.detach(), peer)
        connection = Connection(self.reactor, self.broker, None, stream, channel)
        self.reactor.connections[connection.fd] = connection
        self.reactor.epoll.register(connection.fd, select.EPOLLIN)
        self.ends += [mine, theirs]
        mine.sendall(packets.connect(name) + (packets.subscribe(filters, 0) if filters else b""))
        self.turn(connection)
        mine.recv(64)
        return mine, connection

    def turn(self, *ready: Connection) -> None:
        self.read(*ready)
        self.reactor.work(60.0)
        self.reactor.send(self.broker, self.reactor.clock())

    def read(self, *ready: Connection) -> int:
        return self.reactor.read(self.broker, [(one.fd, select.EPOLLIN) for one in ready])

    def close(self) -> None:
        self.reactor.epoll.close()
        for end in self.ends:
            end.close()


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.close()


def test_an_urgent_message_leaves_while_others_wait_to_be_processed(place: Place) -> None:
    subscriber, _ = place.client("subscriber", "#")
    device, sender = place.client("device")
    alarm, caller = place.client("alarm")
    device.sendall(packets.publish("noise", b"x"))
    alarm.sendall(packets.publish("$urgent/fire", b"!"))
    place.read(sender, caller)
    assert subscriber.recv(1024) == packets.publish("fire", b"!")
    place.turn()
    assert subscriber.recv(1024) == packets.publish("noise", b"x")


def test_those_that_say_little_do_not_wait_for_those_that_say_much(place: Place) -> None:
    subscriber, _ = place.client("subscriber", "#")
    flood, much = place.client("flood")
    device, little = place.client("device")
    message = packets.publish("flood", b"x" * 2000)
    flood.sendall(message * 3)
    place.turn(much)  # now it is known for it
    place.turn(much)
    assert len(subscriber.recv(65536)) == 3 * len(message)
    flood.sendall(message * 3)
    device.sendall(packets.publish("news", b"!"))
    place.read(much, little)
    place.turn()
    received = subscriber.recv(65536)
    assert received.startswith(packets.publish("news", b"!"))
    assert received.endswith(message)


def test_a_turn_ends_when_its_time_is_over_and_leaves_nobody_behind(place: Place) -> None:
    subscriber, _ = place.client("subscriber", "#")
    clients = [place.client(f"device-{number}") for number in range(5)]
    for number, (end, _) in enumerate(clients):
        end.sendall(packets.publish("count", b"%d" % number))
    assert place.read(*(connection for _, connection in clients)) == 0
    place.reactor.work(-1.0)
    place.reactor.send(place.broker, place.reactor.clock())
    assert subscriber.recv(1024) == packets.publish("count", b"0")
    place.turn()
    assert subscriber.recv(1024) == b"".join(
        packets.publish("count", b"%d" % number) for number in range(1, 5)
    )


def test_what_was_read_is_processed_before_the_same_connection_is_read_again(place: Place) -> None:
    subscriber, _ = place.client("subscriber", "#")
    publisher, connection = place.client("publisher")
    message = packets.publish("many", b"x" * 1000)
    publisher.sendall(message * 20)
    # As a TLS stream that has more to give, while its socket is readable too.
    place.reactor.again(connection)
    assert place.read(connection) == 1
    assert place.read(connection) == 1
    for _ in range(20):
        place.turn(connection)
    expected = message * 20
    received = b""
    while len(received) < len(expected):
        received += subscriber.recv(65536)
    assert received == expected


def test_in_a_crowd_those_are_read_first_that_were_urgent_before(place: Place) -> None:
    subscriber, _ = place.client("subscriber", "#")
    crowd = [place.client(f"device-{number}") for number in range(CROWD)]
    panel, caller = place.client("panel")
    panel.sendall(packets.publish("$urgent/panel", b"1"))
    place.turn(caller)
    assert subscriber.recv(1024) == packets.publish("panel", b"1")
    newcomer, _ = crowd[0]
    newcomer.sendall(packets.publish("$urgent/other", b"2"))
    panel.sendall(packets.publish("$urgent/panel", b"2"))
    place.read(*(connection for _, connection in crowd), caller)
    order = [packets.publish("panel", b"2"), packets.publish("other", b"2")]
    assert subscriber.recv(1024) == b"".join(order)


def test_who_left_is_not_read_for_having_been_urgent(place: Place) -> None:
    crowd = [place.client(f"device-{number}") for number in range(CROWD + 1)]
    panel, caller = place.client("panel")
    panel.sendall(packets.publish("$urgent/panel", b"1"))
    place.turn(caller)
    assert list(place.reactor.hasty.values()) == [caller]
    place.reactor.forget(caller)
    assert not place.reactor.hasty
    place.read(*(connection for _, connection in crowd), caller)
