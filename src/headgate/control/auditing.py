"""The parts of a record: what was seen, measured and decided, in words and numbers for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headgate.control.measuring import Measurements
from headgate.control.planning import Plan
from headgate.control.strains import Strains

MOST_SEEN = 200
"""Links and applications that one record tells of."""


def what_was_seen(known: Measurements) -> dict[str, float]:
    """Rates of links and loads of applications on them, in bit/s."""
    loads = {f"{link}/{name}": load for (name, link), load in known.loads.items()}
    seen = {**known.links, **loads}
    return {name: round(value) for name, value in list(seen.items())[:MOST_SEEN]}


def measured_and_broken(strains: Strains) -> dict[str, Any]:
    """Response over what was asked for."""
    return {
        "measured": {name: round(strain, 4) for name, strain in strains.items()},
        "broken": {name: round(strain, 3) for name, strain in strains.items() if strain > 1},
    }


def decided(made: Plan | None, name: str) -> dict[str, Any]:
    """What a plan says; `name` is that of the folder which has it as PDDL."""
    if made is None:
        return {}
    return {
        "conflicts": [str(conflict) for conflict in made.conflicts],
        "steps": [*_steps(made)],
        "pddl": name,
        "seconds": round(made.seconds, 4),
    }


def _steps(made: Plan) -> Iterator[str]:
    """A plan's decisions, one line each."""
    for step in made.steps:
        join = "" if step.join is None else f", join {step.join:.4g}"
        yield f"{step.link}/{step.group}: priority {step.priority}, drop {step.drop:.4g}{join}"
    for topic, seconds in made.policy.periods.items():
        yield f"{topic}: every {seconds:.4g} s"
