"""Why no plan meets all requirements of a link, and what would help."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import msgspec

from headgate.control.planning.exact import OutOfTimeError, Search
from headgate.control.planning.plan import Conflict, Remedy
from headgate.control.planning.problem import LinkProblem

PRECISION = 0.01
"""Remedies are found to this fraction."""
FARTHEST = 1024.0
"""No remedy asks for more than this many times what is there."""


def explain(
    problem: LinkProblem,
    search: Search,
    broken: tuple[str, ...],
    *,
    proven: bool,
    until: float,
    remedies: bool,
) -> Conflict:
    """Name the requirements that exclude each other, and what would reconcile them."""
    core = conflicting(search)
    found: list[Remedy] = []
    if remedies:
        for remedy in _remedies(problem, core, until):
            found.append(remedy)
            if time.monotonic() > until:
                break
    return Conflict(
        problem.link.name,
        tuple(problem.groups[u].name for u in core),
        broken,
        tuple(found),
        proven,
    )


def conflicting(search: Search) -> list[int]:
    """A smallest set of groups that cannot all be served: leave out any, and the rest can."""
    core = list(range(len(search.groups)))
    for group in list(core):
        without = [u for u in core if u != group]
        if time.monotonic() > search.deadline:
            break  # what is left is a conflict still, if not a smallest one
        try:
            if without and search.cheapest(without) is None:
                core = without
        except OutOfTimeError:
            break
    return core


def _remedies(problem: LinkProblem, core: list[int], until: float) -> Iterator[Remedy]:
    """The smallest change of one thing that lets every requirement of the link be met."""

    def feasible(changed: LinkProblem) -> bool:
        try:
            return Search(changed, until).cheapest(range(len(changed.groups))) is not None
        except OutOfTimeError:
            return False

    rate = problem.link.rate or 1
    factor = _smallest(lambda f: feasible(problem.with_rate(round(rate * f))), until)
    if factor is not None:
        yield Remedy("rate", problem.link.name, rate, float(round(rate * factor)))
    for u in core:
        group = problem.groups[u]
        for what in ("response_ms", "mean_ms"):
            asked = getattr(group.requirement, what)
            if asked is None:
                continue

            def relaxed(f: float, u: int = u, what: str = what, asked: float = asked) -> bool:
                requirement = msgspec.structs.replace(
                    problem.groups[u].requirement, **{what: asked * f}
                )
                return feasible(problem.with_requirement(u, requirement))

            factor = _smallest(relaxed, until)
            if factor is not None:
                yield Remedy(what, group.name, asked, asked * factor)
        if (loss := _smallest_loss(problem, u, feasible, until)) is not None:
            yield Remedy("loss", group.name, group.requirement.loss, loss)


def _smallest(feasible: Callable[[float], bool], until: float) -> float | None:
    """The smallest factor above 1 that will do, to `PRECISION`; None if none does in time."""
    low, high = 1.0, 2.0
    while not feasible(high):
        low, high = high, high * 2
        if high > FARTHEST or time.monotonic() > until:
            return None
    while high - low > PRECISION * low and time.monotonic() < until:
        middle = (low + high) / 2
        low, high = (low, middle) if feasible(middle) else (middle, high)
    return high


def _smallest_loss(
    problem: LinkProblem, u: int, feasible: Callable[[LinkProblem], bool], until: float
) -> float | None:
    """The smallest loss that one group would have to tolerate."""

    def tolerating(loss: float) -> LinkProblem:
        requirement = msgspec.structs.replace(problem.groups[u].requirement, loss=loss)
        return problem.with_requirement(u, requirement)

    low, high = problem.groups[u].requirement.loss, 0.99
    if low >= high or not feasible(tolerating(high)):
        return None
    while high - low > PRECISION / 4 and time.monotonic() < until:
        middle = (low + high) / 2
        low, high = (low, middle) if feasible(tolerating(middle)) else (middle, high)
    return high
