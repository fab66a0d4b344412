"""What the broker measured since the last snapshot, as data."""

from __future__ import annotations

import msgspec

from headgate.contract.requirement import Claim


class FlowSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One flow since the last snapshot. Times are in milliseconds."""

    client: str
    filter: str
    application: str = ""
    category: str = ""
    link: str = ""
    connected: bool = True
    claim: Claim | None = None
    """What its client asks for it itself; None if it does not."""

    priority: int
    drop: float = 0.0

    offered: int = 0
    """Messages that matched."""
    delivered: int = 0
    """Messages handed to the kernel."""
    bytes: int = 0
    dropped: dict[str, int] = {}
    """By reason."""
    waiting: int = 0
    """Messages in its queue now."""
    waits_for: str = ""
    """Why they wait: pacing, window, socket, offline, commit."""

    mean_ms: float = 0.0
    """Response time: from arrival at the broker to hand-over to the kernel."""
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    p99_ms: float = 0.0
    acknowledged: int = 0
    acknowledged_mean_ms: float = 0.0
    """From sending to acknowledgement, QoS 1 and 2."""
    acknowledged_p99_ms: float = 0.0

    join: float = 1.0
    """Probability that a message is queued while the client is away (ON/OFF: ζ)."""
    on_s: float = 0.0
    """Mean time that the client stays, as estimated; 0 if nothing is known."""
    off_s: float = 0.0
    """Mean time that it is away."""
    drain: float = 0.0
    """Messages per second that it takes while a backlog drains; 0 if nothing is known."""
    periods: float = 0.0
    """Effective number of periods behind these means."""


class LinkSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One link now."""

    name: str
    rate: float
    """Bits per second at which it is paced; 0 if it is not."""
    estimated: bool
    sent: int
    """Bytes since the last snapshot, with the overhead they cost on the wire."""
    waiting: int
    """Bytes that wait for it."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The broker since the last snapshot; flows in which nothing happened are left out."""

    time: float
    """Seconds since the epoch."""
    interval: float
    """Seconds since the last snapshot."""
    policy: int
    """Version in force."""
    received: int
    """Messages from publishers."""
    connections: int
    flows: list[FlowSnapshot]
    links: list[LinkSnapshot]

    def to_json(self) -> bytes:
        return _ENCODER.encode(self)

    @classmethod
    def from_json(cls, data: bytes) -> Snapshot:
        return _DECODER.decode(data)


_DECODER = msgspec.json.Decoder(Snapshot)
_ENCODER = msgspec.json.Encoder()
