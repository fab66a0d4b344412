"""What changed since the last commit, as its net effect.

Changes are not kept as a list but merged as they come: a message saved and dropped before the
commit leaves nothing behind, and that is what happens to most messages of a subscriber that
acknowledges quickly. Merging loses no guarantee: a batch is committed as a whole or not at all, so
no state between two changes of one batch is ever seen on disk, and two batches with the same net
effect cannot be told apart.

A net effect is always applied in the same order: sessions dropped, then all else dropped, then
progress, then what is saved. Each method below leaves the batch such that this order gives what the
calls gave in theirs:

- A save after a drop of the same thing is both a drop and a save.
- A drop after a save cancels the save. Messages and deliveries are saved once in their life (a key
  is not saved again while it is stored), so then there is nothing older to drop. All other things
  may replace what is stored, which the drop must remove too.
- Progress of a delivery that is dropped finds nothing to change, and may stay.
- A dropped session takes along all that the batch holds of it; what is saved afterwards is new.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec
from msgspec import field
from msgspec.structs import replace

from headgate.core.journal import (
    Captured,
    StoredDelivery,
    StoredMessage,
    StoredSession,
    StoredSubscription,
    StoredWill,
)

KEYS_AT_ONCE = 1 << 16
"""Message keys are reserved on disk in blocks of this size, not one by one."""

CAPTURED_AT_ONCE = 32 * 1024 * 1024
"""Bytes of captured messages that may wait for the disk in memory."""

OVERHEAD = 200
"""Bytes that a captured message takes beside what was published."""


class Progress(msgspec.Struct, array_like=True, gc=False):
    """How far a delivery that is already stored has come since."""

    packet_id: int | None = None
    released: bool = False


def _of_dicts() -> dict[str, Any]:
    return defaultdict(dict)


def _of_sets() -> dict[str, set[Any]]:
    return defaultdict(set)


def _of_lists() -> dict[str, list[Any]]:
    return defaultdict(list)


class Changes(msgspec.Struct, array_like=True):
    """One batch: filled in the broker's thread, handed over whole, never touched again.

    Nested dictionaries have the client id outside, so that a session is dropped in one step.
    """

    reserved_key: int = 0
    """New upper bound of the message keys; 0 if the old one still holds."""
    dropped_sessions: set[str] = field(default_factory=set)
    saved_sessions: dict[str, StoredSession] = field(default_factory=dict)
    dropped_subscriptions: dict[str, set[str]] = field(default_factory=_of_sets)
    saved_subscriptions: dict[str, dict[str, StoredSubscription]] = field(default_factory=_of_dicts)
    dropped_messages: list[int] = field(default_factory=list)
    saved_messages: dict[int, StoredMessage] = field(default_factory=dict)
    dropped_deliveries: dict[str, list[int]] = field(default_factory=_of_lists)
    progress: dict[str, dict[int, Progress]] = field(default_factory=_of_dicts)
    saved_deliveries: dict[str, dict[int, StoredDelivery]] = field(default_factory=_of_dicts)
    dropped_received: dict[str, set[int]] = field(default_factory=_of_sets)
    saved_received: dict[str, set[int]] = field(default_factory=_of_sets)
    dropped_retained: set[bytes] = field(default_factory=set)
    saved_retained: dict[bytes, StoredMessage] = field(default_factory=dict)
    dropped_wills: set[str] = field(default_factory=set)
    saved_wills: dict[str, StoredWill] = field(default_factory=dict)
    saved_values: dict[str, bytes] = field(default_factory=dict)

    def is_empty(self) -> bool:
        """Is there nothing to write? A batch may have cancelled itself out."""
        return not (
            self.reserved_key
            or self.dropped_messages
            or self.saved_messages
            or self.dropped_sessions
            or self.saved_sessions
            or self.dropped_retained
            or self.saved_retained
            or self.dropped_wills
            or self.saved_wills
            or self.saved_values
            or any(self.dropped_deliveries.values())
            or any(self.saved_deliveries.values())
            or any(self.progress.values())
            or any(self.dropped_subscriptions.values())
            or any(self.saved_subscriptions.values())
            or any(self.dropped_received.values())
            or any(self.saved_received.values())
        )


class Captures:
    """Messages captured since the last commit. They are kept beside the batch (spool.py)."""

    def __init__(self) -> None:
        self.guaranteed: list[Captured] = []
        self.noted: list[Captured] = []
        """Those that may be lost."""
        self.size = 0


class Recorder:
    """The journal's face towards the core: each call merges one change into the batch.

    These methods run once or more per message in the broker's thread: no locks, no calls but those
    to built-in types.
    """

    def __init__(self) -> None:
        self.position = 0
        self._batch = Changes()
        self._reserved_key = 0
        self._captures = Captures()
        self._captured_size = 0
        """Bytes captured and not yet on disk."""
        self.crowded_out = 0
        """Messages that were not captured because too much waits for the disk."""

    def save_session(self, session: StoredSession) -> None:
        self._batch.saved_sessions[session.client_id] = session
        self.position += 1

    def drop_session(self, client_id: str) -> None:
        batch = self._batch
        batch.saved_sessions.pop(client_id, None)
        batch.dropped_subscriptions.pop(client_id, None)
        batch.saved_subscriptions.pop(client_id, None)
        batch.dropped_deliveries.pop(client_id, None)
        batch.progress.pop(client_id, None)
        batch.saved_deliveries.pop(client_id, None)
        batch.dropped_received.pop(client_id, None)
        batch.saved_received.pop(client_id, None)
        batch.dropped_wills.discard(client_id)
        batch.saved_wills.pop(client_id, None)
        batch.dropped_sessions.add(client_id)
        self.position += 1

    def save_subscription(self, subscription: StoredSubscription) -> None:
        saved = self._batch.saved_subscriptions[subscription.client_id]
        saved[subscription.filter] = subscription
        self.position += 1

    def drop_subscription(self, client_id: str, topic_filter: str) -> None:
        batch = self._batch
        batch.saved_subscriptions[client_id].pop(topic_filter, None)
        batch.dropped_subscriptions[client_id].add(topic_filter)
        self.position += 1

    def save_message(self, message: StoredMessage) -> None:
        key = message.key
        self._batch.saved_messages[key] = message
        if key > self._reserved_key:
            self._reserve(key)
        self.position += 1

    def drop_message(self, key: int) -> None:
        batch = self._batch
        if batch.saved_messages.pop(key, None) is None:
            batch.dropped_messages.append(key)
        self.position += 1

    def save_delivery(self, delivery: StoredDelivery) -> None:
        self._batch.saved_deliveries[delivery.client_id][delivery.sequence] = delivery
        self.position += 1

    def assign_packet_id(self, client_id: str, sequence: int, packet_id: int) -> None:
        saved = self._batch.saved_deliveries[client_id]
        delivery = saved.get(sequence)
        if delivery is not None:
            saved[sequence] = replace(delivery, packet_id=packet_id)
        else:
            self._progress(client_id, sequence).packet_id = packet_id
        self.position += 1

    def release_delivery(self, client_id: str, sequence: int) -> None:
        saved = self._batch.saved_deliveries[client_id]
        delivery = saved.get(sequence)
        if delivery is not None:
            saved[sequence] = replace(delivery, released=True)
        else:
            self._progress(client_id, sequence).released = True
        self.position += 1

    def drop_delivery(self, client_id: str, sequence: int) -> None:
        batch = self._batch
        if batch.saved_deliveries[client_id].pop(sequence, None) is None:
            batch.dropped_deliveries[client_id].append(sequence)
        self.position += 1

    def save_received(self, client_id: str, packet_id: int) -> None:
        self._batch.saved_received[client_id].add(packet_id)
        self.position += 1

    def drop_received(self, client_id: str, packet_id: int) -> None:
        # Packet identifiers are soon used again, so an older one may be stored: no cancelling.
        batch = self._batch
        batch.saved_received[client_id].discard(packet_id)
        batch.dropped_received[client_id].add(packet_id)
        self.position += 1

    def save_retained(self, message: StoredMessage) -> None:
        self._batch.saved_retained[message.topic] = message
        if message.key > self._reserved_key:
            self._reserve(message.key)
        self.position += 1

    def drop_retained(self, topic: bytes) -> None:
        batch = self._batch
        batch.saved_retained.pop(topic, None)
        batch.dropped_retained.add(topic)
        self.position += 1

    def save_will(self, will: StoredWill) -> None:
        self._batch.saved_wills[will.client_id] = will
        if will.message.key > self._reserved_key:
            self._reserve(will.message.key)
        self.position += 1

    def drop_will(self, client_id: str) -> None:
        batch = self._batch
        batch.saved_wills.pop(client_id, None)
        batch.dropped_wills.add(client_id)
        self.position += 1

    def save_value(self, name: str, value: bytes) -> None:
        self._batch.saved_values[name] = value
        self.position += 1

    def capture(self, message: Captured, guaranteed: bool) -> None:
        captures = self._captures
        if guaranteed:
            captures.guaranteed.append(message)
        elif self.crowded:
            self.crowded_out += 1
            return
        else:
            captures.noted.append(message)
        size = OVERHEAD + len(message.payload) + len(message.topic) + len(message.properties)
        captures.size += size
        self._captured_size += size
        self.position += 1

    @property
    def crowded(self) -> bool:
        return self._captured_size > CAPTURED_AT_ONCE

    def _progress(self, client_id: str, sequence: int) -> Progress:
        stored = self._batch.progress[client_id]
        if sequence not in stored:
            stored[sequence] = Progress()
        return stored[sequence]

    def _reserve(self, key: int) -> None:
        """Even the key of a message that is never written must not be given again."""
        self._reserved_key = key + KEYS_AT_ONCE
        self._batch.reserved_key = self._reserved_key
