"""A link's planning problem as PDDL 2.1: for people to read, and for any numeric planner to solve.

The plan configures each group of flows, at a level and with a drop rate, and then assesses it. The
effects are joint: an assessment assigns the group's response from the loads of *all* levels up to
its own and from the residual work of the whole link, as every drop rate and priority left them
(A. Cobham, 1954). Requirements are numeric goals on what was assessed; the metric is what is lost,
by weight.

What the formula leaves out, copies that arrive together and percentiles, is in two numbers per
group that the model calibrates: `factor`, on the waiting, and `own`, the time of the message
itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.control.planning.judging import judge
from headgate.control.planning.problem import Decision, LinkProblem

STEPS = 4
"""Drop rates to choose from, beside none."""
MOST_LEVELS = 6
PLANNED = "planned"
"""The choice that stands for the drop rate of a plan."""
UNKNOWN = 1_000_000
"""The response of what was not assessed: no requirement is that patient."""


@dataclass(frozen=True)
class Calibration:
    """Per group: strain = own + factor × residual / (free above × free through)."""

    own: tuple[float, ...]
    factor: tuple[float, ...]


@dataclass(frozen=True)
class Encoding:
    """The two texts, and how to read a plan of them."""

    domain: str
    problem: str
    groups: tuple[str, ...]
    """PDDL's names of the groups, in their order."""
    steps: int


@dataclass(frozen=True)
class Loads:
    """What each group puts on the link if nothing of it is dropped."""

    load: tuple[float, ...]
    residual: tuple[float, ...]
    """Half of rate × E[S²], in milliseconds."""
    background: float
    """The residual of flows that asked for nothing."""

    @classmethod
    def of(cls, problem: LinkProblem) -> Loads:
        model, scenario = problem.model, problem.model.scenario
        rate = float(problem.link.rate or 1)
        load, square = np.zeros(len(model.table)), np.zeros(len(model.table))
        for flow, topic in zip(model.table.stream_flow, model.table.stream_topic, strict=True):
            entry = scenario.topics[topic]
            first, second, _ = entry.size_distribution.moments()
            extra = float(scenario.overhead)
            load[flow] += entry.mean_rate * (first + extra) * 8 / rate
            square[flow] += (
                entry.mean_rate
                * (second + 2 * extra * first + extra**2)
                * (8 / rate) ** 2
                / 2
                * 1000
            )
        grouped = [list(group.flows) for group in problem.groups]
        everyone = {flow for flows in grouped for flow in flows}
        return cls(
            tuple(float(load[flows].sum()) for flows in grouped),
            tuple(float(square[flows].sum()) for flows in grouped),
            float(sum(square[f] for f in range(len(square)) if f not in everyone)),
        )


def waiting(loads: Loads, decision: Decision, group: int) -> float:
    """The formula's waiting of a group, in milliseconds; infinite beyond what the link carries."""
    kept = [1 - drop for drop in decision.drops]
    level = decision.levels[group]
    pairs = list(zip(loads.load, kept, decision.levels, strict=True))
    above = sum(load * k for load, k, other in pairs if other < level)
    through = sum(load * k for load, k, other in pairs if other <= level)
    residual = loads.background + sum(r * k for r, k in zip(loads.residual, kept, strict=True))
    if through >= 1:
        return float("inf")
    return residual / ((1 - above) * (1 - through))


def calibrated(problem: LinkProblem, loads: Loads, at: Sequence[Decision]) -> Calibration:
    """Fit the formula to the model, from above, at some decisions."""
    own, factor = [], []
    for u in range(len(problem.groups)):
        alone = _alone(problem, u)
        best = judge(problem, alone).strain[u]
        least = waiting(loads, alone, u)
        factors = [0.0]
        for decision in at:
            strain, waits = judge(problem, decision).strain[u], waiting(loads, decision, u)
            if np.isfinite(strain) and np.isfinite(waits) and waits > 0:
                factors.append(max(0.0, strain - 0.5 * best) / waits)
        own.append(0.5 * best)
        factor.append(max([*factors, 0.5 * best / least if least > 0 else 0.0]))
    return Calibration(tuple(own), tuple(factor))


def _alone(problem: LinkProblem, group: int) -> Decision:
    """The best that can be done for one group."""
    levels = tuple(0 if u == group else 1 for u in range(len(problem.groups)))
    return Decision(levels, tuple(g.most_drop for g in problem.groups))


def encode(
    problem: LinkProblem,
    loads: Loads,
    calibration: Calibration,
    planned: Decision | None = None,
) -> Encoding:
    """Domain and problem; responses are in parts of what is asked for.

    With `planned`, each group may also choose the drop rate that was planned for it.
    """
    names = named([group.name for group in problem.groups])
    levels = min(problem.levels, MOST_LEVELS)
    text = _problem(problem, loads, calibration, names, levels, planned)
    return Encoding(_domain(levels), text, names, STEPS)


def steps_of(encoding: Encoding, planned: Decision) -> str:
    """A decision as the steps of a PDDL plan: configure everybody, then assess everybody."""
    pairs = list(zip(encoding.groups, planned.levels, strict=True))
    lines = [f"(configure-l{level} {name} {PLANNED})" for name, level in pairs]
    lines += [f"(assess-l{level} {name})" for name, level in pairs]
    return "".join(f"{place}: {line}\n" for place, line in enumerate(lines))


def _domain(levels: int) -> str:
    actions = "\n".join(_configure(k, levels) + _assess(k) for k in range(levels))
    return f"""; One link that serves flows by strict priority; l0 goes first.
(define (domain headgate-link)
  (:requirements :typing :fluents)
  (:types group level choice)
  (:predicates
    (open ?g - group)                   ; nothing was decided for it yet
    (at ?g - group ?l - level)
    (may ?g - group ?c - choice))       ; it tolerates this drop rate
  (:functions
    (load ?g - group)                   ; part of the link that it takes if nothing is dropped
    (residual ?g - group)               ; ms, half of rate x E[S^2]
    (kept ?g - group ?c - choice)       ; part of its messages that a drop rate leaves
    (price ?g - group)                  ; what it costs to drop all of it: weight x messages/s
    (own ?g - group)                    ; calibrated by the model, as is
    (factor ?g - group)
    (through ?l - level)                ; load of this level and all above it
    (residual-of-all)
    (undecided)                         ; groups that are still open
    (response ?g - group)               ; over the response that was asked for
    (loss ?g - group)
    (cost))
{actions})
"""


def _configure(k: int, levels: int) -> str:
    through = "\n".join(
        f"      (increase (through l{m}) (* (load ?g) (kept ?g ?c)))" for m in range(k, levels)
    )
    return f"""
  (:action configure-l{k}
    :parameters (?g - group ?c - choice)
    :precondition (and (open ?g) (may ?g ?c))
    :effect (and (not (open ?g)) (at ?g l{k}) (decrease (undecided) 1)
{through}
      (increase (residual-of-all) (* (residual ?g) (kept ?g ?c)))
      (assign (loss ?g) (- 1 (kept ?g ?c)))
      (increase (cost) (* (price ?g) (- 1 (kept ?g ?c))))))
"""


def _assess(k: int) -> str:
    above = f"(- 1 (through l{k - 1}))" if k else "1"
    return f"""
  (:action assess-l{k}
    :parameters (?g - group)
    :precondition (and (at ?g l{k}) (<= (undecided) 0) (< (through l{k}) 1))
    :effect (assign (response ?g)
      (+ (own ?g) (* (factor ?g) (/ (residual-of-all) (* {above} (- 1 (through l{k}))))))))
"""


def _problem(
    problem: LinkProblem,
    loads: Loads,
    calibration: Calibration,
    names: Sequence[str],
    levels: int,
    planned: Decision | None,
) -> str:
    lines = [f"    (= (through l{k}) 0)" for k in range(levels)]
    lines += [f"    (= (residual-of-all) {number(loads.background)})", "    (= (cost) 0)"]
    lines += [f"    (= (undecided) {len(names)})"]
    goals = []
    for u, (name, group) in enumerate(zip(names, problem.groups, strict=True)):
        lines += [
            "",
            f"    ; {group.name}: {len(group.flows)} flows",
            f"    (open {name})",
            f"    (= (load {name}) {number(loads.load[u])})",
            f"    (= (residual {name}) {number(loads.residual[u])})",
            f"    (= (price {name}) {number(group.weight * group.offered)})",
            f"    (= (own {name}) {number(calibration.own[u])})",
            f"    (= (factor {name}) {number(calibration.factor[u])})",
            f"    (= (response {name}) {UNKNOWN})",
            f"    (= (loss {name}) 1)",
        ]
        for step in range(STEPS + 1 if group.most_drop > 0 else 1):
            kept = 1 - group.most_drop * step / STEPS
            lines += [f"    (may {name} d{step})", f"    (= (kept {name} d{step}) {number(kept)})"]
        if planned is not None:
            lines.append(f"    (may {name} {PLANNED})")
            lines.append(f"    (= (kept {name} {PLANNED}) {number(1 - planned.drops[u])})")
        goals.append(f"    (<= (response {name}) 1)")
        goals.append(f"    (<= (loss {name}) {number(group.most_drop + 1e-6)})")
    objects = " ".join(f"l{k}" for k in range(levels))
    choices = " ".join(f"d{step}" for step in range(STEPS + 1))
    if planned is not None:
        choices += f" {PLANNED}"
    facts = "\n".join(lines)
    wanted = "\n".join(goals)
    return f"""; Link {problem.link.name}, {(problem.link.rate or 0) / 1e6:g} Mbit/s
(define (problem {word(problem.link.name)})
  (:domain headgate-link)
  (:objects {" ".join(names)} - group {objects} - level {choices} - choice)
  (:init
{facts})
  (:goal (and
{wanted}))
  (:metric minimize (cost)))
"""


def number(value: float) -> str:
    """As PDDL writes numbers: no exponent."""
    return f"{value:.9f}".rstrip("0").rstrip(".") or "0"


def named(names: Sequence[str]) -> tuple[str, ...]:
    """Words that PDDL takes, each once."""
    found: dict[str, int] = {}
    words = []
    for name in names:
        plain = word(name)
        times = found[plain] = found.get(plain, 0) + 1
        words.append(plain if times == 1 else f"{plain}-{times}")
    return tuple(words)


def word(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    return plain if plain[:1].isalpha() else f"g-{plain}".rstrip("-")


__all__ = ["Calibration", "Encoding", "Loads", "calibrated", "encode", "waiting"]
