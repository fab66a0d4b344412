"""An independent check of plans: it reads the PDDL text and carries a plan out.

It knows nothing of links and models, only what the domain and the problem say: enough of PDDL 2.1
for typed actions with numeric conditions and effects. A planner's word is not taken for it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Tree: TypeAlias = str | list["Tree"]
Atom = tuple[str, ...]

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": lambda a, b: a <= b + 1e-9,
    ">=": lambda a, b: a >= b - 1e-9,
    "<": operator.lt,
    ">": operator.gt,
    "=": lambda a, b: abs(a - b) <= 1e-9,
}
_COMPUTE: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


@dataclass
class State:
    facts: set[Atom] = field(default_factory=set)
    values: dict[Atom, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """Whether a plan reaches the goal; if not, why. And what it costs by the metric."""

    valid: bool
    why: str = ""
    metric: float = 0.0


def validate(domain: str, problem: str, steps: Sequence[Sequence[str]]) -> Verdict:
    """Carry a plan out, step by step."""
    actions = {str(part[1]): part for part in _parts(read(domain), ":action")}
    state = _initial(read(problem))
    for number, (name, *arguments) in enumerate(steps):
        action = actions.get(name)
        if action is None:
            return Verdict(False, f"step {number}: there is no action {name}")
        parameters = [p for p in _list(_section(action, ":parameters")) if str(p).startswith("?")]
        if len(parameters) != len(arguments):
            return Verdict(False, f"step {number}: {name} takes {len(parameters)} arguments")
        bound = dict(zip((str(p) for p in parameters), arguments, strict=True))
        try:
            if not _holds(_section(action, ":precondition"), bound, state):
                return Verdict(False, f"step {number}: {name} is not possible then")
            _apply(_section(action, ":effect"), bound, state)
        except (KeyError, ZeroDivisionError) as error:
            return Verdict(False, f"step {number}: {name} uses what is not known: {error}")
    (goal,) = _parts(read(problem), ":goal")
    for condition in _conjuncts(goal[1]):
        if not _holds(condition, {}, state):
            return Verdict(False, f"the goal {write(condition)} is not reached")
    metric = list(_parts(read(problem), ":metric"))
    return Verdict(True, metric=_value(metric[0][2], {}, state) if metric else 0.0)


def read(text: str) -> list[Tree]:
    """Parentheses to lists; comments are left out."""
    stack: list[list[Tree]] = [[]]
    for token in re.findall(r"[()]|[^\s()]+", re.sub(r";[^\n]*", "", text).lower()):
        if token == "(":  # noqa: S105 - a parenthesis
            stack.append([])
        elif token == ")":  # noqa: S105
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    (whole,) = stack[0]
    return _list(whole)


def write(tree: Tree) -> str:
    return tree if isinstance(tree, str) else f"({' '.join(write(part) for part in tree)})"


def _parts(tree: list[Tree], name: str) -> Iterator[list[Tree]]:
    for part in tree:
        if isinstance(part, list) and part and part[0] == name:
            yield part


def _section(action: list[Tree], name: str) -> Tree:
    return action[action.index(name) + 1]


def _list(tree: Tree) -> list[Tree]:
    assert isinstance(tree, list)
    return tree


def _conjuncts(tree: Tree) -> list[Tree]:
    return _list(tree)[1:] if isinstance(tree, list) and tree[:1] == ["and"] else [tree]


def _initial(problem: list[Tree]) -> State:
    state = State()
    (init,) = _parts(problem, ":init")
    for entry in init[1:]:
        entry = _list(entry)
        if entry[0] == "=":
            state.values[_atom(entry[1], {})] = float(str(entry[2]))
        else:
            state.facts.add(_atom(entry, {}))
    return state


def _atom(tree: Tree, bound: dict[str, str]) -> Atom:
    return tuple(bound.get(str(part), str(part)) for part in _list(tree))


def _holds(tree: Tree, bound: dict[str, str], state: State) -> bool:
    head = str(_list(tree)[0])
    if head == "and":
        return all(_holds(part, bound, state) for part in _list(tree)[1:])
    if head == "not":
        return not _holds(_list(tree)[1], bound, state)
    if head in _COMPARE:
        left, right = (_value(part, bound, state) for part in _list(tree)[1:])
        return _COMPARE[head](left, right)
    return _atom(tree, bound) in state.facts


def _value(tree: Tree, bound: dict[str, str], state: State) -> float:
    if isinstance(tree, str):
        return float(tree)
    if tree[0] in _COMPUTE and len(tree) == 3:
        left, right = (_value(part, bound, state) for part in tree[1:])
        return _COMPUTE[str(tree[0])](left, right)
    return state.values[_atom(tree, bound)]


def _apply(tree: Tree, bound: dict[str, str], state: State) -> None:
    """All effects see the state before the action."""
    changes: list[Callable[[], None]] = []
    for effect in _conjuncts(tree):
        effect = _list(effect)
        head = str(effect[0])
        if head in ("increase", "decrease", "assign"):
            atom, amount = _atom(effect[1], bound), _value(effect[2], bound, state)
            if head != "assign":
                amount = state.values[atom] + (amount if head == "increase" else -amount)
            changes.append(lambda atom=atom, amount=amount: state.values.update({atom: amount}))  # type: ignore[misc]
        elif head == "not":
            atom = _atom(effect[1], bound)
            changes.append(lambda atom=atom: state.facts.discard(atom))  # type: ignore[misc]
        else:
            atom = _atom(effect, bound)
            changes.append(lambda atom=atom: state.facts.add(atom))  # type: ignore[misc]
    for change in changes:
        change()
