"""The server's part around the core, without sockets, disk or clock: for tests.

A `Stage` moves bytes between a real `Broker` and clients, and holds a journal in memory that
commits when it is told to. A crash keeps what was committed, exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, cast

from durability.peer import Peer as Client

from headgate.config import Configuration
from headgate.core.access import Exchange, Identity, Login, Peer, Verdict
from headgate.core.accounting import settle
from headgate.core.broker import Broker
from headgate.core.channel import Channel
from headgate.core.journal import (
    Journal,
    Saved,
    StoredDelivery,
    StoredMessage,
    StoredSession,
    StoredSubscription,
    StoredWill,
)
from headgate.core.restoring import restore

Change = tuple[str, tuple[Any, ...]]


class OpenGate:
    """Lets everybody do everything."""

    def authenticate(self, login: Login, answer: Callable[[Verdict], None]) -> None:
        answer(Verdict(Identity(login.username)))

    def exchange(self, method: str, login: Login) -> Exchange | None:
        return None

    def may_publish(self, identity: Identity, client_id: str, topic: str) -> bool:
        return True

    def may_subscribe(self, identity: Identity, client_id: str, topic_filter: str) -> bool:
        return True

    def may_claim(
        self, identity: Identity, client_id: str, what: str, topic: str | None = None
    ) -> bool:
        return True

    def may_receive(self, identity: Identity, client_id: str, topic: str) -> bool:
        return True

    def may_receive_all(self, identity: Identity, client_id: str, topic_filter: str) -> bool:
        return True


class MemoryJournal:
    """Remembers every change; `committed` of them would survive."""

    def __init__(self, before: list[Change] | None = None) -> None:
        self.before = before or []
        self.changes: list[Change] = []
        self.durable = 0

    @property
    def position(self) -> int:
        return len(self.changes)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith(("save_", "drop_", "assign_", "release_")):
            return partial(self._record, name)
        raise AttributeError(name)

    def _record(self, name: str, *arguments: Any) -> None:
        self.changes.append((name, arguments))

    def survivors(self) -> list[Change]:
        return self.before + self.changes[: self.durable]


class Memory:
    """What a list of changes adds up to."""

    def __init__(self, changes: list[Change]) -> None:
        self.sessions: dict[str, StoredSession] = {}
        self.subscriptions: dict[tuple[str, str], StoredSubscription] = {}
        self.messages: dict[int, StoredMessage] = {}
        self.deliveries: dict[tuple[str, int], StoredDelivery] = {}
        self.received: dict[tuple[str, int], None] = {}
        self.retained: dict[bytes, StoredMessage] = {}
        self.wills: dict[str, StoredWill] = {}
        self.last_key = 0
        for name, arguments in changes:
            getattr(self, name)(*arguments)

    def saved(self) -> Saved:
        return Saved(
            list(self.sessions.values()),
            list(self.subscriptions.values()),
            list(self.messages.values()),
            [self.deliveries[key] for key in sorted(self.deliveries)],
            list(self.received),
            list(self.retained.values()),
            list(self.wills.values()),
            {},
            self.last_key,
        )

    def save_session(self, session: StoredSession) -> None:
        self.sessions[session.client_id] = session

    def drop_session(self, client_id: str) -> None:
        self.sessions.pop(client_id, None)
        self.wills.pop(client_id, None)
        for mine in (self.subscriptions, self.deliveries, self.received):
            table = cast(dict[tuple[str, Any], Any], mine)
            for key in [key for key in table if key[0] == client_id]:
                del table[key]

    def save_subscription(self, one: StoredSubscription) -> None:
        self.subscriptions[one.client_id, one.filter] = one

    def drop_subscription(self, client_id: str, topic_filter: str) -> None:
        del self.subscriptions[client_id, topic_filter]

    def save_message(self, message: StoredMessage) -> None:
        self.messages[message.key] = message
        self.last_key = max(self.last_key, message.key)

    def drop_message(self, key: int) -> None:
        del self.messages[key]

    def save_delivery(self, delivery: StoredDelivery) -> None:
        assert delivery.message in self.messages
        self.deliveries[delivery.client_id, delivery.sequence] = delivery

    def assign_packet_id(self, client_id: str, sequence: int, packet_id: int) -> None:
        self._change(client_id, sequence, packet_id=packet_id)

    def release_delivery(self, client_id: str, sequence: int) -> None:
        self._change(client_id, sequence, released=True)

    def _change(self, client_id: str, sequence: int, **fields: Any) -> None:
        old = self.deliveries[client_id, sequence]
        values = {name: getattr(old, name) for name in old.__struct_fields__}
        self.deliveries[client_id, sequence] = StoredDelivery(**(values | fields))

    def drop_delivery(self, client_id: str, sequence: int) -> None:
        self.deliveries.pop((client_id, sequence), None)  # its session may be gone

    def save_received(self, client_id: str, packet_id: int) -> None:
        self.received[client_id, packet_id] = None

    def drop_received(self, client_id: str, packet_id: int) -> None:
        del self.received[client_id, packet_id]

    def save_retained(self, message: StoredMessage) -> None:
        self.retained[message.topic] = message

    def drop_retained(self, topic: bytes) -> None:
        del self.retained[topic]

    def save_will(self, will: StoredWill) -> None:
        self.wills[will.client_id] = will

    def drop_will(self, client_id: str) -> None:
        self.wills.pop(client_id, None)

    def save_value(self, name: str, value: bytes) -> None:
        """Other parts' state; no concern of these tests."""


class Wire:
    """A connection between a client and the broker."""

    def __init__(self, stage: Stage, client: Client, channel: Channel) -> None:
        self.stage = stage
        self.client = client
        self.channel = channel
        self.open = True
        self.stalled = False
        """The client does not read: nothing more fits into its socket."""
        self.unread = b""
        channel.outlet.connection = self
        channel.connection = self

    def flush(self) -> None:
        outlet = self.channel.outlet
        if not self.open:
            return
        if outlet.pieces:
            self.unread += outlet.take()
        if self.stalled:
            outlet.clear = False
            return
        data, self.unread = self.unread, b""
        settle(outlet, self.stage.now)
        session = self.channel.session
        if session is not None and session.link is not None:
            self.stage.broker.drained(session, self.stage.now)
        if data:
            self.client.feed(data)

    def close(self) -> None:
        """The connection is over; what was not read is lost."""
        if self.open:
            self.open = False
            self.client.connected = False
            self.stage.wires.pop(self.client.client_id, None)
            self.stage.broker.lost(self.channel, self.stage.now)


class Stage:
    def __init__(self, config: Configuration | None = None) -> None:
        self.config = config or Configuration()
        self.now = 1_000_000.0
        self.wires: dict[str, Wire] = {}
        self.overhear: Callable[[Client, bytes], None] = lambda client, data: None
        """Called with what a client says, before the broker hears it."""
        self._begin(MemoryJournal())

    def _begin(self, journal: MemoryJournal) -> None:
        self.journal = journal
        self.broker = Broker(self.config, OpenGate(), cast(Journal, journal), Random(1))
        restore(self.broker, Memory(journal.before).saved(), self.now)

    def connect(self, client: Client, clean: bool = False) -> Wire:
        """Open a connection; one that the client has still open becomes somebody else's problem."""
        old = self.wires.pop(client.client_id, None)
        if old is not None:
            old.client = Client("nobody")
            old.stalled = True
        wire = Wire(self, client, self.broker.open(Peer("127.0.0.1"), self.now))
        self.wires[client.client_id] = wire
        client.greet(clean)
        return wire

    def lose(self, client: Client) -> None:
        """The client's connection ends without a word."""
        self.wires[client.client_id].close()

    def turn(self) -> None:
        """Until nobody has anything to say."""
        for _ in range(1000):
            self.now += 0.001
            spoke = False
            for wire in list(self.wires.values()):
                data = wire.client.speak() if wire.open else b""
                if data:
                    spoke = True
                    self.overhear(wire.client, data)
                    wire.channel.receive(data, self.now)
            if not (self._write() or spoke):
                return
        raise AssertionError("broker and clients never stop talking")

    def _write(self) -> bool:
        broker = self.broker
        wrote = bool(broker.board or broker.closing)
        while broker.board or broker.closing:
            waiting = broker.board[:]
            broker.board.clear()
            for outlet in waiting:
                outlet.listed = False
                cast(Wire, outlet.connection).flush()
            ending, broker.closing = broker.closing, []
            for channel in ending:
                cast(Wire, channel.connection).close()
        return wrote

    @property
    def uncommitted(self) -> int:
        """Changes that a crash would undo."""
        return self.journal.position - self.journal.durable

    def commit(self) -> None:
        """All that was recorded so far is durable now, and everybody acts on that."""
        self.journal.durable = self.journal.position
        self.broker.committed(self.journal.position, self.now)
        self.turn()

    def crash(self) -> None:
        """The process is killed, and a new one begins with what was committed."""
        for wire in list(self.wires.values()):
            wire.open = False
            wire.client.connected = False
        self.wires.clear()
        self._begin(MemoryJournal(self.journal.survivors()))
