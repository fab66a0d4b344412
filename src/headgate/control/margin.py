"""Plans that leave a link some room.

The cheapest plan uses a link to the last per cent if the requirements allow it: an application that
may wait for ten seconds is made to wait for ten. But what gathered before the plan came would then
stay for ever, and with it every second of it that the model did not foresee. So a link is planned
for a little less than it carries, where that keeps everything; where it does not, for all of it.

Groups get a level of their own where that keeps everything. To let some share one drops a per cent
or two less, but then the impatient wait behind all that ever gathers for the patient.

What waits already is not in the model. Where it is more than a moment's worth, the room is as much
as lets it drain within seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import msgspec

from headgate.contract import Policy
from headgate.control.planning import Plan
from headgate.control.planning.planner import EXACT, Decided, assemble, decide, keep_all, reconciled
from headgate.control.planning.problem import LinkProblem, Problem
from headgate.model import Scenario

ROOM = 0.05
"""The fraction of each link that is left for what waits already and for what nobody foresaw."""
LITTLE = 0.02
"""When less than this is left of it, a requirement is about to be broken. The rest is hysteresis:
a plan is not made again for the noise that it was made to bear."""
DRAINED_WITHIN = 5.0
"""Seconds in which what waits should be gone."""
MOST_ROOM = 0.4
A_MOMENT = 0.25
"""Seconds of a link's time: what waits longer than that is a backlog."""

Waiting = Mapping[str, float]
"""Bits that wait for each link."""


def plan_with_room(scenario: Scenario, policy: Policy, seconds: float, waiting: Waiting) -> Plan:
    """For each link a plan that leaves room; if there is none, the cheapest.

    Predictions before and after are for links that have the room taken off: so they can be
    compared.
    """
    began = time.monotonic()
    problem = Problem.of(scenario, policy)
    rooms: dict[str, float] = {}
    slowed: dict[str, float] = {}
    decided: list[Decided] = []
    for number, link in enumerate(problem.links):
        left = seconds - (time.monotonic() - began)
        until = time.monotonic() + max(0.05, left / (len(problem.links) - number))
        found, room = _decided(link, slowed, until, waiting.get(link.link.name, 0.0))
        rooms[link.link.name] = room
        slowed |= found.slowed
        decided.append(found)
    if any(rooms.values()):
        problem = Problem.of(smaller(scenario, rooms), policy)
    return assemble(problem, decided, engine=EXACT, began=began)


def _decided(
    link: LinkProblem, slowed: Mapping[str, float], until: float, waiting: float
) -> tuple[Decided, float]:
    """What is decided for one link, and the room that it leaves."""
    whole = link.slowed(slowed) if slowed else link
    if whole.groups:
        now = time.monotonic()
        # Half of the time for plans with room: if there is none, the other half must do.
        for room, apart in _rungs(link, waiting):
            found = keep_all(_tight(whole, room), now + (until - now) / 2, apart=apart)
            if found is not None:
                return found, room
    found = decide(whole, until, remedies=False)
    for room in (ROOM, 0.0):
        mended = reconciled(found, _tight(link, room), slowed, until)
        if mended.conflict is None:
            return mended, room if mended is not found else 0.0
    return found, 0.0


def _rungs(link: LinkProblem, waiting: float) -> Iterator[tuple[float, bool]]:
    """How much room is tried to be left, the most first, and whether groups are to be apart."""
    rate = link.link.rate or 1
    if is_backlog(waiting, rate):
        wanted = min(MOST_ROOM, waiting / (DRAINED_WITHIN * rate))
        for part in (1.0, 0.75, 0.5, 0.25):  # which of them can be had is quickly known
            yield ROOM + part * wanted, True
    yield ROOM, True
    yield ROOM / 2, True
    if is_backlog(waiting, rate):
        yield 0.0, True
    yield ROOM, False


def shares_levels(made: Plan) -> bool:
    """Does a plan put groups of one link on one level?"""
    levels = [(step.link, step.priority) for step in made.steps]
    return len(set(levels)) < len(levels)


def is_backlog(waiting: float, rate: float) -> bool:
    """More than a link carries in a moment?"""
    return waiting > A_MOMENT * rate


def _tight(link: LinkProblem, room: float) -> LinkProblem:
    return link.with_rate(round((link.link.rate or 1) * (1 - room))) if room else link


def smaller(scenario: Scenario, rooms: Mapping[str, float] | float) -> Scenario:
    """The same with less of each link."""

    def room(link: str) -> float:
        return rooms if isinstance(rooms, float) else rooms.get(link, 0.0)

    return msgspec.structs.replace(
        scenario,
        links=tuple(
            link
            if link.rate is None
            else msgspec.structs.replace(link, rate=round(link.rate * (1 - room(link.name))))
            for link in scenario.links
        ),
    )
