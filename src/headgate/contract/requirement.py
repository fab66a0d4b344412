"""What applications need: the promises that a plan must keep."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headgate.contract.schema import Fraction, Name, Positive, Record


class Requirement(Record, frozen=True):
    """What an application needs of every flow that it receives."""

    response_ms: Positive | None = None
    """Response time that `percentile` per cent of the messages must meet, in milliseconds."""
    percentile: Annotated[float, Meta(ge=50, le=99.99)] = 99.0
    mean_ms: Positive | None = None
    """Mean response time, in milliseconds."""
    loss: Fraction = 0.0
    """Fraction of the messages that may be lost. Nothing may be, unless it is said."""
    throughput: Positive | None = None
    """Messages per second that must arrive at least, as long as they are published."""


class Claim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client asks for its flows itself, by MQTT 5 user properties, where it may."""

    response_ms: Positive | None = None
    """`max-response-ms`."""
    loss: Fraction | None = None
    """`max-loss`."""
    threshold_s: Positive | None = None
    """`threshold-s`."""


class Category(Record, frozen=True):
    """A kind of application. RT, TS, AN, ST and EM need no declaration, others neither."""

    name: Name
    requirement: Requirement | None = None
    """What an application of this category needs when it does not say so itself."""


class Application(Record, frozen=True):
    """A client, or a group of clients, with one requirement and one category.

    Without globs it is for clients that name it themselves in CONNECT or SUBSCRIBE, where they may.
    """

    name: Name
    clients: tuple[str, ...] = ()
    """Globs of client ids."""
    users: tuple[str, ...] = ()
    """Globs of user names."""
    category: Name | None = None
    requirement: Requirement | None = None
    weight: Positive = 1.0
    """How much its requirement counts against others' when not all can be met."""
    threshold_s: Positive | None = None
    """Response time to keep while the client connects and disconnects (ON/OFF), in seconds."""
