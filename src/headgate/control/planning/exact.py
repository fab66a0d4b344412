"""The exact planner of one link: constraint programming that learns from the model.

How one group's response depends on the decisions for all others has no linear form, but it is
monotone: a group waits no longer if another goes later than before, or loses more. So the search is
a conversation (combinatorial Benders decomposition):

1. CP-SAT proposes levels and drop rates that cost the least and contradict nothing learned so far.
2. The model judges the proposal. If all requirements are met, it is the cheapest plan there is.
3. Otherwise each broken requirement becomes a *cut*: what, at the least, of this proposal breaks
   it. Anything that gives the group no more room than that is excluded from then on.
4. What the proposal costs is a bound from below; mended by dropping a little more, it is one from
   above. When they meet, within `GAP`, the mended one is the plan.

When nothing is left to propose, no plan exists, and the cuts are the proof. Drop rates are a grid
here; `polishing` refines them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from itertools import count

import numpy as np
from ortools.sat.python import cp_model

from headgate.control.planning.judging import Judge
from headgate.control.planning.polishing import Polish
from headgate.control.planning.problem import STEPS, Decision, LinkProblem
from headgate.errors import HeadgateError

GAP = 0.05
"""A plan costs at most this fraction more than the cheapest on the grid."""

LONGEST_PROPOSAL = 1.0
"""Seconds for one proposal; then the best one so far is taken, and the bound that was proven."""
LOAD_UNITS = 1_000_000
MOST_SUBSETS = 64
"""Sets of requirements that are tried to be given up before the search for the best begins."""


class OutOfTimeError(HeadgateError):
    """The time limit passed before the search knew the answer."""


class Place(Enum):
    """Where another group stands, seen from the one that waits."""

    ABOVE = auto()
    BESIDE = auto()
    BELOW = auto()


@dataclass(frozen=True)
class Cut:
    """`group` misses its requirement if each of `others` is at least as much in its way as said,
    and its own drop rate is at most `step`."""

    group: int
    step: int
    others: tuple[tuple[int, Place, int], ...]
    """Group, place, and the largest step of its drop rate at which it is still too much."""


@dataclass(frozen=True)
class Found:
    """A decision, what it costs, and what any must cost."""

    decision: Decision
    cost: float
    bound: float


class Search:
    """The conversation about one link. Cuts stay true whichever requirements are asked for."""

    def __init__(self, problem: LinkProblem, deadline: float, steps: int = STEPS) -> None:
        self.problem = problem
        self.groups = problem.groups
        self.judge = Judge(problem)
        self.deadline = deadline
        self.content = deadline
        """When a plan that is known suffices, whatever is not proven of it."""
        self.steps = [steps if group.most_drop > 0 else 0 for group in self.groups]
        self.loads = _loads(problem)
        self.cuts: dict[Cut, None] = {}
        self.rounds = 0

    def cheapest(self, required: Collection[int]) -> Found | None:
        """The cheapest decision that meets these groups' requirements; None if there is none."""
        master = _Master(self, required, soft=False)
        return self._converse(master, required)

    def least_broken(self) -> Decision:
        """The decision that breaks the least weight of requirements, and then costs the least.

        If time runs out, the best that was seen.
        """
        everyone = range(len(self.groups))
        self._lightest_given_up()
        try:
            found = self._converse(_Master(self, everyone, soft=True), everyone)
        except OutOfTimeError:
            return self.judge.best(self.groups)
        assert found is not None, "a requirement that may be broken excludes nothing"
        return found.decision

    def apart(self, required: Collection[int]) -> Found | None:
        """Every group on a level of its own, who asks for the shortest response first, and drops
        that make this do; None if they cannot, or there are not as many levels.

        Quick, and nobody waits behind what has gathered for those who are more patient.
        """
        levels = tuple(range(len(self.groups)))  # groups are in the order of what they ask for
        if len(levels) > self.problem.levels:
            return None

        def in_order(drops: Iterable[float]) -> Decision | None:
            decision = Decision(levels, tuple(drops))
            met = self.judge(decision).met
            return decision if all(met[u] for u in required) else None

        free = in_order(0.0 for _ in levels)
        if free is not None:
            return Found(free, 0.0, 0.0)
        generous = in_order(group.most_drop for group in self.groups)
        if generous is None:
            return None
        least = Polish(self.problem, self.judge, required, self.deadline).lessened(generous)
        return Found(least, self.cost(least), 0.0)

    def _lightest_given_up(self) -> None:
        """Look at what is left if a few are given up, the lightest first, until the rest has all.

        A search that runs out of time then knows of something sensible: it takes the best that the
        judge has seen.
        """
        weights = [group.weight for group in self.groups]
        everyone = range(len(weights))
        if len(weights) <= MOST_SUBSETS.bit_length():
            sets = [
                {u for u in everyone if number >> u & 1} for number in range(1, 1 << len(weights))
            ]
        else:
            lightest = sorted(everyone, key=lambda u: weights[u])
            sets = [{u} for u in everyone]
            sets += [set(lightest[:number]) for number in range(2, len(weights))]
        generous = tuple(group.most_drop for group in self.groups)
        for gone in sorted(sets, key=lambda one: sum(weights[u] for u in one))[:MOST_SUBSETS]:
            if time.monotonic() > self.deadline:
                return
            if self.ordered(generous, [u for u in everyone if u not in gone]) is not None:
                return

    def _converse(self, master: _Master, required: Collection[int]) -> Found | None:
        for cut in self.cuts:
            master.learn(cut)
        nothing = tuple(0.0 for _ in self.groups)
        free = self.ordered(nothing, required)
        if free is not None:
            return Found(free, 0.0, 0.0)
        best = self.apart(required)
        if best is None:
            start = Decision(tuple(range(len(self.groups))), nothing)
            best = self._mended(start, required, 0.0)
        for number in count(1):
            try:
                until = self.deadline if best is None or master.soft else self.content
                proposal = master.propose(until - time.monotonic())
            except OutOfTimeError:
                if best is None:
                    raise
                return best
            self.rounds += 1
            if proposal is None:
                return None
            decision, kept, bound = proposal
            if best is not None and len(kept) == len(required) and best.cost <= bound * (1 + GAP):
                return Found(best.decision, best.cost, bound)
            ordered = self.ordered(decision.drops, kept)
            judgement = self.judge(decision)
            broken = [u for u in kept if not judgement.met[u]]
            if ordered is not None or not broken:
                found = Found(ordered or decision, self.cost(decision), bound)
                if found.cost <= bound * (1 + GAP) + 1e-12:
                    return found
                best = found if best is None or found.cost < best.cost else best
            if number & (number - 1) == 0:  # the first, second, fourth, eighth time…
                mended = self._mended(decision, kept, bound)
                if mended is not None and (best is None or mended.cost < best.cost):
                    best = mended
            for group in broken:
                master.learn(self._cut(decision, group))
            now = time.monotonic()
            if best is not None and len(kept) == len(required) and now > self.content:
                return best
            if now > self.deadline:
                raise self.out_of_time()
        raise AssertionError("unreachable")

    def _mended(self, decision: Decision, kept: Collection[int], bound: float) -> Found | None:
        """Drop as little more as lets all of `kept` be met, everybody in proportion."""

        def at(part: float) -> Decision | None:
            drops = tuple(
                drop + part * (self.drop(u, self.steps[u]) - drop)
                for u, drop in enumerate(decision.drops)
            )
            return self.ordered(drops, kept)

        low, high = 0.0, 1.0
        best = at(high)
        if best is None:
            return None
        while high - low > 1 / 64:
            middle = (low + high) / 2
            mended = at(middle)
            if mended is None:
                low = middle
            else:
                best, high = mended, middle
        best = Polish(self.problem, self.judge, kept, self.deadline).lessened(best)
        return Found(best, self.cost(best), bound)

    def out_of_time(self) -> OutOfTimeError:
        return OutOfTimeError(f"link {self.problem.link.name}: no plan within the time limit")

    def cost(self, decision: Decision) -> float:
        """Messages per second that are dropped, by weight."""
        return sum(
            group.weight * group.offered * drop
            for group, drop in zip(self.groups, decision.drops, strict=True)
        )

    def drop(self, group: int, step: int) -> float:
        steps = self.steps[group]
        return self.groups[group].most_drop * step / steps if steps else 0.0

    def ordered(self, drops: tuple[float, ...], kept: Collection[int]) -> Decision | None:
        """Levels in the order of what is asked for, as few as will do, if that meets all of `kept`.

        From the lowest level up: as many of the most patient groups as can share it. Who waits on a
        level does not depend on the order below it, so the largest such set is the best choice.
        This is a shortcut: what it does not find, the search may.
        """
        count = len(self.groups)
        patience = sorted(range(count), key=lambda u: (u not in kept, self.groups[u].target))
        levels = [0] * count
        rest = count
        level = count
        while rest:
            level -= 1
            for first in range(rest):
                for place, group in enumerate(patience[:rest]):
                    levels[group] = level if place >= first else level - 1
                decision = Decision(tuple(levels), drops)
                met = self.judge(decision).met
                if all(met[u] for u in patience[first:rest] if u in kept):
                    rest = first
                    break
            else:
                return None
        decision = Decision(tuple(levels), drops).compact()
        if max(decision.levels) >= self.problem.levels:
            return None
        met = self.judge(decision).met
        return decision if all(met[u] for u in kept) else None

    def _cut(self, decision: Decision, group: int) -> Cut:
        """The weakest form of this decision that still breaks the group's requirement."""
        steps = [
            round(drop / self.groups[u].most_drop * self.steps[u]) if self.steps[u] else 0
            for u, drop in enumerate(decision.drops)
        ]
        places = {
            u: _place(level, decision.levels[group])
            for u, level in enumerate(decision.levels)
            if u != group
        }
        others = {u: (place, steps[u]) for u, place in places.items()}
        own = self._weakest_step(group, steps[group], others)
        for u in list(others):
            place, step = others.pop(u)
            if self._breaks(group, own, others):
                continue  # it breaks whatever this one does
            for weaker in _weaker(place):
                others[u] = (weaker, step)
                if self._breaks(group, own, others):
                    place = weaker
                    break
            others[u] = (place, self._most(group, own, others, u, place, step))
        cut = Cut(group, own, tuple((u, *said) for u, said in others.items()))
        self.cuts[cut] = None
        return cut

    def _weakest_step(self, group: int, step: int, others: dict[int, tuple[Place, int]]) -> int:
        """How much of its own it may drop, and still be too late."""
        low, high = step, self.steps[group]
        while low < high:  # more dropped is never worse for it
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._breaks(group, middle, others) else (low, middle - 1)
        return low

    def _most(
        self,
        group: int,
        own: int,
        others: dict[int, tuple[Place, int]],
        other: int,
        place: Place,
        step: int,
    ) -> int:
        """How much another may drop, and still be too much in its way."""
        low, high = step, self.steps[other]
        while low < high:
            middle = (low + high + 1) // 2
            others[other] = (place, middle)
            low, high = (middle, high) if self._breaks(group, own, others) else (low, middle - 1)
        return low

    def _breaks(self, group: int, own: int, others: dict[int, tuple[Place, int]]) -> bool:
        """Is the requirement broken if all groups not named go last and lose what they can?"""
        levels, drops = [], []
        for u in range(len(self.groups)):
            place, step = others.get(u, (Place.BELOW, self.steps[u]))
            if u == group:
                place, step = Place.BESIDE, own
            levels.append({Place.ABOVE: 0, Place.BESIDE: 1, Place.BELOW: 2}[place])
            drops.append(self.drop(u, step))
        return not self.judge(Decision(tuple(levels), tuple(drops))).met[group]


class _Master:
    """What CP-SAT knows: levels, drop rates, what they cost, and the cuts."""

    def __init__(self, search: Search, required: Collection[int], *, soft: bool) -> None:
        self.search = search
        self.required = set(required)
        self.model = cp_model.CpModel()
        groups, levels = range(len(search.groups)), search.problem.levels
        self.level = [self.model.new_int_var(0, levels - 1, f"level{u}") for u in groups]
        self.step = [self.model.new_int_var(0, search.steps[u], f"step{u}") for u in groups]
        self.keep = {u: self.model.new_bool_var(f"keep{u}") for u in self.required}
        self._before: dict[tuple[int, int], cp_model.IntVar] = {}
        self._above: dict[tuple[int, int], cp_model.IntVar] = {}
        for u in groups:
            self.model.add_hint(self.level[u], min(u, levels - 1))
        if not soft:
            for u in self.required:
                self.model.add(self.keep[u] == 1)
        for u in self.required:
            self._limit_load(u)
        if not soft and all(not math.isinf(search.groups[u].target) for u in groups):
            self._limit_whole()
        self._scale = self._minimise(soft)
        self.soft = soft

    def _limit_load(self, group: int) -> None:
        """Who must answer in time cannot stand on a level that the link cannot carry in full."""
        if math.isinf(self.search.groups[group].target):
            return
        loads, scale = self.search.loads, LOAD_UNITS
        carried = []
        for u, (load, step) in enumerate(zip(loads, self.step, strict=True)):
            # Rounded down: a bound of the search must not exclude what is possible.
            most = math.floor(load * scale)
            lost = math.ceil(load * self.search.drop(u, 1) * scale)
            if u == group:
                carried.append(most - lost * step)
                continue
            counted = self.model.new_int_var(0, most, f"load{u}for{group}")
            below = self._goes_before(group, u)
            self.model.add(counted >= most - lost * step).only_enforce_if(~below)
            carried.append(counted)
        self.model.add(sum(carried) <= scale).only_enforce_if(self.keep[group])

    def _limit_whole(self) -> None:
        """All must answer in time: whoever goes last carries the load of all. It follows from the
        limits of each, but only after levels were chosen."""
        if len(self.required) < len(self.search.groups):
            return
        carried = [
            math.floor(load * LOAD_UNITS)
            - math.ceil(load * self.search.drop(u, 1) * LOAD_UNITS) * step
            for u, (load, step) in enumerate(zip(self.search.loads, self.step, strict=True))
        ]
        self.model.add(sum(carried) <= LOAD_UNITS)

    def _minimise(self, soft: bool) -> float:
        """Returns the solver's units of cost for one of ours."""
        groups = self.search.groups
        losses = [
            group.weight * group.offered * self.search.drop(u, 1) for u, group in enumerate(groups)
        ]
        scale = 10_000 / max([*losses, 1e-12])
        cost = [max(1, round(loss * scale)) if loss else 0 for loss in losses]
        total = sum(c * step for c, step in zip(cost, self.step, strict=True))
        if soft:
            most = sum(c * s for c, s in zip(cost, self.search.steps, strict=True)) + 1
            heaviest = max(group.weight for group in groups)
            for u, keep in self.keep.items():
                weight = max(1, round(1000 * groups[u].weight / heaviest))
                total += most * weight * (1 - keep)
        self.model.minimize(total)
        return scale

    def learn(self, cut: Cut) -> None:
        """Exclude all that a cut says is broken."""
        if cut.group not in self.required:
            return
        way_out: list[cp_model.LiteralT] = [~self.keep[cut.group]]
        if cut.step < self.search.steps[cut.group]:
            way_out.append(self._drops_more(cut.group, cut.step))
        for u, place, step in cut.others:
            if place is Place.ABOVE:
                way_out.append(~self._goes_before(u, cut.group))
            elif place is Place.BESIDE:
                way_out.append(self._goes_before(cut.group, u))
            if step < self.search.steps[u]:
                way_out.append(self._drops_more(u, step))
        self.model.add_bool_or(way_out)

    def propose(self, seconds: float) -> tuple[Decision, list[int], float] | None:
        """A decision of least cost, whose requirement it keeps, and what any must cost."""
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = min(max(seconds, 0.05), LONGEST_PROPOSAL)
        solver.parameters.num_workers = 1  # reproducible, and kind to the broker beside it
        solver.parameters.cp_model_presolve = False  # the model is small and asked often
        solver.parameters.random_seed = 1
        status = solver.solve(self.model)
        if status == cp_model.INFEASIBLE:
            return None
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            raise self.search.out_of_time()
        steps = [solver.value(step) for step in self.step]
        decision = Decision(
            tuple(solver.value(level) for level in self.level),
            tuple(self.search.drop(u, step) for u, step in enumerate(steps)),
        )
        kept = [u for u, keep in self.keep.items() if solver.value(keep)]
        bound = self.search.cost(decision)
        if status != cp_model.OPTIMAL:
            # Rounding of the solver's units: one for each step of each group at most.
            rough = solver.best_objective_bound - sum(self.search.steps)
            bound = 0.0 if self.soft else max(0.0, rough / self._scale)
        return decision, kept, bound

    def _goes_before(self, first: int, second: int) -> cp_model.IntVar:
        """Whether one group has a better level than another."""
        known = self._before.get((first, second))
        if known is None:
            known = self.model.new_bool_var(f"{first}before{second}")
            a, b = self.level[first], self.level[second]
            self.model.add(a < b).only_enforce_if(known)
            self.model.add(a >= b).only_enforce_if(~known)
            self._before[first, second] = known
        return known

    def _drops_more(self, group: int, step: int) -> cp_model.IntVar:
        known = self._above.get((group, step))
        if known is None:
            known = self.model.new_bool_var(f"drop{group}above{step}")
            self.model.add(self.step[group] > step).only_enforce_if(known)
            self.model.add(self.step[group] <= step).only_enforce_if(~known)
            self._above[group, step] = known
        return known


def _loads(problem: LinkProblem) -> list[float]:
    """The part of the link that each group takes if nothing of it is dropped."""
    idle = problem.background.with_drop(np.ones(len(problem.origin)))
    loads = []
    for group in problem.groups:
        drop = idle.drop.copy()
        drop[list(group.flows)] = 0.0
        loads.append(float(problem.model.predict(idle.with_drop(drop)).utilisation[0]))
    return loads


def _place(level: int, of: int) -> Place:
    if level < of:
        return Place.ABOVE
    return Place.BESIDE if level == of else Place.BELOW


def _weaker(place: Place) -> tuple[Place, ...]:
    return {Place.ABOVE: (Place.BELOW, Place.BESIDE), Place.BESIDE: (Place.BELOW,)}.get(place, ())
