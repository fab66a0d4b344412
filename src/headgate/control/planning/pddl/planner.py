"""Planning with a PDDL engine: write, solve, check, judge, and calibrate until the model agrees.

The formula in the PDDL is not the model. If the model finds a requirement broken that the engine
thought was met, the formula is calibrated at that decision and the engine asked again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum

from headgate.control.planning.judging import judge
from headgate.control.planning.pddl.engines import Outcome, Status, is_linear, parse, run
from headgate.control.planning.pddl.linear import encode_linear, limits, rounded
from headgate.control.planning.pddl.validating import validate
from headgate.control.planning.pddl.writing import (
    MOST_LEVELS,
    Encoding,
    Loads,
    calibrated,
    encode,
    steps_of,
)
from headgate.control.planning.problem import Decision, LinkProblem
from headgate.errors import HeadgateError

MOST_ROUNDS = 8


class EngineError(HeadgateError):
    """The engine came to nothing."""


@dataclass(frozen=True)
class Solved:
    """A decision by an engine, with the text that it solved."""

    decision: Decision
    encoding: Encoding
    steps: tuple[tuple[str, ...], ...]
    rounds: int


class Style(StrEnum):
    """How the problem is written."""

    AUTO = "auto"
    """As the engine can read it."""
    JOINT = "joint"
    """Responses by their formula: products and quotients of fluents."""
    LINEAR = "linear"
    """Limits of loads: sums only."""


def first_encoding(
    problem: LinkProblem, style: Style = Style.JOINT, exact: Decision | None = None
) -> Encoding:
    """The problem as text, calibrated where each group goes in its order and drops what it may."""
    loads = Loads.of(problem)
    if style is Style.LINEAR:
        good = [rounded(problem, one) for one in (_generous(problem), exact) if one is not None]
        return encode_linear(problem, loads, limits(problem, loads, good, ()))
    return encode(problem, loads, calibrated(problem, loads, [_generous(problem)]))


@dataclass(frozen=True)
class Told:
    """One link's problem as PDDL, and the plan that was made for it as steps of that PDDL."""

    link: str
    domain: str
    problem: str
    plan: str
    """Empty if there is none that keeps all requirements, or none that the PDDL can say."""
    valid: bool
    """The steps reach the goal, as an independent validator finds that reads nothing but this."""


def told(problem: LinkProblem, decision: Decision | None) -> Told:
    """What was asked and what was decided, calibrated where it was decided."""
    loads = Loads.of(problem)
    at = _generous(problem) if decision is None else decision
    encoding = encode(problem, loads, calibrated(problem, loads, [at]), decision)
    plan, valid = "", False
    if decision is not None and max(decision.levels) < min(problem.levels, MOST_LEVELS):
        plan = steps_of(encoding, decision)
        valid = validate(encoding.domain, encoding.problem, parse(plan)).valid
    return Told(problem.link.name, encoding.domain, encoding.problem, plan, valid)


def solve(
    problem: LinkProblem,
    engine: str,
    until: float,
    *,
    style: Style = Style.AUTO,
    exact: Decision | None = None,
) -> Solved:
    """Let an engine decide for one link; `EngineError` if it finds nothing that the model accepts.

    The caller knows that the requirements can be met, by the `exact` decision: an engine may search
    for a plan that does not exist until its time is up.
    """
    loads = Loads.of(problem)
    known = [_generous(problem)]
    sums_only = style is Style.LINEAR or (style is Style.AUTO and is_linear(engine))
    for number in range(1, MOST_ROUNDS + 1):
        if sums_only:
            good = [rounded(problem, one) for one in (known[0], exact) if one is not None]
            encoding = encode_linear(problem, loads, limits(problem, loads, good, known[1:]))
        else:
            encoding = encode(problem, loads, calibrated(problem, loads, known))
        outcome = run(engine, encoding, until - time.monotonic())
        if outcome.status is not Status.SOLVED:
            raise EngineError(_told(problem, engine, outcome))
        verdict = validate(encoding.domain, encoding.problem, outcome.steps)
        if not verdict.valid:
            raise EngineError(
                f"link {problem.link.name}: the engine's plan is wrong: {verdict.why}"
            )
        decision = decode(problem, encoding, outcome)
        if judge(problem, decision).all_met:
            return Solved(decision, encoding, outcome.steps, number)
        if decision in known:
            break
        known.append(decision)
    raise EngineError(
        f"link {problem.link.name}: {engine} found no plan that the model accepts; "
        "the exact planner did"
    )


def decode(problem: LinkProblem, encoding: Encoding, outcome: Outcome) -> Decision:
    """From steps to levels and drop rates."""
    levels, drops = [0] * len(encoding.groups), [0.0] * len(encoding.groups)
    number = {name: u for u, name in enumerate(encoding.groups)}
    for name, *arguments in outcome.steps:
        if name.startswith("configure-l"):
            group, choice = arguments
            u = number[group]
            levels[u] = int(name.removeprefix("configure-l"))
            step = int(choice.removeprefix("d"))
            drops[u] = problem.groups[u].most_drop * step / encoding.steps
    return Decision(tuple(levels), tuple(drops)).compact()


def _generous(problem: LinkProblem) -> Decision:
    count = len(problem.groups)
    levels = tuple(min(u, problem.levels - 1) for u in range(count))
    return Decision(levels, tuple(group.most_drop for group in problem.groups))


def _told(problem: LinkProblem, engine: str, outcome: Outcome) -> str:
    where = f"link {problem.link.name}: {engine}"
    if outcome.status is Status.TIMEOUT:
        return f"{where} found no plan within the time limit"
    if outcome.status is Status.UNSOLVABLE:
        return f"{where} says that there is no plan by its formula; the exact planner found one"
    return f"{where} failed: {outcome.said.splitlines()[-1] if outcome.said else 'it said nothing'}"
