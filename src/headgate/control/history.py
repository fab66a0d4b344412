"""The audit: every cycle in which something was decided is one line of JSON.

`headgate history` reads it. Two files at most, so that it never fills a disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import msgspec

FILE = "planner-history.jsonl"
LARGEST = 8 * 1024 * 1024


class Event(StrEnum):
    """What the controller did."""

    APPLIED = "applied"
    ADVISED = "advised"
    """It would have applied a plan, but is only asked for advice."""
    KEPT = "kept"
    """It planned, and what is in force is as good."""
    CONFIRMED = "confirmed"
    """What was promised by a change was measured after it."""
    MISSED = "missed"
    """It was not, but what is in force is no worse than what was before."""
    ROLLED_BACK = "rolled back"
    REFUSED = "refused"
    """The broker did not take the policy."""
    LEARNED = "learned"
    """The pipeline left something new, and it is used from now on; or it was refused."""
    DRIFTED = "drifted"
    """Responses persistently differ from what the model expects."""
    FAILED = "failed"
    """Planning itself failed."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One cycle."""

    time: float
    """Seconds since the epoch."""
    event: Event
    why: str
    """What was seen that led to it."""
    version: int
    """Of the policy, after it."""
    seen: dict[str, float] = {}
    """Rates of links, and loads of applications on them (`link/application`), in bit/s."""
    measured: dict[str, float] = {}
    """Response over what was asked for, by application, as measured. In records of `confirmed`,
    `missed` and `rolled back`, the median of the time in which the change was watched."""
    broken: dict[str, float] = {}
    """Applications whose requirement is broken as measured: response over what was asked for."""
    predicted: dict[str, float] = {}
    """Response over what was asked for, by application, as the plan expects it."""
    knowledge: dict[str, int] = {}
    """Versions of what the pipeline learned, by kind."""
    conflicts: list[str] = []
    steps: list[str] = []
    pddl: str = ""
    """Name of the folder that has this plan as PDDL (`headgate history --pddl`)."""
    rules: int = 0
    seconds: float = 0.0
    """From the snapshot to the decision."""


class History:
    """Appends records to a file in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def add(self, record: Record) -> None:
        """Keep a record; an audit that cannot be written does not stop the loop."""
        with suppress(OSError):
            if self.path.exists() and self.path.stat().st_size > LARGEST:
                self.path.replace(self.path.with_suffix(".old"))
            with open(self.path, "ab", opener=_own) as file:
                file.write(msgspec.json.encode(record) + b"\n")

    def __iter__(self) -> Iterator[Record]:
        for path in (self.path.with_suffix(".old"), self.path):
            with suppress(OSError):
                for line in path.read_bytes().splitlines():
                    with suppress(msgspec.DecodeError):  # cut short by a crash
                        yield _DECODER.decode(line)


def _own(path: str, flags: int) -> int:
    """Names of clients and what they carry are for the broker's user alone."""
    file = os.open(path, flags, 0o600)
    os.fchmod(file, 0o600)  # one of an earlier version was for everybody
    return file


_DECODER = msgspec.json.Decoder(Record)
