"""Beyond priorities and drops: join probabilities of who comes and goes, periods of who adapts."""

from __future__ import annotations

from itertools import product
from random import Random

import msgspec
import numpy as np
import pytest

from control.instances import every_decision
from control.test_loop import CONFIG, World, event
from headgate.contract import Application, LinkSpec, PeriodRange, Policy, Requirement
from headgate.control.history import Event
from headgate.control.planning import Plan, Problem, Verdict, broken, plan
from headgate.control.planning.exact import GAP
from headgate.control.planning.judging import arrives, judge, strain
from headgate.control.planning.problem import LinkProblem
from headgate.control.planning.slowing import STEPS, Adapting
from headgate.model import Client, Connectivity, Model, Scenario, Settings, Topic
from headgate.model.feasibility import Feasible
from headgate.model.network_inverse import largest_join


def adapting_scenario(seed: int) -> Scenario:
    """Two applications, up to twice what the link carries; the publishers of some topics adapt."""
    rng = Random(seed)
    ranges = (PeriodRange(min=0.1, max=0.4), PeriodRange(min=0.2, max=2.0))
    topics = tuple(
        Topic(
            name=f"t{n}",
            rate=rng.uniform(5, 20),
            size=rng.choice([500, 2000]),
            period=(*ranges, None)[n] if rng.random() < 0.8 else None,
        )
        for n in range(3)
    )
    applications = tuple(
        Application(
            name=name,
            requirement=Requirement(
                mean_ms=rng.choice([80.0, 300.0, 1000.0]), loss=rng.choice([0.0, 0.2])
            ),
            weight=rng.choice([1.0, 3.0]),
        )
        for name in ("a", "b")
    )
    clients = tuple(
        Client(
            name=f"{name}{n}",
            subscriptions=tuple(t.name for t in rng.sample(topics, 2)),
            application=name,
        )
        for name in ("a", "b")
        for n in range(2)
    )
    rates = {topic.name: (topic.rate or 0) * topic.size * 8 for topic in topics}
    offered = sum(rates[t] for client in clients for t in client.subscriptions)
    rate = round(offered / rng.uniform(0.7, 2.0))
    return Scenario(
        topics=topics,
        clients=clients,
        applications=applications,
        links=(LinkSpec(name="link", clients=("*",), rate=rate),),
    )


def met_by_force(problem: LinkProblem) -> bool:
    return any(judge(problem, decision).all_met for decision in every_decision(problem, 2))


def test_publishers_are_slowed_as_little_as_will_do_by_brute_force() -> None:
    slowed = hopeless = 0
    for seed in range(14):
        scenario = adapting_scenario(seed)
        (problem,) = Problem.of(scenario).links
        made = plan(scenario, remedies=False)
        if met_by_force(problem):
            assert not made.policy.periods, "slowing is the last resort"
            assert made.feasible
            continue
        adapting = Adapting.of(problem)
        by_force = [
            adapting.cost(chosen)
            for chosen in product(range(0, STEPS + 1, 2), repeat=len(adapting.ranges))
            if met_by_force(problem.slowed(adapting.factors(chosen)))
        ]
        if not by_force:
            hopeless += 1
        else:
            assert made.feasible, seed
            factors = {t: s / scenario_period(scenario, t) for t, s in made.policy.periods.items()}
            chosen_cost = cost_of(adapting, factors)
            assert chosen_cost <= min(by_force) * (1 + 1e-4) + 1e-6, (seed, chosen_cost, by_force)
        if made.policy.periods:
            slowed += 1
            assert made.feasible
            assert not broken(scenario, made.policy)
    assert slowed >= 4
    assert hopeless >= 1


def scenario_period(scenario: Scenario, topic: str) -> float:
    period = next(t.period for t in scenario.topics if t.name == topic)
    assert period is not None
    return period.min


def cost_of(adapting: Adapting, factors: dict[str, float]) -> float:
    return sum(
        price * (1 - 1 / factors.get(topics[0], 1.0))
        for price, topics in zip(adapting.prices, adapting.topics, strict=True)
    )


def coming_and_going(threshold: float | None = 7.0, loss: float = 1.0) -> Scenario:
    """ON/OFF's experiment: 20 s there, 20 s away, 8 messages/s; and an alarm on the same link."""
    return Scenario(
        topics=(Topic(name="t", rate=1.0, size=1000), Topic(name="a", rate=5.0, size=1000)),
        clients=(
            Client(
                name="tram",
                subscriptions=("t",),
                connectivity=Connectivity(on=20, off=20, drain=8),
                application="timetable",
            ),
            Client(name="alarm", subscriptions=("a",), application="alarm"),
        ),
        applications=(
            Application(
                name="timetable",
                threshold_s=threshold,
                requirement=None
                if threshold and loss == 1.0
                else Requirement(mean_ms=None if threshold else 7000, loss=loss),
            ),
            Application(name="alarm", requirement=Requirement(mean_ms=60), weight=5),
        ),
        links=(LinkSpec(name="floor", clients=("*",), rate=1_000_000),),
    )


def join_of(made: Plan, scenario: Scenario) -> float:
    return float(Model(scenario).table.settings(made.policy).join[0])


@pytest.mark.parametrize("threshold", [7.0, None])
def test_join_is_the_largest_that_keeps_the_threshold_or_the_mean(threshold: float | None) -> None:
    scenario = coming_and_going(threshold, 1.0 if threshold else 0.9)
    made = plan(scenario)
    assert made.verdict is Verdict.PLANNED
    settings = Model(scenario, ()).table.settings(made.policy)
    best = largest_join(Model(scenario, ()), settings, joining=[0], flows=[0], threshold_s=7.0)
    assert isinstance(best, Feasible)
    assert join_of(made, scenario) == pytest.approx(best.value, abs=2e-3)
    assert join_of(made, scenario) <= best.value + 1e-3
    assert 0.3 < best.value < 0.5  # ON/OFF: 0.417 with the input queue
    (step,) = [s for s in made.steps if s.group == "timetable"]
    assert step.join == pytest.approx(best.value, abs=2e-3)


def test_what_may_not_be_lost_is_not_given_up_while_away() -> None:
    made = plan(coming_and_going(7.0, 0.1))
    assert made.verdict is Verdict.DEGRADED
    assert made.conflicts[0].broken == ("timetable",)


def test_a_client_that_can_wait_keeps_all_messages() -> None:
    scenario = coming_and_going(60.0)
    assert join_of(plan(scenario), scenario) == 1.0


def test_joins_and_drops_together_by_brute_force() -> None:
    """Drop and join free for the client that comes and goes, any order of levels."""
    checked = 0
    for seed in range(10):
        rng = Random(seed)
        scenario = coming_and_going(rng.choice([3.0, 6.0, 12.0, 25.0]))
        rate = rng.choice([20_000, 40_000, 60_000, 100_000])
        link = msgspec.structs.replace(scenario.links[0], rate=rate)
        alarm = msgspec.structs.replace(
            scenario.applications[1],
            requirement=Requirement(mean_ms=rng.choice([600.0, 1500.0]), loss=0.4),
        )
        scenario = msgspec.structs.replace(
            scenario, links=(link,), applications=(scenario.applications[0], alarm)
        )
        (problem,) = Problem.of(scenario).links
        weights = {g.flows[0]: g.weight for g in problem.groups}
        best = None
        for levels in ((0, 1), (1, 0), (0, 0)):
            for join, drop, other in product(
                np.linspace(0, 1, 9), np.linspace(0, 1, 5), np.linspace(0, 0.4, 5)
            ):
                settings = Settings(
                    np.array(levels),
                    np.array([drop, other]),
                    np.array([join, 1.0]),
                    np.full(2, np.inf),
                    np.full(2, -1),
                )
                prediction = problem.model.predict(settings)
                offered = problem.model.offered
                if all(
                    strain(g.requirement, prediction, offered, g.flows) <= 1
                    and arrives(g.requirement, prediction, offered, g.flows)
                    for g in problem.groups
                ):
                    lost = 1 - (1 - drop) * (0.5 + 0.5 * join)
                    cost = weights[0] * offered[0] * lost + weights[1] * offered[1] * other
                    best = cost if best is None else min(best, cost)
        made = plan(scenario, remedies=False)
        if best is None:
            continue
        checked += 1
        assert made.feasible, seed
        assert not broken(scenario, made.policy)
        assert made.cost <= best * (1 + GAP) + 1e-6, seed
    assert checked >= 5


ADAPTING = CONFIG.replace(
    "mode: auto", "mode: auto, proactive: false, periods: [{topic: t, min: 20ms, max: 200ms}]"
).replace("5000, loss: 0.5", "200, loss: 0.0")


def test_publishers_that_listen_are_slowed_and_let_go_again() -> None:
    world = World(ADAPTING)
    world.turns(12)
    assert not world.controller.in_force.periods
    world.rate = 0.5e6
    answer = world.turn()
    assert event(answer) is Event.APPLIED
    assert answer.policy is not None
    slow = answer.policy.periods["t"]
    assert 0.02 < slow <= 0.2
    assert answer.record is not None
    assert any(line.startswith("t: every") for line in answer.record.steps)
    world.per_second = round(50 * 0.02 / slow)  # they listened
    answers = world.turns(15)
    assert all(a.policy is None for a in answers), "what is slowed by plan is no change of load"
    world.rate = 1e6
    answers = world.turns(3)
    assert [a.policy.periods for a in answers if a.policy] == [{}]


def test_publishers_that_do_not_listen_are_not_taken_for_faster_ones() -> None:
    world = World(ADAPTING)
    world.turns(12)
    world.rate = 0.5e6
    assert world.turn().policy is not None
    world.turns(20)
    (topic,) = world.controller.measurements.scenario().topics
    assert topic.rate == pytest.approx(50, rel=0.01)


def test_a_policy_without_periods_is_the_same_on_the_wire_as_before() -> None:
    assert Policy(version=3).to_json() == b'{"version":3,"rules":[]}'
    told = Policy(version=3, periods={"t": 0.5})
    assert Policy.from_json(told.to_json()) == told
