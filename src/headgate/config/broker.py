"""Smaller sections of the data plane: durability, overflow, urgency, metrics."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from headgate.config.addresses import Address
from headgate.contract.schema import MOST, Problem, Record, rule


class Durability(StrEnum):
    """What an acknowledgement of QoS 1 or 2 promises about persistent sessions."""

    FSYNC = "fsync"
    """It is on the disk: survives loss of power."""
    OS = "os"
    """The operating system has it: survives a crash of the broker, not of the machine."""
    NONE = "none"
    """It is in memory: what came since the last write in the background can be lost."""


class Overflow(StrEnum):
    """Which message a full queue gives up, among those of the lowest class in it."""

    OLDEST = "oldest"
    NEWEST = "newest"


class Unpermitted(StrEnum):
    """What becomes of a message that claims an urgency its publisher may not claim."""

    DELIVER = "deliver"
    """Delivered as a normal one, and counted."""
    REFUSE = "refuse"


class Urgency(Record, frozen=True):
    """Urgent and critical messages (p-MQTT §2)."""

    unpermitted: Unpermitted = Unpermitted.DELIVER
    rate: Annotated[float, Meta(ge=0, le=MOST)] = 100.0
    """Urgent and critical messages per second and client; 0 is no limit."""
    raise_grant: bool = False
    """Deliver critical messages at QoS 2 even where less was granted."""


class Metrics(Record, frozen=True):
    """The Prometheus endpoint."""

    address: Address

    @rule("address")
    def _address_is_a_port(self) -> Iterator[Problem]:
        if self.address.path:
            yield Problem(("address",), "metrics are served over HTTP: write 127.0.0.1:9883")
