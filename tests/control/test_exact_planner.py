"""The exact planner against every decision there is, on random small links."""

from __future__ import annotations

import time
from functools import cache

import pytest

from control.instances import (
    cheapest_by_force,
    cost,
    most_weight_by_force,
    random_problem,
)
from headgate.control.planning.conflicts import conflicting
from headgate.control.planning.exact import GAP, Search
from headgate.control.planning.judging import judge
from headgate.control.planning.planner import decide

STEPS = 2
BATCHES = 10
EACH = 20


def search_for(seed: int) -> Search:
    return Search(random_problem(seed), time.monotonic() + 60, steps=STEPS)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_finds_a_plan_where_one_exists_and_none_where_none_does(batch: int) -> None:
    for seed in range(batch * EACH, (batch + 1) * EACH):
        search = search_for(seed)
        problem = search.problem
        found = search.cheapest(range(len(problem.groups)))
        best = cheapest_by_force(problem, STEPS)
        assert (found is None) == (best is None), f"seed {seed}"
        if found is not None and best is not None:
            assert judge(problem, found.decision).all_met, f"seed {seed}"
            assert found.cost <= best * (1 + GAP) + 1e-9, f"seed {seed}"
            assert found.bound <= best + 1e-9, f"seed {seed}"


@cache
def infeasible_seeds(count: int) -> list[int]:
    seeds = []
    for seed in range(1000):
        problem = random_problem(seed)
        if cheapest_by_force(problem, STEPS) is None:
            seeds.append(seed)
        if len(seeds) == count:
            break
    return seeds


def test_gives_up_the_least_weight() -> None:
    for seed in infeasible_seeds(25):
        search = search_for(seed)
        decision = search.least_broken()
        met = judge(search.problem, decision).met
        weight = sum(g.weight for g, m in zip(search.problem.groups, met, strict=True) if m)
        assert weight >= most_weight_by_force(search.problem, STEPS) - 1e-9, f"seed {seed}"


def test_a_conflict_has_nobody_in_it_who_could_be_served_with_the_others() -> None:
    for seed in infeasible_seeds(10):
        search = search_for(seed)
        core = conflicting(search)
        assert search.cheapest(core) is None, f"seed {seed}"
        for one in core:
            rest = [u for u in core if u != one]
            assert not rest or search.cheapest(rest) is not None, f"seed {seed}"


def test_polishing_keeps_what_was_met_and_drops_no_more() -> None:
    for seed in range(30):
        problem = random_problem(seed)
        coarse = Search(problem, time.monotonic() + 60).cheapest(range(len(problem.groups)))
        decided = decide(problem, time.monotonic() + 20, remedies=False)
        if coarse is not None:
            assert judge(decided.problem, decided.decision).all_met, f"seed {seed}"
            spent = cost(decided.problem, decided.decision)
            assert spent <= cost(problem, coarse.decision) * (1 + 1e-3) + 1e-9, f"seed {seed}"
