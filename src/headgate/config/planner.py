"""The control plane: whether it plans, how far it looks ahead, and what it may learn from."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from headgate.contract import AdaptingTopic
from headgate.contract.schema import Kind, Record


class PlannerMode(StrEnum):
    """What the control plane does with its plans."""

    OFF = "off"
    ADVISE = "advise"
    """Plan and show, never apply."""
    AUTO = "auto"


class Planner(Record, frozen=True):
    """The control plane (docs/control-loop.md)."""

    mode: PlannerMode = PlannerMode.OFF
    proactive: bool = True
    """Plan for what is coming, too, not only for what is there."""
    horizon: Annotated[float, Kind.DURATION, Meta(gt=0, le=3600)] = 5.0
    """How far it looks ahead."""
    simulate: bool = False
    """Rehearse plans that can wait, because they are for what is foreseen or advice, in the
    simulator before they count."""
    knowledge: Annotated[Path, Kind.FOLDER] | None = None
    """Where the pipeline leaves what it learned; by default `knowledge` in the data directory."""
    periods: tuple[AdaptingTopic, ...] = ()
    """Topics whose publishers can be told to publish less often."""
