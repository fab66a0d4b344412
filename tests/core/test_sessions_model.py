"""Sessions against a simple reference: who must receive what, how often at least and at most.

Several clients connect, part, subscribe, publish at every QoS, read or do not, acknowledge or do
not, and the broker crashes now and then. The reference knows nothing of queues, windows,
identifiers or commits; it only counts what each message owes to each client.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from durability.peer import Peer, Publisher, Received, Subscriber
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from headgate.config import Configuration
from headgate.config.limits import Limits
from headgate.core.session import NEVER
from headgate.wire.codec import Decoder
from headgate.wire.packets import (
    Disconnect,
    Properties,
    Publish,
    Pubrel,
    Subscribe,
    SubscriptionOptions,
    Unsubscribe,
    Version,
)

from .stage import Memory, Stage

TOPICS = ["a", "a/b", "b/b"]
FILTERS = [["a", "a/b", "a/+", "a/#", "#", "+/b", "+"], ["a", "+/b"], ["+", "a/b", "b/#"]]
"""By client. Each subscription is a flow of its own, with its own order. The first client can tell
its flows apart by their identifiers; the others have filters that do not overlap.
"""
UNBOUNDED = 1 << 30
WHO = st.integers(0, 2)
WHICH = st.integers(0, 6)
QOS = st.sampled_from([2, 2, 1, 0])
RECEIVE_MAXIMUM = st.sampled_from([1, 2, None])
SELDOM = st.sampled_from([False, False, False, True])
MOSTLY = st.sampled_from([True, True, True, False])


class Client(Publisher, Subscriber):
    """A client that does everything, and tells the reference what it got."""

    def __init__(self, client_id: str, version: Version) -> None:
        super().__init__(client_id, version, window=5)
        self.session = False
        """Is there a session, as far as this client knows?"""


@dataclass
class Owed:
    """How often a message must and may come to one client at one QoS."""

    least: int = 0
    most: int = 0
    got: int = 0


@dataclass
class Account:
    """What the reference knows of one client's session."""

    subscriptions: dict[str, int] = field(default_factory=dict)
    owed: dict[tuple[int, int], Owed] = field(default_factory=dict)
    """By number and QoS."""
    origins: Counter[tuple[int, int, str]] = field(default_factory=Counter)
    """How much of it is owed for the sake of which filter."""
    newest: dict[tuple[str, str, int, tuple[int, ...]], int] = field(default_factory=dict)
    """The newest number that came, by topic, publisher, QoS and subscription identifier."""
    unreleased: set[int] = field(default_factory=set)
    """Identifiers of QoS 2 messages that the broker took from this client and must know again."""
    safely_unreleased: set[int] = field(default_factory=set)

    def owe(self, number: int, qos: int, topic_filter: str, again: bool) -> None:
        owed = self.owed.setdefault((number, qos), Owed())
        owed.least += 1
        owed.most = UNBOUNDED if qos == 1 and again else owed.most + 1
        self.origins[number, qos, topic_filter] += 1

    def waive(self, qos: int | None = None) -> None:
        """What has not come need not come."""
        for (_, of), owed in self.owed.items():
            if qos is None or of == qos:
                owed.least = min(owed.least, owed.got)

    def end(self) -> None:
        """The session is over: nothing of it may come any more."""
        self.waive()
        for owed in self.owed.values():
            owed.most = min(owed.most, owed.got)
        self.subscriptions.clear()
        self.origins.clear()
        self.unreleased.clear()
        self.safely_unreleased.clear()


def matches(topic_filter: str, topic: str) -> bool:
    """The rules of MQTT 5 §4.7.1, as plainly as they can be said."""
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted = wanted[:-1]
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(
        one in ("+", other) for one, other in zip(wanted, levels, strict=True)
    )


class Sessions(RuleBasedStateMachine):
    clients: list[Client]

    @initialize(
        inflight=st.sampled_from([1, 3, 1000]),
        receive_maximum=RECEIVE_MAXIMUM,
        first=st.tuples(*[st.tuples(WHICH, QOS)] * 3),
    )
    def begin(
        self, inflight: int, receive_maximum: int | None, first: tuple[tuple[int, int], ...]
    ) -> None:
        self.stage = Stage(Configuration(limits=Limits(inflight=inflight)))
        self.stage.overhear = self.overhear
        self.clients = [
            Client("modern", Version.V5),
            Client("old", Version.V311),
            Client("other", Version.V5),
        ]
        self.accounts = {client.client_id: Account() for client in self.clients}
        self.published: list[tuple[str, str]] = []
        """Topic and publisher of each number."""
        self.repeated: set[int] = set()
        """Numbers that were sent to the broker again, after later ones."""
        self.uncommitted: list[tuple[str, int, int, str]] = []
        """Debts that a crash would undo: client, number, QoS, filter."""
        self.ever_retained: set[int] = set()
        for who, (which, qos) in enumerate(first):
            self.connect(who, False, True, receive_maximum)
            self.subscribe(who, which, qos)

    # The reference

    def overhear(self, speaker: Peer, data: bytes) -> None:
        """A client speaks: what does the broker owe to whom from now on?"""
        assert isinstance(speaker, Client)
        account = self.accounts[speaker.client_id]
        for packet in Decoder(speaker.version).feed(data):
            if isinstance(packet, Publish):
                if packet.qos == 2:
                    if packet.packet_id in account.unreleased:
                        continue
                    account.unreleased.add(packet.packet_id)
                self.accept(packet)
            elif isinstance(packet, Pubrel):
                account.unreleased.discard(packet.packet_id)

    def accept(self, packet: Publish) -> None:
        if not packet.payload:
            return
        if packet.retain:
            self.ever_retained.add(int(packet.payload))
        if packet.dup:
            self.repeated.add(int(packet.payload))
        for client in self.clients:
            if not client.session:
                continue
            account = self.accounts[client.client_id]
            for topic_filter, granted in account.subscriptions.items():
                if matches(topic_filter, packet.topic):
                    qos = min(granted, packet.qos)
                    if qos or client.connected:
                        self.owe(client, int(packet.payload), qos, topic_filter, packet.dup)

    def owe(self, client: Client, number: int, qos: int, topic_filter: str, again: bool) -> None:
        self.accounts[client.client_id].owe(number, qos, topic_filter, again)
        self.uncommitted.append((client.client_id, number, qos, topic_filter))

    def check(self) -> None:
        """What came since the last time may come, and in this order."""
        for client in self.clients:
            for message in client.messages:
                if message.payload:
                    self.check_message(client, message)
            client.messages.clear()

    def check_message(self, client: Client, message: Received) -> None:
        number, account = int(message.payload), self.accounts[client.client_id]
        if message.retain:
            # By a replay, of which only this is said here: test_replay.py says the rest.
            assert number in self.ever_retained, f"{client.client_id} got {message} from nowhere"
            assert message.topic == self.published[number][0]
            return
        owed = account.owed.get((number, message.qos))
        assert owed is not None, f"{client.client_id} got {message}, which is not owed"
        first = owed.got == 0
        if message.qos != 1 or not message.dup:
            owed.got += 1
            assert owed.got <= owed.most, f"{client.client_id} got {message} too often"
        elif owed.got == 0:
            owed.got = 1
        topic, publisher = self.published[number]
        assert message.topic == topic
        if number in self.repeated:
            return  # from the past: no order with what is live
        identifiers = message.properties.subscription_identifiers
        stream = (topic, publisher, message.qos, tuple(identifiers))
        if first:
            newest = account.newest.get(stream, -1)
            assert number >= newest, f"{client.client_id} got {number} after {newest}"
        account.newest[stream] = max(number, account.newest.get(stream, -1))

    def settle(self) -> None:
        self.stage.turn()
        self.check()

    def commit_now(self) -> None:
        """Until nothing is left to commit."""
        while self.stage.uncommitted:
            self.commit()

    # Connecting and parting

    @rule(who=WHO, clean=SELDOM, lasting=MOSTLY, receive_maximum=RECEIVE_MAXIMUM)
    def connect(self, who: int, clean: bool, lasting: bool, receive_maximum: int | None) -> None:
        client = self.clients[who]
        if who == 0:
            client.receive_maximum = receive_maximum
        if client.version == Version.V311:
            lasting = not clean
        self.part(client)
        if clean:
            self.end_session(client)
        expected = client.session
        client.expiry = NEVER if lasting else 0
        self.stage.connect(client, clean)
        self.settle()
        assert not (lasting and client.connack)  # it promises what is not committed yet
        self.commit_now()
        assert client.connack is not None
        assert client.connack.session_present == expected
        client.session = True

    def part(self, client: Client) -> None:
        """Its connection, if it has one, is or will be over."""
        if client.connected:
            client.connected = False
            self.accounts[client.client_id].waive(0)
            if self.ends_with_connection(client):
                self.end_session(client)

    @staticmethod
    def ends_with_connection(client: Client) -> bool:
        assert client.connack is not None
        return client.expiry == 0

    def end_session(self, client: Client) -> None:
        client.session = False
        client.forget_session()
        self.accounts[client.client_id].end()
        self.uncommitted = [one for one in self.uncommitted if one[0] != client.client_id]

    @rule(who=WHO, politely=st.booleans())
    def disconnect(self, who: int, politely: bool) -> None:
        client = self.clients[who]
        if not client.connected:
            return
        if politely:
            client.send(Disconnect())
            self.settle()
        else:
            self.stage.lose(client)
            self.settle()
        client.connected = True  # as it was; `part` looks at it
        self.part(client)

    # Subscribing

    @rule(who=WHO, which=WHICH, qos=QOS)
    def subscribe(self, who: int, which: int, qos: int) -> None:
        client = self.clients[who]
        number = which % len(FILTERS[who])
        topic_filter = FILTERS[who][number]
        if not client.connected:
            return
        self.settle()
        self.commit_now()
        account = self.accounts[client.client_id]
        account.subscriptions[topic_filter] = qos
        client.granted = []
        properties = Properties(subscription_identifiers=[number + 1] if who == 0 else [])
        client.send(Subscribe(1, [(topic_filter, SubscriptionOptions(qos))], properties))
        self.settle()
        self.commit_now()
        if not self.stage.wires[client.client_id].stalled:
            assert client.granted == [qos]

    @rule(who=WHO, which=WHICH)
    def unsubscribe(self, who: int, which: int) -> None:
        client = self.clients[who]
        topic_filter = FILTERS[who][which % len(FILTERS[who])]
        account = self.accounts[client.client_id]
        if not client.connected or topic_filter not in account.subscriptions:
            return
        del account.subscriptions[topic_filter]
        client.send(Unsubscribe(1, [topic_filter]))
        self.settle()
        self.commit_now()
        for (number, qos, origin), count in list(account.origins.items()):
            if origin == topic_filter:
                account.owed[number, qos].least -= count
                del account.origins[number, qos, origin]

    # Publishing and receiving

    @rule(
        who=WHO,
        topic=st.sampled_from(TOPICS),
        qos=QOS,
        count=st.integers(1, 6),
        retain=SELDOM,
    )
    def publish(self, who: int, topic: str, qos: int, count: int, retain: bool) -> None:
        client = self.clients[who]
        if not client.connected or client.backlog:
            return
        for _ in range(count):
            payload = b"%d" % len(self.published)
            self.published.append((topic, client.client_id))
            if qos:
                client.publish(topic, payload, qos, retain)
            else:
                client.send(Publish(topic, payload, 0, retain))
        self.settle()

    @rule(topic=st.sampled_from(TOPICS), qos=st.integers(1, 2))
    def publish_by_all(self, topic: str, qos: int) -> None:
        for who in range(len(self.clients)):
            self.publish(who, topic, qos, 2, retain=False)

    @rule(who=WHO, topic=st.sampled_from(TOPICS))
    def remove_retained(self, who: int, topic: str) -> None:
        client = self.clients[who]
        if client.connected:
            client.send(Publish(topic, b"", 0, retain=True))
            self.settle()

    @rule(who=WHO, holding=st.booleans())
    def hold_acknowledgements(self, who: int, holding: bool) -> None:
        self.clients[who].holding = holding
        self.settle()

    @rule(who=WHO)
    def stall_or_read(self, who: int) -> None:
        wire = self.stage.wires.get(self.clients[who].client_id)
        if wire is not None:
            wire.stalled = not wire.stalled
            wire.flush()
            self.settle()

    @rule()
    def commit(self) -> None:
        """What happened so far is safe. What follows from it at once is not yet."""
        self.uncommitted.clear()
        for account in self.accounts.values():
            account.safely_unreleased = set(account.unreleased)
        self.stage.commit()
        self.check()

    @rule(commits=st.integers(0, 2), back=MOSTLY)
    @precondition(lambda self: self.published)
    def crash(self, commits: int, back: bool) -> None:
        for _ in range(commits):
            self.commit()
        self.stage.crash()
        for client_id, number, qos, topic_filter in self.uncommitted:
            account = self.accounts[client_id]
            owed = account.owed[number, qos]
            owed.least -= 1
            if qos == 2:  # never sent before its commit
                owed.most -= 1
            account.origins[number, qos, topic_filter] -= 1
        self.uncommitted.clear()
        for client in self.clients:
            account = self.accounts[client.client_id]
            account.waive(0)
            account.unreleased = set(account.safely_unreleased)
            for (_, qos), owed in account.owed.items():
                if qos == 1:  # what was sent before its commit may come again as if it were new
                    owed.most = UNBOUNDED
            if client.session and client.expiry == 0:
                self.end_session(client)
        if back:
            for who, client in enumerate(self.clients):
                self.connect(who, False, True, client.receive_maximum)

    # The end

    def teardown(self) -> None:
        """Everybody comes back, reads and acknowledges: nothing may be missing or left over."""
        if not hasattr(self, "clients"):
            return
        for client in self.clients:
            client.holding = False
            wire = self.stage.wires.get(client.client_id)
            if wire is not None and wire.stalled:
                wire.stalled = False
                wire.flush()
            if client.session and not client.connected:
                self.stage.connect(client)
        for _ in range(50):
            self.settle()
            self.commit_now()
        for client in self.clients:
            for (number, qos), owed in self.accounts[client.client_id].owed.items():
                assert owed.got >= owed.least, (
                    f"{client.client_id} never got {number} at QoS {qos}: {owed}"
                )
            if client.session:
                assert not client.sending
                session = self.stage.broker.sessions[client.client_id]
                assert not session.inflight
                assert not session.received
        pool = self.stage.broker.pool
        assert (pool.size, pool.messages) == (0, 0)
        kept = Memory(self.stage.journal.survivors())
        assert not kept.deliveries
        assert not kept.messages
        assert not kept.received


# Passing takes seconds; a failure is worth the time to find its shortest form.
TestSessions = pytest.mark.timeout(400)(Sessions.TestCase)
TestSessions.settings = settings(
    max_examples=300,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
