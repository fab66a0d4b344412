"""Planning with a PDDL engine: write, solve, check, judge, and calibrate until the model agrees.

The formula in the PDDL is not the model. If the model finds a requirement broken that the engine
thought was met, the formula is calibrated at that decision and the engine asked again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from headgate.control.planning.judging import judge
from headgate.control.planning.pddl.engines import Outcome, Status, run
from headgate.control.planning.pddl.validating import validate
from headgate.control.planning.pddl.writing import Encoding, Loads, calibrated, encode
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


def first_encoding(problem: LinkProblem) -> Encoding:
    """The problem as text, calibrated where each group goes in its order and drops what it may."""
    loads = Loads.of(problem)
    return encode(problem, loads, calibrated(problem, loads, [_generous(problem)]))


def solve(problem: LinkProblem, engine: str, until: float) -> Solved:
    """Let an engine decide for one link; `EngineError` if it finds nothing that the model accepts.

    The caller knows that the requirements can be met: an engine may search for a plan that does not
    exist until its time is up.
    """
    loads = Loads.of(problem)
    known = [_generous(problem)]
    for number in range(1, MOST_ROUNDS + 1):
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
