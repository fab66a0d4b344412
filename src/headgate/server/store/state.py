"""All that is kept, in memory: what batches add up to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from headgate.core.journal import (
    Saved,
    StoredDelivery,
    StoredMessage,
    StoredSession,
    StoredSubscription,
    StoredWill,
)
from headgate.server.store.changes import Changes


class State:
    """The sum of the batches applied to it."""

    def __init__(self) -> None:
        self.reserved_key = 0
        self.sessions: dict[str, StoredSession] = {}
        self.subscriptions: defaultdict[str, dict[str, StoredSubscription]] = defaultdict(dict)
        self.messages: dict[int, StoredMessage] = {}
        self.deliveries: defaultdict[str, dict[int, StoredDelivery]] = defaultdict(dict)
        self.received: defaultdict[str, set[int]] = defaultdict(set)
        self.retained: dict[bytes, StoredMessage] = {}
        self.wills: dict[str, StoredWill] = {}
        self.values: dict[str, bytes] = {}

    def apply(self, changes: Changes) -> None:
        """Add a batch, in the order that `Changes` is made for."""
        self._drop(changes)
        for client_id, some in changes.progress.items():
            deliveries = self.deliveries[client_id]
            for sequence, progress in some.items():
                if sequence in deliveries:
                    old = deliveries[sequence]
                    deliveries[sequence] = replace(
                        old,
                        packet_id=(
                            old.packet_id if progress.packet_id is None else progress.packet_id
                        ),
                        released=old.released or progress.released,
                    )
        self._save(changes)

    def _drop(self, changes: Changes) -> None:
        for client_id in changes.dropped_sessions:
            self.sessions.pop(client_id, None)
            self.subscriptions.pop(client_id, None)
            self.deliveries.pop(client_id, None)
            self.received.pop(client_id, None)
            self.wills.pop(client_id, None)
        for client_id, filters in changes.dropped_subscriptions.items():
            for topic_filter in filters:
                self.subscriptions[client_id].pop(topic_filter, None)
        for key in changes.dropped_messages:
            self.messages.pop(key, None)
        for client_id, sequences in changes.dropped_deliveries.items():
            deliveries = self.deliveries[client_id]
            for sequence in sequences:
                deliveries.pop(sequence, None)
        for client_id, packet_ids in changes.dropped_received.items():
            self.received[client_id] -= packet_ids
        for topic in changes.dropped_retained:
            self.retained.pop(topic, None)
        for client_id in changes.dropped_wills:
            self.wills.pop(client_id, None)

    def _save(self, changes: Changes) -> None:
        self.reserved_key = max(self.reserved_key, changes.reserved_key)
        self.sessions.update(changes.saved_sessions)
        for client_id, subscriptions in changes.saved_subscriptions.items():
            self.subscriptions[client_id].update(subscriptions)
        self.messages.update(changes.saved_messages)
        for client_id, deliveries in changes.saved_deliveries.items():
            self.deliveries[client_id].update(deliveries)
        for client_id, packet_ids in changes.saved_received.items():
            self.received[client_id] |= packet_ids
        self.retained.update(changes.saved_retained)
        self.wills.update(changes.saved_wills)
        self.values.update(changes.saved_values)

    def saved(self) -> Saved:
        """As the core wants it at its start."""
        return Saved(
            sessions=list(self.sessions.values()),
            subscriptions=[
                subscription
                for subscriptions in self.subscriptions.values()
                for subscription in subscriptions.values()
            ],
            messages=[self.messages[key] for key in sorted(self.messages)],
            deliveries=[
                deliveries[sequence]
                for deliveries in self.deliveries.values()
                for sequence in sorted(deliveries)
            ],
            received=[
                (client_id, packet_id)
                for client_id, packet_ids in self.received.items()
                for packet_id in sorted(packet_ids)
            ],
            retained=list(self.retained.values()),
            wills=list(self.wills.values()),
            values=self.values,
            last_key=self.reserved_key,
        )

    def batches(self, messages_at_once: int) -> Iterator[Changes]:
        """The same state as few batches, none of them with more than so many messages."""
        yield Changes(
            reserved_key=self.reserved_key,
            saved_sessions=self.sessions,
            saved_subscriptions=self.subscriptions,
            saved_received=self.received,
            saved_wills=self.wills,
            saved_values=self.values,
        )
        for client_id, deliveries in self.deliveries.items():
            if deliveries:
                yield Changes(saved_deliveries={client_id: deliveries})
        messages = iter(self.messages.items())
        while some := dict(islice(messages, messages_at_once)):
            yield Changes(saved_messages=some)
        retained = iter(self.retained.items())
        while of_topics := dict(islice(retained, messages_at_once)):
            yield Changes(saved_retained=of_topics)
