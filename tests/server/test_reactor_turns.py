"""Turns of the loop: nobody is read twice in one, and in a long one nobody waits for its end."""

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
from headgate.server import reactor as loop
from headgate.server.connection import Connection
from headgate.server.reactor import Reactor
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
        stream = PlainStream(theirs, peer)
        connection = Connection(self.reactor, self.broker, None, stream, channel)
        self.reactor.connections[connection.fd] = connection
        self.reactor.epoll.register(connection.fd, select.EPOLLIN)
        self.ends += [mine, theirs]
        mine.sendall(packets.connect(name) + (packets.subscribe(filters, 0) if filters else b""))
        self.turn(connection)
        mine.recv(64)
        return mine, connection

    def turn(self, *ready: Connection) -> None:
        self.reactor.read(self.broker, [(one.fd, select.EPOLLIN) for one in ready])
        self.reactor.send(self.broker, self.reactor.clock())

    def close(self) -> None:
        self.reactor.epoll.close()
        for end in self.ends:
            end.close()


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.close()


def test_an_urgent_message_that_comes_during_a_long_turn_is_sent_before_its_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "GLANCE", -1.0)  # every turn is a long one
    subscriber, _ = place.client("subscriber", "#")
    busy, first = place.client("busy")
    alarm, _ = place.client("alarm")
    busy.sendall(packets.publish("noise", b"x"))
    alarm.sendall(packets.publish("$urgent/fire", b"!"))  # the poll did not see it yet
    place.reactor.read(place.broker, [(first.fd, select.EPOLLIN)])
    sent = subscriber.recv(1024)
    assert packets.publish("fire", b"!") in sent


def test_what_was_read_is_processed_before_the_same_connection_is_read_again(place: Place) -> None:
    subscriber, _ = place.client("subscriber", "#")
    publisher, connection = place.client("publisher")
    message = packets.publish("many", b"x" * 1000)
    publisher.sendall(message * 20)
    # As a TLS stream that has more to give, while its socket is readable too.
    place.reactor.again(connection)
    place.turn(connection)
    for _ in range(20):
        place.turn(connection)
    expected = message * 20
    received = b""
    while len(received) < len(expected):
        received += subscriber.recv(65536)
    assert received == expected
