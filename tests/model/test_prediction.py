"""The network model: reduces to the single queues, adds up, and agrees with the simulator."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from headgate.contract import Application, Discipline, LinkSpec, PolicyRule
from headgate.experiments.planemqx import PLAN
from headgate.experiments.scenarios import load
from headgate.model import (
    MG1,
    MM1,
    MM1K,
    Client,
    Connectivity,
    Distribution,
    InputQueue,
    Model,
    OnOffQueue,
    PriorityMG1,
    Scenario,
    Shape,
    Stage,
    Topic,
    predict,
)
from headgate.model.prediction import THRESHOLDS
from headgate.model.scenario import ArrivalProcess
from headgate.model.simulation.of_scenario import simulate_scenario


def one_flow(**changes: object) -> Scenario:
    scenario = Scenario(
        topics=(Topic(name="t", rate=7.0, size=1000),),
        clients=(Client(name="c", subscriptions=("t",)),),
        links=(LinkSpec(name="l", clients=("*",), rate=80_000),),
    )
    return msgspec.structs.replace(scenario, **changes)


def separate_flows(sizes: Shape) -> Scenario:
    """Three clients with a topic each behind one link: no copies, so plain priority M/G/1."""
    return Scenario(
        topics=tuple(Topic(name=f"t{i}", rate=2.0, size=1000, sizes=sizes) for i in range(3)),
        clients=tuple(Client(name=f"c{i}", subscriptions=(f"t{i}",)) for i in range(3)),
        links=(LinkSpec(name="l", clients=("*",), rate=64_000),),
        policy=tuple(PolicyRule(topic=f"t{i}", priority=i) for i in range(3)),
    )


def test_one_flow_on_a_link_is_mg1() -> None:
    queue = MG1(7.0, Distribution.constant(0.1))
    prediction = predict(one_flow())
    assert prediction.mean[0] == pytest.approx(queue.mean_response)
    for p, values in prediction.percentiles.items():
        assert values[0] == pytest.approx(queue.response_quantile(p / 100), rel=0.03)
    assert prediction.utilisation[0] == pytest.approx(0.7)
    assert prediction.throughput[0] == pytest.approx(7.0)
    assert prediction.assumptions == ()


@pytest.mark.parametrize("sizes", [Shape.CONSTANT, Shape.EXPONENTIAL])
def test_flows_of_separate_topics_are_cobhams_classes(sizes: Shape) -> None:
    service = (
        Distribution.constant(0.125) if sizes is Shape.CONSTANT else Distribution.exponential(0.125)
    )
    queue = PriorityMG1([2.0] * 3, [service] * 3)
    prediction = predict(separate_flows(sizes))
    for level in range(3):
        assert prediction.mean[level] == pytest.approx(queue.mean_response(level))
        for p in (95.0, 99.0):
            exact = queue.response_quantile(level, p / 100)
            assert prediction.percentiles[p][level] == pytest.approx(exact, rel=0.08)


def test_copies_of_one_message_wait_for_each_other() -> None:
    """Two copies per message: M[2]/D/1, by hand."""
    scenario = one_flow(
        topics=(Topic(name="t", rate=3.5, size=1000),),
        clients=(
            Client(name="a", subscriptions=("t",)),
            Client(name="b", subscriptions=("t",)),
        ),
    )
    found = 3.5 * 0.2**2 / 2 / (1 - 0.7)
    prediction = predict(scenario)
    assert prediction.mean == pytest.approx([found + 0.1, found + 0.2])
    # With priority the second goes first, and waits for nothing but what is being sent.
    ahead = predict(scenario, [PolicyRule(application=None, topic="t", priority=3)])
    assert ahead.mean == pytest.approx(prediction.mean)


def test_dropping_and_priority_are_predicted_together() -> None:
    rules = [PolicyRule(priority=0, drop=0.5)]
    prediction = predict(one_flow(), rules)
    assert prediction.mean[0] == pytest.approx(MG1(3.5, Distribution.constant(0.1)).mean_response)
    assert prediction.loss[0] == pytest.approx(0.5)
    assert prediction.throughput[0] == pytest.approx(3.5)


def test_overhead_is_sent_too() -> None:
    queue = MG1(7.0, Distribution.constant(0.105))
    assert predict(one_flow(overhead=50)).mean[0] == pytest.approx(queue.mean_response)


def test_below_an_overloaded_level_nothing_is_sent() -> None:
    """Also not of a flow with no copy of its message ahead, and for any number of topics."""
    clients = (
        Client(name="flood", subscriptions=("a",)),
        Client(name="one", subscriptions=("b",)),
        Client(name="many", subscriptions=("#",)),
    )
    scenario = Scenario(
        topics=(Topic(name="a", rate=20.0, size=1000), Topic(name="b", rate=1.0, size=1000)),
        clients=clients,
        links=(LinkSpec(name="l", clients=("*",), rate=80_000),),
        policy=(PolicyRule(topic="a", priority=0), PolicyRule(topic="b", priority=1)),
    )
    prediction = predict(scenario)
    assert list(prediction.mean) == [math.inf] * 3
    assert list(prediction.percentiles[95.0]) == [math.inf] * 3
    assert prediction.throughput == pytest.approx([10.0, 0.0, 0.0])


def test_an_overloaded_level_gets_what_is_left() -> None:
    scenario = msgspec.structs.replace(
        separate_flows(Shape.CONSTANT),
        links=(LinkSpec(name="l", clients=("*",), rate=40_000),),  # 2 × 0.2 s × 3 levels = 1.2
    )
    prediction = predict(scenario)
    assert prediction.utilisation[0] == pytest.approx(1.2)
    assert list(prediction.stable) == [True, True, False]
    assert prediction.mean[2] == math.inf
    assert prediction.throughput == pytest.approx([2.0, 2.0, 1.0])
    assert prediction.loss == pytest.approx([0, 0, 0.5])


def test_input_queue_and_stages_add_up() -> None:
    scenario = one_flow(
        links=(),
        input=InputQueue(rate=10.0),
        stages=(
            Stage(name="radio", time=0.05, service=Shape.EXPONENTIAL),
            Stage(name="app", time=0.1, service=Shape.EXPONENTIAL, queue=True),
            Stage(name="other", time=9.0, clients=("nobody",)),
        ),
    )
    prediction = predict(scenario)
    assert prediction.mean[0] == pytest.approx(2 * MM1(7.0, 10.0).mean_response + 0.05)
    small = predict(one_flow(links=(), input=InputQueue(rate=10.0, capacity=3)))
    queue = MM1K(7.0, 10.0, 3)
    assert small.mean[0] == pytest.approx(queue.mean_response)
    assert small.loss[0] == pytest.approx(queue.loss)
    assert small.percentiles[95.0][0] == pytest.approx(queue.response_quantile(0.95))


def test_a_client_that_comes_and_goes_is_the_onoff_queue() -> None:
    connectivity = Connectivity(on=20.0, off=20.0, drain=8.0)
    scenario = one_flow(
        topics=(Topic(name="t", rate=1.0), Topic(name="u", rate=2.0)),
        clients=(Client(name="c", subscriptions=("t", "u"), connectivity=connectivity),),
        links=(),
    )
    prediction = predict(scenario, [PolicyRule(join=0.3)])
    queue = OnOffQueue(3.0, 8.0, 20.0, 20.0, 0.3)
    assert prediction.mean == pytest.approx([float(queue.mean_response)] * 2)
    assert prediction.percentiles[95.0] == pytest.approx([float(queue.response_quantile(0.95))] * 2)
    assert prediction.loss == pytest.approx([0.35, 0.35])
    flooded = predict(msgspec.structs.replace(scenario, topics=(Topic(name="t", rate=6.0),)))
    assert flooded.mean[0] == math.inf
    mixed = predict(scenario, [PolicyRule(topic="t", priority=1)])
    assert mixed.assumptions == (
        "a client that comes and goes takes its flows in order of arrival",
    )
    assert flooded.throughput[0] == pytest.approx(4.0)  # 8/s half of the time


def test_what_is_left_out_is_said() -> None:
    scenario = one_flow(
        topics=(Topic(name="t", rate=1.0, arrivals=ArrivalProcess.PERIODIC),),
        links=(LinkSpec(name="l", clients=("*",), rate=80_000, discipline=Discipline.DRR),),
    )
    notes = predict(scenario, [PolicyRule(lifetime=1.0, capacity=5)]).assumptions
    text = " ".join(notes)
    for word in ("Poisson", "drr is taken as strict", "lifetimes", "capacities"):
        assert word in text


def test_thresholds_are_named_as_left_out_where_they_would_count() -> None:
    away = Connectivity(on=20.0, off=20.0, drain=30.0)
    mobile = one_flow(clients=(Client(name="c", subscriptions=("t",), connectivity=away),))
    rules = [PolicyRule(threshold_s=7.0)]
    assert THRESHOLDS in predict(mobile, rules).assumptions
    assert THRESHOLDS not in predict(mobile, [PolicyRule(join=0.5)]).assumptions
    assert THRESHOLDS not in predict(one_flow(), rules).assumptions
    asking = (Application(name="a", clients=("c",), threshold_s=7.0),)
    told = predict(msgspec.structs.replace(mobile, applications=asking)).assumptions
    assert THRESHOLDS in told


def test_loads_of_table_one() -> None:
    """PlanEMQX Table I, in its Mbps of 2^20 bit/s."""
    model = Model(load("planemqx"))
    table = model.table
    size = np.array([topic.size for topic in table.scenario.topics])
    rate = np.array([topic.mean_rate for topic in table.scenario.topics])
    loads = {}
    for category in ("AN", "RT", "TS", "ST"):
        streams = [
            topic
            for flow, topic in zip(table.stream_flow, table.stream_topic, strict=True)
            if table.flows[flow].category == category
        ]
        loads[category] = (rate[streams] * size[streams] * 8).sum() / 2**20
    assert len(table) == 80
    assert loads == pytest.approx({"AN": 1.907, "RT": 2.336, "TS": 2.054, "ST": 1.612}, abs=1e-3)
    assert model.predict().utilisation[0] == pytest.approx(0.7909, abs=1e-4)


@pytest.mark.parametrize("planned", [False, True])
def test_every_flow_of_planemqx_agrees_with_the_simulator(planned: bool) -> None:
    """Means within 2 % (the simulation's own error included), p95 within 4 %, p99 within 10 %."""
    scenario = load("planemqx")
    rules = PLAN if planned else ()
    prediction = predict(scenario, rules)
    measured = simulate_scenario(scenario, rules, duration=5_000.0, warmup=200.0, replications=4)
    for number in range(80):
        group = measured.flow(number)
        assert prediction.mean[number] == pytest.approx(group.mean.value, rel=0.03)
        assert prediction.loss[number] == pytest.approx(group.loss.value, abs=0.005)
        for p, tolerance in ((95.0, 0.05), (99.0, 0.12)):
            assert prediction.percentiles[p][number] == pytest.approx(
                group.percentile(p).value, rel=tolerance
            )


def test_the_whole_network_agrees_with_the_simulator() -> None:
    """Input, two clients that come and go, copies, priorities, a stage: 5 % of the means.

    A client that returns drains at 40 messages per second, a sixth of the link; the model takes
    that as Poisson, which is good as long as the link has room for it (docs/model.md).
    """
    away = Connectivity(on=30.0, off=10.0, drain=40.0)
    scenario = Scenario(
        topics=tuple(Topic(name=f"t{i}", rate=3.0, size=400 * (i + 1)) for i in range(4)),
        clients=(
            Client(name="rt", subscriptions=("t0", "t1"), application="rt"),
            Client(name="st", subscriptions=("t1", "t2", "t3")),
            Client(name="mobile-1", subscriptions=("t0", "t3"), connectivity=away),
            Client(name="mobile-2", subscriptions=("#",), connectivity=away),
        ),
        applications=(Application(name="rt"),),
        links=(LinkSpec(name="l", clients=("*",), rate=2_000_000),),
        input=InputQueue(rate=50.0),
        stages=(Stage(name="hop", time=0.003),),
        policy=(
            PolicyRule(priority=2),
            PolicyRule(application="rt", priority=0),
            PolicyRule(topic="t3", drop=0.2),
        ),
    )
    model = Model(scenario)
    prediction = model.predict()
    measured = simulate_scenario(scenario, duration=50_000.0, warmup=1000.0, replications=4)
    for number, flow in enumerate(model.table.flows):
        group = measured.flow(number)
        assert prediction.mean[number] == pytest.approx(group.mean.value, rel=0.05), flow.name
        assert prediction.throughput[number] == pytest.approx(group.throughput, rel=0.01)
