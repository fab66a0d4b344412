"""What clients ask for themselves: known to the loop, and planned for."""

from __future__ import annotations

import msgspec
import pytest

from headgate.config import Configuration, parse
from headgate.contract import (
    Claim,
    FlowSelector,
    FlowSnapshot,
    LinkSnapshot,
    Policy,
    Requirement,
    Snapshot,
)
from headgate.control.forecasting import scheduled
from headgate.control.knowledge import Expected
from headgate.control.loop import MOST_GONE, Controller
from headgate.control.measuring import Measurements
from headgate.control.needs import ENOUGH_PERIODS, Needs
from headgate.control.planning import broken
from headgate.control.strains import measured_strains

CONFIG = """
default_category: rest
categories:
  video: {requirement: {mean_ms: 800, loss: 0.3}}
applications:
  cameras: {clients: ["cam-*"], requirement: {mean_ms: 2000, loss: 0.5}, weight: 3}
  trams: {clients: ["tram-*"], threshold_s: 60}
links:
  - {name: floor, clients: ["*"], rate: 1Mbit}
planner: {mode: auto}
"""


def flow(client: str = "x", claim: Claim | None = None, **fields: object) -> FlowSnapshot:
    settings: dict[str, object] = {
        "filter": "t",
        "category": "rest",
        "link": "floor",
        "priority": 7,
        "offered": 50,
        "delivered": 50,
        "bytes": 50_000,
        "mean_ms": 10.0,
        "p99_ms": 30.0,
        **fields,
    }
    return FlowSnapshot(client=client, claim=claim, **settings)  # type: ignore[arg-type]


def snapshot(*flows: FlowSnapshot, now: float = 1000.0) -> Snapshot:
    return Snapshot(
        time=now,
        interval=1.0,
        policy=0,
        received=50,
        connections=len(flows),
        flows=list(flows),
        links=[LinkSnapshot(name="floor", rate=1e6, estimated=False, sent=0, waiting=0)],
    )


def needs() -> Needs:
    config: Configuration = parse(CONFIG)
    return Needs(config, {a.name: a for a in config.applications})


@pytest.mark.parametrize(
    ("told", "name", "requirement", "threshold_s"),
    [
        (flow(), "-", None, None),
        (flow(application="guest"), "guest", None, None),
        (
            flow(application="guest", claim=Claim(response_ms=20)),
            "guest (20 ms)",
            Requirement(response_ms=20),
            0.02,
        ),
        (
            flow(claim=Claim(response_ms=20, loss=0.1)),
            "- (20 ms, loss 0.1)",
            Requirement(response_ms=20, loss=0.1),
            0.02,
        ),
        # A claim goes as far as it goes: the rest is the application's.
        (
            flow(application="cameras", claim=Claim(loss=0.1)),
            "cameras (loss 0.1)",
            Requirement(mean_ms=2000, loss=0.1),
            None,
        ),
        # The category's, where the application asks for nothing itself.
        (
            flow(application="guest", category="video"),
            "guest (video)",
            Requirement(mean_ms=800, loss=0.3),
            None,
        ),
        (flow(category="video"), "- (video)", Requirement(mean_ms=800, loss=0.3), None),
        (flow(application="trams"), "trams", None, 60),
        (
            flow(application="trams", claim=Claim(threshold_s=7)),
            "trams (mean 7 s)",
            None,
            7,
        ),
    ],
)
def test_a_flow_needs_what_its_client_or_its_application_asks_for(
    told: FlowSnapshot, name: str, requirement: Requirement | None, threshold_s: float | None
) -> None:
    need = needs().of(told)
    assert need.name == name
    assert need.known_as == told.application
    assert need.application.requirement == requirement
    assert need.application.threshold_s == threshold_s


def test_who_comes_and_goes_and_says_nothing_of_loss_gives_up_what_the_threshold_needs() -> None:
    told = flow(claim=Claim(response_ms=7000), periods=ENOUGH_PERIODS, on_s=20, off_s=20, drain=8)
    need = needs().of(told)
    assert need.application.requirement is None
    assert need.application.threshold_s == 7
    stays = needs().of(flow(claim=Claim(response_ms=7000)))
    assert stays.name != need.name


def test_weights_are_the_applications() -> None:
    assert needs().of(flow(application="cameras", claim=Claim(loss=0))).application.weight == 3


def test_requirements_are_measured_by_what_was_claimed() -> None:
    measurements = Measurements(parse(CONFIG))
    seen = snapshot(flow("x", Claim(response_ms=20)), flow("y"))
    measurements.take(seen)
    assert measured_strains(seen, measurements) == {"- (20 ms)": pytest.approx(1.5)}


def test_a_claim_is_planned_for_and_rules_select_what_the_broker_knows() -> None:
    """Two clients of one application and one of none; the second asks for more."""
    controller = Controller(parse(CONFIG))
    told = (
        flow("cam-1", application="cameras"),
        flow("cam-2", Claim(response_ms=60, loss=0), application="cameras"),
        flow("guest"),
    )
    answer = controller.see(snapshot(*told))
    assert answer.policy is not None
    assert answer.record is not None
    assert answer.record.predicted["cameras (60 ms, loss 0)"] < 1
    levels = {f.client: setting(answer.policy, f, "priority") for f in told}
    assert levels["cam-2"] < levels["cam-1"] < levels["guest"]
    scenario = controller.measurements.scenario()
    assert not broken(scenario, answer.policy)


def setting(policy: Policy, told: FlowSnapshot, name: str) -> float:
    """What the broker makes of a policy for a flow: the last rule that selects it counts."""
    value = 7.0 if name == "priority" else 0.0
    for rule in policy.rules:
        exactly = rule.flow is None or rule.flow == FlowSelector(
            client=told.client, filter=told.filter
        )
        application = rule.application in (None, told.application)
        category = rule.category in (None, told.category)
        if exactly and application and category and getattr(rule, name) is not None:
            value = getattr(rule, name)
    return value


def test_a_claim_that_comes_is_a_reason_to_plan() -> None:
    controller = Controller(parse(CONFIG))
    plain = (flow("cam-1", application="cameras"), flow("guest"))
    for second in range(12):
        controller.see(snapshot(*plain, now=1000.0 + second))
    asks = flow("guest", Claim(response_ms=60))
    answer = controller.see(snapshot(plain[0], asks, now=1012.0))
    assert answer.record is not None
    assert "came: - (60 ms) on floor" in answer.record.why
    assert answer.policy is not None
    assert setting(answer.policy, asks, "priority") < setting(answer.policy, plain[0], "priority")


def test_subscriptions_of_one_client_may_ask_for_different_things() -> None:
    controller = Controller(parse(CONFIG))
    urgent = flow("panel", Claim(response_ms=60), filter="alarm", bytes=20_000)
    slow = flow("panel", Claim(response_ms=5000, loss=0.5), filter="log", bytes=60_000)
    answer = controller.see(snapshot(urgent, slow))
    assert answer.policy is not None
    assert setting(answer.policy, urgent, "priority") < setting(answer.policy, slow, "priority")
    assert setting(answer.policy, urgent, "drop") == 0


def test_a_rule_for_a_category_leaves_out_nobody_who_is_in_it() -> None:
    """Who asks for nothing is in the default category, too, and must not be raised with it."""
    controller = Controller(parse(CONFIG.replace("video", "audio")))
    asks, silent = flow("x", Claim(response_ms=100)), flow("y")
    answer = controller.see(snapshot(asks, silent))
    assert answer.policy is not None
    assert setting(answer.policy, asks, "priority") < setting(answer.policy, silent, "priority")


def test_rules_of_guests_do_not_pile_up() -> None:
    controller = Controller(parse(CONFIG))
    now = 1000.0
    stays = flow("cam-1", application="cameras")
    for number in range(2 * MOST_GONE):
        now += 100  # the one before is forgotten by then
        guest = flow(f"guest-{number}", Claim(response_ms=60 + number % 7))
        for _ in range(3):
            now += 1
            answer = controller.see(snapshot(stays, guest, now=now))
            if answer.policy is not None:
                controller.policy_is(answer.policy)
    assert controller.in_force.version >= 2 * MOST_GONE
    assert len(controller.in_force.rules) <= MOST_GONE + 10


def test_forecasts_are_of_what_the_broker_knows() -> None:
    """The pipeline reads the broker's records, which have its own names."""
    hour = Expected(0.0, 3600.0, 100.0, 4e6, 3.5e6)
    present = {("cameras", "floor"): 1e6, ("cameras (60 ms)", "floor"): 1e6}
    names = {"cameras": "cameras", "cameras (60 ms)": "cameras"}
    factors, newcomers = scheduled(present, {("cameras", "floor"): hour}, names)
    assert factors == dict.fromkeys(present, 2.0)
    assert not newcomers


def test_snapshots_of_older_brokers_are_read() -> None:
    old = msgspec.json.decode(snapshot(flow()).to_json())
    assert "claim" not in old["flows"][0]
    assert Snapshot.from_json(msgspec.json.encode(old)).flows[0].claim is None


def test_a_snapshot_keeps_claims() -> None:
    told = snapshot(flow(claim=Claim(response_ms=20, loss=0.25)))
    assert Snapshot.from_json(told.to_json()) == told


def test_who_comes_to_an_application_is_treated_as_most_of_it_are() -> None:
    controller = Controller(parse(CONFIG))
    most = [flow(f"cam-{n}", application="cameras", bytes=10_000) for n in range(5)]
    asks = flow("cam-9", Claim(response_ms=60), application="cameras", bytes=10_000)
    policy = controller.see(snapshot(*most, asks)).policy
    assert policy is not None
    assert len([rule for rule in policy.rules if rule.flow is not None]) == 1
    newcomer = flow("cam-7", application="cameras")
    assert setting(policy, newcomer, "priority") == setting(policy, most[0], "priority")
    assert setting(policy, asks, "priority") < setting(policy, most[0], "priority")
