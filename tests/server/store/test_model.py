"""Any sequence of changes, with commits and restarts anywhere in it, gives what a few plain
dictionaries give."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from headgate.core.journal import (
    StoredDelivery,
    StoredMessage,
    StoredSession,
    StoredSubscription,
    StoredWill,
)
from headgate.server.store import Store

from .broker import Broker, open_log, open_small_log

clients = st.sampled_from(["a", "ä/#", "client-3"])
filters = st.sampled_from(["#", "a/+", "$share/g/a"])
topics = st.sampled_from([b"a", b"a/b", "ö".encode()])
numbers = st.integers(1, 6)
times = st.floats(0, 2e9, allow_nan=False)
flags = st.booleans()
messages = st.builds(
    StoredMessage,
    key=numbers,
    topic=topics,
    payload=st.binary(max_size=300),
    properties=st.binary(max_size=4),
    qos=st.integers(0, 2),
    retain=flags,
    rank=st.integers(0, 2),
    expires=times,
    arrived=times,
    sender=clients,
)


class StoreAgainstDictionaries(RuleBasedStateMachine):
    open: Callable[..., Store]

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="headgate-store-"))
        self.sessions: dict[str, StoredSession] = {}
        self.subscriptions: dict[tuple[str, str], StoredSubscription] = {}
        self.messages: dict[int, StoredMessage] = {}
        self.deliveries: dict[tuple[str, int], StoredDelivery] = {}
        self.received: set[tuple[str, int]] = set()
        self.retained: dict[bytes, StoredMessage] = {}
        self.wills: dict[str, StoredWill] = {}
        self.values: dict[str, bytes] = {}
        self.last_key = 0
        self._start()

    def _start(self) -> None:
        self.broker = Broker()
        self.store = type(self).open(self.directory, "os", self.broker)
        self.saved = self.store.load()

    def teardown(self) -> None:
        self.restart()
        self.store.close()
        shutil.rmtree(self.directory)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self._start()
        saved = self.saved
        assert {one.client_id: one for one in saved.sessions} == self.sessions
        assert {(one.client_id, one.filter): one for one in saved.subscriptions} == (
            self.subscriptions
        )
        assert saved.messages == [self.messages[key] for key in sorted(self.messages)]
        assert {(one.client_id, one.sequence): one for one in saved.deliveries} == self.deliveries
        assert saved.deliveries == sorted(
            saved.deliveries,
            key=lambda one: (
                [s.client_id for s in saved.deliveries].index(one.client_id),
                one.sequence,
            ),
        )
        assert sorted(saved.received) == sorted(self.received)
        assert {one.topic: one for one in saved.retained} == self.retained
        assert {one.client_id: one for one in saved.wills} == self.wills
        assert saved.values == self.values
        assert saved.last_key >= self.last_key

    @rule()
    def flush(self) -> None:
        self.store.flush()

    @rule()
    def settle(self) -> None:
        self.broker.settle(self.store)

    @rule(
        client_id=clients, user=st.none() | clients, expiry=st.integers(0, 0xFFFFFFFF), ends=times
    )
    def save_session(self, client_id: str, user: str | None, expiry: int, ends: float) -> None:
        self.sessions[client_id] = StoredSession(client_id, user, expiry, ends)
        self.store.save_session(self.sessions[client_id])

    @rule(client_id=clients)
    def drop_session(self, client_id: str) -> None:
        self.store.drop_session(client_id)
        self.sessions.pop(client_id, None)
        self.wills.pop(client_id, None)
        for subscription in [key for key in self.subscriptions if key[0] == client_id]:
            del self.subscriptions[subscription]
        for delivery in [key for key in self.deliveries if key[0] == client_id]:
            del self.deliveries[delivery]
        self.received = {key for key in self.received if key[0] != client_id}

    @rule(
        client_id=clients, topic_filter=filters, qos=st.integers(0, 2), flag=flags, number=numbers
    )
    def save_subscription(
        self, client_id: str, topic_filter: str, qos: int, flag: bool, number: int
    ) -> None:
        subscription = StoredSubscription(
            client_id, topic_filter, qos, flag, not flag, number % 3, number
        )
        self.subscriptions[client_id, topic_filter] = subscription
        self.store.save_subscription(subscription)

    @rule(client_id=clients, topic_filter=filters)
    def drop_subscription(self, client_id: str, topic_filter: str) -> None:
        self.subscriptions.pop((client_id, topic_filter), None)
        self.store.drop_subscription(client_id, topic_filter)

    @rule(message=messages)
    def save_message(self, message: StoredMessage) -> None:
        if message.key not in self.messages:
            self.messages[message.key] = message
            self.last_key = max(self.last_key, message.key)
            self.store.save_message(message)

    @rule(key=numbers)
    def drop_message(self, key: int) -> None:
        self.messages.pop(key, None)
        self.store.drop_message(key)

    @rule(client_id=clients, sequence=numbers, message=numbers, flag=flags)
    def save_delivery(self, client_id: str, sequence: int, message: int, flag: bool) -> None:
        if (client_id, sequence) not in self.deliveries:
            delivery = StoredDelivery(client_id, sequence, message, "a/+", 2, 0, False, flag)
            self.deliveries[client_id, sequence] = delivery
            self.store.save_delivery(delivery)

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), packet_id=st.integers(1, 65535))
    def assign_packet_id(self, data: st.DataObject, packet_id: int) -> None:
        key = data.draw(st.sampled_from(sorted(self.deliveries)))
        self.deliveries[key] = replace(self.deliveries[key], packet_id=packet_id)
        self.store.assign_packet_id(*key, packet_id)

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data())
    def release_delivery(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.deliveries)))
        self.deliveries[key] = replace(self.deliveries[key], released=True)
        self.store.release_delivery(*key)

    @rule(client_id=clients, sequence=numbers)
    def drop_delivery(self, client_id: str, sequence: int) -> None:
        self.deliveries.pop((client_id, sequence), None)
        self.store.drop_delivery(client_id, sequence)

    @rule(client_id=clients, packet_id=numbers)
    def save_received(self, client_id: str, packet_id: int) -> None:
        self.received.add((client_id, packet_id))
        self.store.save_received(client_id, packet_id)

    @rule(client_id=clients, packet_id=numbers)
    def drop_received(self, client_id: str, packet_id: int) -> None:
        self.received.discard((client_id, packet_id))
        self.store.drop_received(client_id, packet_id)

    @rule(message=messages)
    def save_retained(self, message: StoredMessage) -> None:
        self.retained[message.topic] = message
        self.last_key = max(self.last_key, message.key)
        self.store.save_retained(message)

    @rule(topic=topics)
    def drop_retained(self, topic: bytes) -> None:
        self.retained.pop(topic, None)
        self.store.drop_retained(topic)

    @rule(client_id=clients, due=times, message=messages)
    def save_will(self, client_id: str, due: float, message: StoredMessage) -> None:
        self.wills[client_id] = StoredWill(client_id, due, message, message.key)
        self.last_key = max(self.last_key, message.key)
        self.store.save_will(self.wills[client_id])

    @rule(client_id=clients)
    def drop_will(self, client_id: str) -> None:
        self.wills.pop(client_id, None)
        self.store.drop_will(client_id)

    @rule(name=clients, value=st.binary(max_size=9))
    def save_value(self, name: str, value: bytes) -> None:
        self.values[name] = value
        self.store.save_value(name, value)

    @invariant()
    def nothing_failed_and_durable_never_leads(self) -> None:
        assert not self.broker.failures
        assert self.store.durable <= self.store.position


@pytest.mark.parametrize("opens", [open_log, open_small_log])
def test_any_sequence(opens: Callable[..., Store]) -> None:
    class Machine(StoreAgainstDictionaries):
        open = staticmethod(opens)

    case = Machine.TestCase
    case.settings = settings(max_examples=30, stateful_step_count=60, deadline=None)
    case().runTest()
