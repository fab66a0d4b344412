"""The kernel's memory: one record per source, stream, station and message, packed in arrays.

A *source* publishes; a *stream* is one copy of a source's messages on its way to one
subscription, with its own path, priority and drop rate; a *station* serves or delays. Every
record holds what is given (first) and what changes while time passes.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from headgate.model.simulation.philox import RNG

__all__ = [
    "BATCH",
    "CONTROL",
    "DRAW",
    "MESSAGE",
    "NONE",
    "OCTAVES",
    "OUTCOMES",
    "RECORD",
    "RNG",
    "SMALLEST_OCTAVE",
    "SOURCE",
    "STATION",
    "STREAM",
    "ArrivalKind",
    "Outcome",
    "Status",
]

NONE = -1


class ArrivalKind(IntEnum):
    POISSON = 0
    PERIODIC = 1
    JITTERED = 2
    BURSTS = 3
    TRACE = 4


class Outcome(IntEnum):
    """How a copy of a message left the network."""

    DELIVERED = 0
    THINNED = 1
    """By the drop rate."""
    REFUSED = 2
    """Did not join while the subscriber was away."""
    OVERFLOW = 3
    """Found its queue full while the server was ON."""
    OVERFLOW_OFF = 4
    """Found its queue full while the server was OFF."""
    EXPIRED = 5


OUTCOMES = len(Outcome)


class Status(IntEnum):
    """Why the kernel returned."""

    DONE = 0
    PAUSED = 1
    """The budget of events is used up."""
    MESSAGES_FULL = 2
    """More messages are on their way than there is room for."""
    RECORDS_FULL = 3


# Response times are counted in logarithmic buckets from 2^-24 s (60 ns) to 2^24 s (half a year).
SMALLEST_OCTAVE = -24
OCTAVES = 48

DRAW = np.dtype(
    [
        ("kind", np.int32),
        ("low", np.int32),
        ("high", np.int32),
        ("mean", np.float64),
        ("a", np.float64),
        ("b", np.float64),
    ],
    align=True,
)

SOURCE = np.dtype(
    [
        ("kind", np.int32),
        ("entry", np.int32),
        ("first_stream", np.int32),
        ("streams", np.int32),
        ("size", np.int32),
        ("arrival_rng", np.int32),
        ("size_rng", np.int32),
        ("low", np.int32),
        ("high", np.int32),
        ("position", np.int32),
        ("interval", np.float64),
        ("jitter", np.float64),
        ("on", np.float64),
        ("off", np.float64),
        ("nominal", np.float64),
        ("phase_end", np.float64),
    ],
    align=True,
)

STREAM = np.dtype(
    [
        ("source", np.int32),
        ("first_hop", np.int32),
        ("hops", np.int32),
        ("level", np.int32),
        ("capacity", np.int32),
        ("lifetime", np.int32),
        ("choice_rng", np.int32),
        ("lifetime_rng", np.int32),
        ("drop", np.float64),
        ("join", np.float64),
        ("waiting", np.int64),
        ("outcomes", np.int64, (OUTCOMES,)),
        ("total", np.float64),
        ("squares", np.float64),
        ("largest", np.float64),
        ("bytes", np.float64),
    ],
    align=True,
)

STATION = np.dtype(
    [
        ("delay", np.int32),
        ("preemptive", np.int32),
        ("service", np.int32),
        ("on", np.int32),
        ("off", np.int32),
        ("service_rng", np.int32),
        ("switch_rng", np.int32),
        ("capacity", np.int32),
        ("seconds_per_byte", np.float64),
        ("seconds_per_message", np.float64),
        ("serving", np.int32),
        ("connected", np.int32),
        ("present", np.int64),
        ("started", np.float64),
    ],
    align=True,
)

MESSAGE = np.dtype(
    [
        ("created", np.float64),
        ("deadline", np.float64),
        ("remaining", np.float64),
        ("size", np.float64),
        ("stream", np.int32),
        ("source", np.int32),
        ("hop", np.int32),
        ("level", np.int32),
        ("next", np.int32),
    ],
    align=True,
)

RECORD = np.dtype(
    [
        ("created", np.float64),
        ("left", np.float64),
        ("size", np.float64),
        ("stream", np.int32),
        ("outcome", np.int32),
    ],
    align=True,
)

BATCH = np.dtype([("total", np.float64), ("count", np.int64), ("lost", np.int64)], align=True)

CONTROL = np.dtype(
    [
        ("now", np.float64),
        ("horizon", np.float64),
        ("warmup", np.float64),
        ("batches_per_second", np.float64),
        ("drain", np.int32),
        ("keep_records", np.int32),
        ("seed", np.uint64),
        ("replication", np.uint64),
        ("events", np.int64),
        ("on_their_way", np.int64),
        ("free", np.int64),
        ("free_head", np.int32),
        ("delayed", np.int32),
        ("records", np.int64),
        ("sub_buckets", np.int32),
        ("widest", np.int32),
    ],
    align=True,
)
