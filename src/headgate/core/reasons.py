"""Why a message did not reach a subscriber, and why one waits: named, counted, never a bare no."""

from __future__ import annotations

from enum import IntEnum


class Drop(IntEnum):
    """Why a message did not reach a subscriber."""

    RATE = 0
    EXPIRED = 1
    CAPACITY = 2
    DISCONNECTED = 3
    MEMORY = 4
    UNAUTHORISED = 5
    SIZE = 6


class Wait(IntEnum):
    """Why a lane does not send."""

    PACING = 1
    WINDOW = 2
    SOCKET = 3
    OFFLINE = 4
    COMMIT = 5
    TURN = 6
    """A replay of retained messages lets others go first."""
    ORDER = 7
    """What waited before a replay began goes first."""


# The same as plain numbers: an enum member would cost the hot path a comparison of objects.
RATE = 0
EXPIRED = 1
CAPACITY = 2
DISCONNECTED = 3
MEMORY = 4
UNAUTHORISED = 5
SIZE = 6
PACING = 1
WINDOW = 2
SOCKET = 3
OFFLINE = 4
COMMIT = 5
TURN = 6
ORDER = 7
