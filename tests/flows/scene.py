"""A broker on a stage: no sockets, no disk, and a clock that a test moves by hand.

A `Scene` does to a real `Broker` what the reactor does: it takes what every client says in a turn,
writes what is urgent, processes the rest, looks at the paced links and writes. Clients do nothing
by themselves except acknowledge, if they are told to.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, TypeVar, cast

from headgate.config import Configuration
from headgate.core.access import Exchange, Identity, Login, Peer, Verdict
from headgate.core.accounting import settle
from headgate.core.broker import Broker
from headgate.core.channel import Channel
from headgate.core.flows import Flow
from headgate.core.journal import Journal, NoJournal
from headgate.core.reasons import Drop
from headgate.core.session import Session
from headgate.core.states import CLOSING
from headgate.wire.codec import Decoder, encode
from headgate.wire.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    SubscriptionOptions,
    Version,
)

START = 1_700_000_000.0
"""An epoch time of today's size: it is there that floating-point seconds are coarsest."""

URGENT_TYPE = 0x00
CRITICAL_TYPE = 0xF0

P = TypeVar("P", bound=Packet)


class Gate:
    """Lets everybody in; what clients may do is for the test to change."""

    def __init__(self) -> None:
        self.claimants: Callable[[str, str], bool] = lambda client_id, what: True
        self.publishers: Callable[[str, str], bool] = lambda client_id, topic: True

    def authenticate(self, login: Login, answer: Callable[[Verdict], None]) -> None:
        answer(Verdict(Identity(login.username)))

    def exchange(self, method: str, login: Login) -> Exchange | None:
        return None

    def may_publish(self, identity: Identity, client_id: str, topic: str) -> bool:
        return self.publishers(client_id, topic)

    def may_subscribe(self, identity: Identity, client_id: str, topic_filter: str) -> bool:
        return True

    def may_receive(self, identity: Identity, client_id: str, topic: str) -> bool:
        return True

    def may_receive_all(self, identity: Identity, client_id: str, topic_filter: str) -> bool:
        return True

    def may_claim(
        self, identity: Identity, client_id: str, what: str, topic: str | None = None
    ) -> bool:
        return self.claimants(client_id, what)


class SlowJournal(NoJournal):
    """Counts changes; they are durable when the scene commits."""

    def __init__(self) -> None:
        super().__init__()
        self.durable = 0

    def __getattribute__(self, name: str) -> Any:
        if name.startswith(("save_", "drop_", "assign_", "release_")):
            self.position += 1
        return super().__getattribute__(name)

    def assign_packet_id(self, client_id: str, sequence: int, packet_id: int) -> None: ...
    def release_delivery(self, client_id: str, sequence: int) -> None: ...


class Client:
    """One end of a connection; the other is a `Channel`."""

    def __init__(self, scene: Scene, channel: Channel, version: Version) -> None:
        self.scene = scene
        self.channel = channel
        self.version = version
        self.client_id = ""
        self.open = True
        self.acknowledges = False
        """Answers whatever the protocol wants answered, in the next turn."""
        self.room: int | None = None
        """Bytes that its socket still takes; None is no end."""
        self.heard: list[Packet] = []
        self.arrivals: list[tuple[float, int]] = []
        """When how many bytes came."""
        self.outbox = b""
        self._unanswered: list[Packet] = []
        self._rest = b""
        self._decoder = Decoder(version)
        self._packet_ids = itertools.count(1)
        channel.outlet.connection = self
        channel.connection = self

    # What it says

    def say(self, *packets: Packet | bytes) -> None:
        """Say it in the next turn, all in one read."""
        for packet in packets:
            self.outbox += packet if isinstance(packet, bytes) else encode(packet, self.version)

    def next_id(self) -> int:
        return next(self._packet_ids)

    def subscribe(
        self, topic_filter: str, qos: int = 0, properties: Properties | None = None, **options: Any
    ) -> None:
        """SUBSCRIBE, and see it granted."""
        self.say(
            Subscribe(
                self.next_id(),
                [(topic_filter, SubscriptionOptions(qos, **options))],
                properties or Properties(),
            )
        )
        self.scene.turn()
        flow = self.flow(topic_filter)
        assert flow.qos == qos

    def publish(self, topic: str, payload: bytes = b"", qos: int = 0, **fields: Any) -> None:
        """PUBLISH in a turn of its own."""
        self.say(Publish(topic, payload, qos, packet_id=self.next_id() if qos else 0, **fields))
        self.scene.turn()

    def ask(self, size: int) -> None:
        """Let the socket take `size` bytes more."""
        assert self.room is not None
        self.room += size
        self.flush()
        self.scene.turn()

    def read_all(self) -> None:
        """From now on, take everything."""
        self.room = None
        self.flush()
        self.scene.turn()

    def drop(self) -> None:
        """Lose the connection without a word."""
        self.close()
        self.scene.turn()

    def leave(self) -> None:
        """Say goodbye."""
        self.say(Disconnect())
        self.scene.turn()

    # What it knows of the broker

    @property
    def session(self) -> Session:
        return self.scene.broker.sessions[self.client_id]

    def flow(self, topic_filter: str) -> Flow:
        flow: Flow = self.session.flows[topic_filter]
        return flow

    # What it heard

    def take(self, kind: type[P]) -> list[P]:
        """Everything of a kind that it heard since the last time."""
        found = [packet for packet in self.heard if isinstance(packet, kind)]
        self.heard = [packet for packet in self.heard if not isinstance(packet, kind)]
        return found

    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.take(Publish)]

    def received_size(self) -> int:
        return sum(size for _, size in self.arrivals)

    def _hear(self, data: bytes) -> None:
        self.arrivals.append((self.scene.now, len(data)))
        for packet in self._decoder.feed(data):
            self.heard.append(packet)
            if self.acknowledges:
                self._acknowledge(packet)
            else:
                self._unanswered.append(packet)

    def catch_up(self, acknowledges: bool) -> None:
        """Acknowledge all that came on this connection and was not, or nothing from now on."""
        if acknowledges and not self.acknowledges:
            for packet in self._unanswered:
                self._acknowledge(packet)
        self._unanswered.clear()
        self.acknowledges = acknowledges

    def _acknowledge(self, packet: Packet) -> None:
        match packet:
            case Publish(qos=1, packet_id=packet_id):
                self.say(Puback(packet_id))
            case Publish(qos=2, packet_id=packet_id):
                self.say(Pubrec(packet_id))
            case Pubrel(packet_id=packet_id):
                self.say(Pubcomp(packet_id))
            case Pubrec(packet_id=packet_id, reason=reason) if reason < 0x80:
                self.say(Pubrel(packet_id))

    # The connection, as the server sees it

    def writable(self) -> bool:
        return self.room is None or self.room > 0

    def process(self, now: float) -> None:
        self.channel.process(now)

    def flush(self) -> None:
        if not self.open:
            return
        outlet = self.channel.outlet
        if outlet.pieces:
            self._rest += outlet.take()
        taken = len(self._rest) if self.room is None else min(self.room, len(self._rest))
        if taken:
            data, self._rest = self._rest[:taken], self._rest[taken:]
            if self.room is not None:
                self.room -= taken
            self._hear(data)
        if self._rest:
            outlet.clear = False
            outlet.size = len(self._rest)
            return
        settle(outlet, self.scene.now)
        session = self.channel.session
        if session is not None and session.link is not None:
            self.scene.broker.drained(session, self.scene.now)

    def close(self) -> None:
        if self.open:
            self.open = False
            self.scene.clients.remove(self)
            self.scene.broker.lost(self.channel, self.scene.now)


class Scene:
    def __init__(
        self,
        config: Configuration | None = None,
        *,
        gate: Gate | None = None,
        journal: Journal | None = None,
        seed: int = 1,
    ) -> None:
        self.now = START
        self.gate = gate or Gate()
        self.journal = journal or NoJournal()
        self.broker = Broker(config or Configuration(), self.gate, self.journal, Random(seed))
        self.clients: list[Client] = []

    def connect(
        self,
        client_id: str,
        version: Version = Version.V5,
        *,
        address: str = "127.0.0.1",
        acknowledges: bool = True,
        **fields: Any,
    ) -> Client:
        """A client whose CONNECT was accepted. `fields` are those of `Connect`."""
        channel = self.broker.open(Peer(address), self.now)
        client = Client(self, channel, version)
        client.client_id = client_id
        client.acknowledges = acknowledges
        self.clients.append(client)
        client.say(Connect(client_id, version, **fields))
        self.turn()
        if client.channel.outlet.held:
            self.commit()  # CONNACK waits for what CONNECT changed
        (answer,) = client.take(Connack)
        assert answer.reason == 0
        return client

    # Turns

    def turn(self) -> None:
        """Turns of the loop, until nobody has anything to say."""
        for _ in range(10_000):
            speakers = [client for client in self.clients if client.outbox]
            if not speakers and not self.broker.pool.paced and not self._write():
                return
            self.read(speakers)
            if self.broker.pool.paced:
                self.broker.pace(self.now)
            self._write()
        raise AssertionError("broker and clients never stop talking")

    def read(self, speakers: list[Client]) -> None:
        """One turn's input, in the reactor's two steps."""
        taken = []
        for client in speakers:
            data, client.outbox = client.outbox, b""
            if client.channel.state < CLOSING and client.channel.take(data, self.now):
                taken.append(client)
        if self.broker.pool.hurry:
            self.broker.pool.hurry = False
            self._flush_board()
        for client in taken:
            if client.open:
                client.channel.process(self.now)

    def _write(self) -> bool:
        broker = self.broker
        wrote = bool(broker.board or broker.closing)
        while broker.board or broker.closing:
            self._flush_board()
            ending, broker.closing = broker.closing, []
            for channel in ending:
                client = cast(Client, channel.connection)
                client.flush()
                client.close()
        return wrote

    def _flush_board(self) -> None:
        board = self.broker.board
        waiting = board[:]
        board.clear()
        for outlet in waiting:
            outlet.listed = False
            cast(Client, outlet.connection).flush()

    # Time

    def advance(self, seconds: float) -> None:
        """Let time pass; every timer runs when it is due, and clients answer at once."""
        end = self.now + seconds
        self.turn()
        timers = self.broker.timers
        while timers.due <= end:
            self.now = max(self.now, timers.due)
            timers.run(self.now)
            self.turn()
        self.now = end
        self.turn()

    def commit(self) -> None:
        """What the journal has is durable."""
        while self.broker.pool.durable < self.journal.position:
            self.broker.committed(self.journal.position, self.now)
            self.turn()

    # Looking inside

    def flows(self) -> Iterator[Flow]:
        for session in self.broker.sessions.values():
            yield from session.flows.values()


def drops(flow: Flow) -> dict[Drop, int]:
    """What a flow lost, by reason."""
    return {reason: flow.drops[reason] for reason in Drop if flow.drops[reason]}


def lasting(seconds: int = 3600, **fields: Any) -> Properties:
    """MQTT 5 properties of a CONNECT whose session outlives its connection."""
    return Properties(session_expiry=seconds, **fields)


def claimed(rank: str, **fields: Any) -> Properties:
    """MQTT 5 properties that call a message urgent or critical."""
    return Properties(user_properties=[("class", rank)], **fields)


def emergency(
    kind: int, topic: str, payload: bytes = b"", qos: int = 0, packet_id: int = 0, dup: bool = False
) -> bytes:
    """p-MQTT's packet for MQTT 3.1.1: PUBLISH with another type (§2.1)."""
    plain = encode(Publish(topic, payload, qos, dup=dup, packet_id=packet_id), Version.V311)
    return bytes([kind | (plain[0] & 0x0F)]) + plain[1:]
