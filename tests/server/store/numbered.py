"""A long sequence of changes where each follows from its number, and its reference.

Run as a program, it is a broker's thread that records them as fast as they are committed and prints
each durable position: something to kill.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from queue import Empty
from typing import cast

from headgate.core.journal import Journal, Saved, StoredDelivery, StoredMessage, StoredSession
from headgate.server.store import Durability

from .broker import KINDS, Broker

BACKLOG = 50
"""How many messages after its own a delivery is acknowledged."""
FOREVER = 40
"""Every so many messages there is one that is never acknowledged."""


def record(journal: Journal, number: int) -> None:
    """Make change `number`, the first being 1."""
    key, step = divmod(number - 1, 8)
    key += 1
    client_id = f"client-{key % 3}"
    if step == 0:
        journal.save_message(
            StoredMessage(key, b"t/%d" % key, b"%d" % key * 20, b"", 1, False, 2, 0.0, float(key))
        )
    elif step == 1:
        journal.save_delivery(StoredDelivery(client_id, key, key, "t/+", 2, 0, False))
    elif step == 2:
        journal.assign_packet_id(client_id, key, key % 65535 + 1)
    elif step == 3:
        old = key - BACKLOG
        if old > 0 and old % FOREVER:
            journal.drop_delivery(f"client-{old % 3}", old)
        else:
            journal.save_session(StoredSession(client_id, None, key, 0.0))
    elif step == 4:
        old = key - BACKLOG
        journal.drop_message(old if old > 0 and old % FOREVER else key)
    elif step == 5:
        (journal.save_received if key % 2 else journal.drop_received)(client_id, key // 2 % 5 + 1)
    elif step == 6:
        journal.release_delivery(client_id, key)
    else:
        journal.save_value("number", b"%d" % number)


class Reference:
    """The same changes on plain dictionaries."""

    def __init__(self) -> None:
        self.position = 0
        self.durable = 0
        self.messages: dict[int, StoredMessage] = {}
        self.deliveries: dict[tuple[str, int], list[object]] = {}
        self.sessions: dict[str, StoredSession] = {}
        self.received: set[tuple[str, int]] = set()
        self.values: dict[str, bytes] = {}

    def advance(self) -> None:
        self.position += 1
        record(cast(Journal, self), self.position)

    def equals(self, saved: Saved) -> bool:
        return (
            saved.messages == [self.messages[key] for key in sorted(self.messages)]
            and {
                (one.client_id, one.sequence): [one.packet_id, one.released]
                for one in saved.deliveries
            }
            == self.deliveries
            and {one.client_id: one for one in saved.sessions} == self.sessions
            and sorted(saved.received) == sorted(self.received)
            and saved.values == self.values
        )

    def save_message(self, message: StoredMessage) -> None:
        self.messages[message.key] = message

    def drop_message(self, key: int) -> None:
        self.messages.pop(key, None)

    def save_delivery(self, delivery: StoredDelivery) -> None:
        self.deliveries[delivery.client_id, delivery.sequence] = [0, False]

    def assign_packet_id(self, client_id: str, sequence: int, packet_id: int) -> None:
        self.deliveries[client_id, sequence][0] = packet_id

    def release_delivery(self, client_id: str, sequence: int) -> None:
        self.deliveries[client_id, sequence][1] = True

    def drop_delivery(self, client_id: str, sequence: int) -> None:
        self.deliveries.pop((client_id, sequence), None)

    def save_session(self, session: StoredSession) -> None:
        self.sessions[session.client_id] = session

    def save_received(self, client_id: str, packet_id: int) -> None:
        self.received.add((client_id, packet_id))

    def drop_received(self, client_id: str, packet_id: int) -> None:
        self.received.discard((client_id, packet_id))

    def save_value(self, name: str, value: bytes) -> None:
        self.values[name] = value


def main() -> None:
    kind, durability, directory, done = sys.argv[1:]
    broker = Broker()
    store = KINDS[kind](Path(directory), cast(Durability, durability), broker)
    store.load()
    before = number = int(done)
    while not broker.failures:
        # Some changes per turn, never a fixed number, so that commits end anywhere.
        for _ in range(number % 7 + 1):
            number += 1
            record(store, number)
        store.flush()
        with contextlib.suppress(Empty):
            broker.calls.get(block=number % 5 == 0, timeout=1.0)()
        if broker.commits:
            os.write(1, b"%d\n" % (before + broker.commits[-1]))
            broker.commits.clear()
    store.close()
    os.write(1, b"failed: %s\n" % str(broker.failures).encode())
    sys.exit(3)


if __name__ == "__main__":
    main()
