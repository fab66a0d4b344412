"""Section `limits`: what one client, and all together, may use. 0 is no limit of our own."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from headgate.config.units import GIB, KIB, MIB
from headgate.contract.schema import MOST, Count, Duration, Kind, Record, Size

Window = Annotated[int, Meta(ge=1, le=65535)]


class Limits(Record, frozen=True):
    """Limits in total, per client, and of what the protocol negotiates."""

    connections: Count = 100_000
    """In total."""
    connections_per_address: Count = 0
    memory: Size = GIB
    """Bytes of all that the broker holds: messages, and what it remembers of sessions."""
    sessions: Count = 100_000
    """In total, of connected clients and of those that may return."""
    retained_messages: Count = 1_000_000

    queued_messages: Count = 100_000
    """Per client."""
    queued_bytes: Size = 64 * MIB
    """Per client."""
    publish_rate: Annotated[float, Meta(ge=0, le=MOST)] = 0.0
    """Messages per second and client."""
    subscriptions: Count = 200_000
    """Per client."""
    topic_depth: Annotated[int, Meta(ge=0, le=512)] = 128
    """Levels of a topic or filter."""
    filter_size: Size = 4 * KIB
    """Bytes of a topic filter."""
    client_id_size: Size = KIB
    """Bytes of a client id."""
    will_size: Size = 64 * KIB
    """Bytes of a will: its topic, payload and properties."""

    packet_size: Annotated[int, Kind.SIZE, Meta(ge=KIB, le=268_435_460)] = 16 * MIB
    """Largest packet taken from a client: at most 256 MiB, the protocol's own end (§2.1.4)."""
    inflight: Window = 1000
    """Messages of QoS 1 and 2 on their way to a client; its receive maximum bounds it too."""
    receive_maximum: Window = 1000
    """Messages of QoS 1 and 2 that a publisher may have unacknowledged."""
    topic_alias: Annotated[int, Meta(ge=0, le=65535)] = 100
    """Topic aliases that a client may use; here 0 is none."""
    keep_alive_max: Annotated[float, Kind.DURATION, Meta(ge=0, le=65535)] = 0.0
    """A client that asks for more, or for none, is given this as server keep alive."""
    session_expiry_max: Duration = 0.0
    """A client that asks for more is given this."""
    connect_timeout: Annotated[float, Kind.DURATION, Meta(gt=0, le=MOST)] = 10.0
    """Time from the connection to its CONNECT packet."""
