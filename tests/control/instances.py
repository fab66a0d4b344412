"""Random planning problems, small enough to try every decision."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

from headgate.contract import Application, LinkSpec, Requirement
from headgate.control.planning import Decision, LinkProblem, Problem
from headgate.control.planning.judging import Judge
from headgate.model import Client, Scenario, Topic


def random_scenario(seed: int) -> Scenario:
    """Two or three applications that share topics behind one link, loaded from 0.4 to 1.2."""
    rng = Random(seed)
    topics = tuple(
        Topic(name=f"t{n}", rate=rng.uniform(1, 20), size=rng.choice([100, 500, 2000, 8000]))
        for n in range(rng.randint(2, 4))
    )
    applications, clients = [], []
    for n in range(rng.randint(2, 3)):
        requirement = Requirement(
            response_ms=rng.choice([None, 30.0, 80.0, 300.0]),
            percentile=rng.choice([95.0, 99.0]),
            mean_ms=rng.choice([None, 10.0, 40.0, 200.0]),
            loss=rng.choice([0.0, 0.0, 0.1, 0.4]),
        )
        applications.append(
            Application(
                name=f"a{n}",
                clients=(f"a{n}-*",),
                requirement=requirement,
                weight=rng.choice([1.0, 2.0, 5.0]),
            )
        )
        for c in range(rng.randint(1, 2)):
            chosen = rng.sample(topics, rng.randint(1, len(topics)))
            clients.append(Client(name=f"a{n}-{c}", subscriptions=tuple(t.name for t in chosen)))
    by_name = {t.name: t for t in topics}
    offered = sum(
        (by_name[s].rate or 0) * by_name[s].size * 8 for c in clients for s in c.subscriptions
    )
    rate = max(1000, round(offered / rng.uniform(0.4, 1.2)))
    return Scenario(
        topics=topics,
        clients=tuple(clients),
        applications=tuple(applications),
        links=(LinkSpec(name="link", clients=("*",), rate=rate),),
    )


def random_problem(seed: int) -> LinkProblem:
    return Problem.of(random_scenario(seed)).links[0]


def every_decision(problem: LinkProblem, steps: int) -> Iterator[Decision]:
    """All levels and all drop rates of a grid."""
    count = len(problem.groups)
    rates = [
        [group.most_drop * s / steps for s in range(steps + 1)] if group.most_drop else [0.0]
        for group in problem.groups
    ]
    orders = {
        Decision(levels, ()).compact().levels for levels in product(range(count), repeat=count)
    }
    for levels in sorted(orders):
        for drops in product(*rates):
            yield Decision(levels, drops)


def cost(problem: LinkProblem, decision: Decision) -> float:
    return sum(
        group.weight * group.offered * drop
        for group, drop in zip(problem.groups, decision.drops, strict=True)
    )


def cheapest_by_force(problem: LinkProblem, steps: int) -> float | None:
    """What the cheapest decision that meets everything costs; None if there is none."""
    judge = Judge(problem)
    best: float | None = None
    for decision in every_decision(problem, steps):
        price = cost(problem, decision)
        if (best is None or price < best) and judge(decision).all_met:
            best = price
    return best


def most_weight_by_force(problem: LinkProblem, steps: int) -> float:
    """The most weight of requirements that can be met at once."""
    judge = Judge(problem)
    return max(
        sum(g.weight for g, met in zip(problem.groups, judge(d).met, strict=True) if met)
        for d in every_decision(problem, steps)
    )
