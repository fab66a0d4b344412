"""A session: what the broker remembers of a client, connected or not (MQTT 5 §4.1)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from headgate.core.access import Identity
from headgate.core.connectivity import Connectivity
from headgate.core.journal import Journal
from headgate.core.link import MESSAGE, Link, Pool
from headgate.core.outlet import Outlet
from headgate.core.wills import PendingWill

IN_FLIGHT_PART = 2
"""What is in flight to all clients may take one of so many parts of the memory: unlike what waits
it cannot be dropped for something better."""

NEVER = 0xFFFFFFFF
"""A session expiry interval that never ends (MQTT 5 §3.1.2.11.2)."""


class Session:
    """One client's state. Its subscriptions are flows, keyed by the filter as subscribed."""

    def __init__(self, client_id: str, identity: Identity, pool: Pool) -> None:
        self.client_id = client_id
        self.identity = identity
        self.pool = pool
        self.flows: dict[str, Any] = {}

        # While connected.
        self.outlet: Outlet | None = None
        self.channel: Any = None
        self.user: str | None = None
        self.claims: list[tuple[str, str]] = []

        # Outgoing, QoS 1 and 2.
        self.window = 1000
        self.inflight: dict[int, Any] = {}
        self.unacknowledged = 0
        self.owed: list[Any] = []
        self.last_packet_id = 0
        self.sequence = 0

        # Incoming, QoS 2.
        self.received: set[int] = set()

        # What waits.
        self.link: Link | None = None
        self.parked: list[Any] = []
        self.waiting: dict[Any, None] = {}
        self.levels: dict[int, OrderedDict[Any, None]] = {}
        """The same by level, without replays: they hold nothing that could give way."""
        self.standing = 0
        """Bytes that its id, its filters and its will take (`core/bounds.py`)."""
        self.queued_messages = 0
        self.queued_size = 0
        self.message_limit = 100_000
        self.size_limit = 64 * 1024 * 1024
        self.drop_oldest = True
        self.draining = False
        """The client returned to a backlog and has not taken all of it yet."""

        # While disconnected.
        self.expiry = 0
        self.ends = 0.0
        self.alarm: Any = None
        self.journal: Journal | None = None
        self.will: PendingWill | None = None
        self.connectivity: Connectivity | None = None

    @property
    def persistent(self) -> bool:
        """Does it outlive its connection?"""
        return self.expiry > 0

    def stand_for(self, size: int) -> None:
        """So many bytes more are remembered of this client, or fewer."""
        self.standing += size
        self.pool.standing += size

    def takes(self, size: int) -> bool:
        """May a message of this size be sent now? What is not acknowledged stays in our memory.

        A client that has nothing in flight gets one, whatever others hold: it goes on as long as it
        acknowledges.
        """
        cost = size + MESSAGE
        return self.unacknowledged == 0 or (
            self.unacknowledged + cost <= self.size_limit
            and self.pool.unacknowledged + cost <= self.pool.limit // IN_FLIGHT_PART
        )

    def sent(self, size: int) -> None:
        """A message of this size is in flight."""
        self.unacknowledged += size + MESSAGE
        self.pool.unacknowledged += size + MESSAGE

    def completed(self, size: int) -> None:
        """A message of this size is in flight no longer."""
        self.unacknowledged -= size + MESSAGE
        self.pool.unacknowledged -= size + MESSAGE

    def abandon(self) -> None:
        """Nothing that is in flight is going to be acknowledged."""
        self.pool.unacknowledged -= self.unacknowledged
        self.unacknowledged = 0

    def take_packet_id(self) -> int:
        """A packet identifier that is not in use [MQTT-2.2.1-3]."""
        packet_id = self.last_packet_id
        while True:
            packet_id = packet_id + 1 if packet_id < 65535 else 1
            if packet_id not in self.inflight:
                self.last_packet_id = packet_id
                return packet_id

    def release(self, packet_id: int) -> None:
        """Nothing is in flight under this identifier after all: others may use the window."""
        self.inflight.pop(packet_id, None)
        link = self.link
        if self.parked and link is not None:
            for lane in self.parked:
                link.enlist(lane, lane.level)
            self.parked.clear()
            if not link.scheduled:
                link.scheduled = True
                self.pool.paced.append(link)

    def own_link(self) -> Link:
        """The link on which this client's messages wait."""
        if self.link is None:
            self.link = Link()
            self.link.queued = self.queued_size
        return self.link
