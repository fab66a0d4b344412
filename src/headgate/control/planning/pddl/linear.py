"""The same problem for planners that know sums only, such as Metric-FF and LPG.

A response has products and quotients of fluents in it, which they cannot read. This domain has the
*load* in their place: a group of flows keeps its requirement if the levels up to its own carry no
more than `most-load` of the link. That limit is the group's own, found by the model, and lowered
below whatever the model then finds broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from headgate.control.planning.judging import judge
from headgate.control.planning.pddl.writing import (
    MOST_LEVELS,
    STEPS,
    Encoding,
    Loads,
    named,
    number,
    word,
)
from headgate.control.planning.problem import Decision, LinkProblem

ROOM = 1e-6
"""For rounding, on either side of a limit."""


def through(loads: Loads, decision: Decision, group: int) -> float:
    """The part of the link that the levels up to a group's own take."""
    level = decision.levels[group]
    return sum(
        load * (1 - drop)
        for load, drop, other in zip(loads.load, decision.drops, decision.levels, strict=True)
        if other <= level
    )


def limits(
    problem: LinkProblem, loads: Loads, good: Sequence[Decision], bad: Sequence[Decision]
) -> tuple[float, ...]:
    """The load up to which each group keeps its requirement.

    Who goes last, with all others before it, has it worst at any load: what passes then passes
    always. `good` decisions pass, too, and `bad` ones must not.
    """
    count = len(problem.groups)
    found = []
    for u in range(count):
        most = 0.0
        for part in (0.0, 0.25, 0.5, 0.75, 1.0):
            drops = tuple(part * group.most_drop for group in problem.groups)
            last = Decision(tuple(1 if v == u else 0 for v in range(count)), drops)
            if judge(problem, last).met[u]:
                most = max(most, through(loads, last, u))
        most = max([most, *(through(loads, d, u) for d in good if judge(problem, d).met[u])])
        broken = [through(loads, d, u) for d in bad if not judge(problem, d).met[u]]
        found.append(max(0.0, min([most, *(load - 2 * ROOM for load in broken)])))
    return tuple(found)


def rounded(problem: LinkProblem, decision: Decision) -> Decision:
    """The same, in drop rates that the PDDL has: never less."""
    drops = tuple(
        group.most_drop * min(STEPS, ceil(drop / group.most_drop * STEPS - 1e-9)) / STEPS
        if group.most_drop
        else 0.0
        for group, drop in zip(problem.groups, decision.drops, strict=True)
    )
    return Decision(decision.levels, drops)


def encode_linear(problem: LinkProblem, loads: Loads, most: Sequence[float]) -> Encoding:
    """Domain and problem."""
    names = named([group.name for group in problem.groups])
    levels = min(problem.levels, MOST_LEVELS)
    return Encoding(_domain(levels), _problem(problem, loads, most, names, levels), names, STEPS)


def _domain(levels: int) -> str:
    actions = "\n".join(_configure(k, levels) + _assess(k) for k in range(levels))
    return f"""; One link that serves flows by strict priority; l0 goes first. Sums only.
(define (domain headgate-link-linear)
  (:requirements :typing :fluents)
  (:types group level choice)
  (:predicates
    (open ?g - group)                   ; nothing was decided for it yet
    (at ?g - group ?l - level)
    (may ?g - group ?c - choice)        ; it tolerates this drop rate
    (met ?g - group))                   ; its requirement is kept
  (:functions
    (carried ?g - group ?c - choice)    ; part of the link that it takes with this drop rate
    (price ?g - group ?c - choice)      ; weight x messages/s that are dropped
    (most-load ?g - group)              ; up to which it keeps its requirement, by the model
    (through ?l - level)                ; load of this level and all above it
    (undecided)                         ; groups that are still open
    (cost))
{actions})
"""


def _configure(k: int, levels: int) -> str:
    effects = "\n".join(
        f"      (increase (through l{m}) (carried ?g ?c))" for m in range(k, levels)
    )
    return f"""
  (:action configure-l{k}
    :parameters (?g - group ?c - choice)
    :precondition (and (open ?g) (may ?g ?c))
    :effect (and (not (open ?g)) (at ?g l{k}) (decrease (undecided) 1)
{effects}
      (increase (cost) (price ?g ?c))))
"""


def _assess(k: int) -> str:
    return f"""
  (:action assess-l{k}
    :parameters (?g - group)
    :precondition (and (at ?g l{k}) (<= (undecided) 0) (<= (through l{k}) (most-load ?g)))
    :effect (met ?g))
"""


def _problem(
    problem: LinkProblem,
    loads: Loads,
    most: Sequence[float],
    names: Sequence[str],
    levels: int,
) -> str:
    lines = [f"    (= (through l{k}) 0)" for k in range(levels)]
    lines += ["    (= (cost) 0)", f"    (= (undecided) {len(names)})"]
    for u, (name, group) in enumerate(zip(names, problem.groups, strict=True)):
        lines += [
            "",
            f"    ; {group.name}: {len(group.flows)} flows",
            f"    (open {name})",
            f"    (= (most-load {name}) {number(most[u] + ROOM)})",
        ]
        for step in range(STEPS + 1 if group.most_drop > 0 else 1):
            drop = group.most_drop * step / STEPS
            price = group.weight * group.offered * drop
            lines += [
                f"    (may {name} d{step})",
                f"    (= (carried {name} d{step}) {number(loads.load[u] * (1 - drop))})",
                f"    (= (price {name} d{step}) {number(price)})",
            ]
    objects = " ".join(f"l{k}" for k in range(levels))
    choices = " ".join(f"d{step}" for step in range(STEPS + 1))
    facts = "\n".join(lines)
    goals = "\n".join(f"    (met {name})" for name in names)
    return f"""; Link {problem.link.name}, {(problem.link.rate or 0) / 1e6:g} Mbit/s
(define (problem {word(problem.link.name)})
  (:domain headgate-link-linear)
  (:objects {" ".join(names)} - group {objects} - level {choices} - choice)
  (:init
{facts})
  (:goal (and
{goals}))
  (:metric minimize (cost)))
"""
