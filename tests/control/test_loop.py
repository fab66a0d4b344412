"""The loop without a network: snapshots in, policies and records out."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from headgate.config import parse
from headgate.contract import (
    Application,
    FlowSnapshot,
    LinkSnapshot,
    Policy,
    PolicyRule,
    Requirement,
    Snapshot,
)
from headgate.control import margin
from headgate.control.history import Event, History, Record
from headgate.control.loop import BUDGET, VERIFY_AFTER, VERIFY_FOR, Answer, Controller
from headgate.control.margin import ROOM
from headgate.control.measuring import Measurements
from headgate.control.planning import Plan, broken
from headgate.control.strains import measured_strains
from headgate.model import Scenario

CONFIG = """
applications:
  alarm: {clients: ["alarm-*"], requirement: {mean_ms: 30, loss: 0.0}, weight: 10}
  archive: {clients: ["archive"], requirement: {mean_ms: 5000, loss: 0.5}}
links:
  - {name: floor, clients: ["*"], rate: 1Mbit}
planner: {mode: auto}
"""


SIREN = """\
  siren: {clients: ["siren"], requirement: {mean_ms: 100, loss: 0.0}, weight: 20}
"""


class World:
    """A broker as the controller sees it: 50 messages of 1 kB per second to everyone."""

    def __init__(self, config: str = CONFIG) -> None:
        self.controller = Controller(parse(config))
        self.now = 1000.0
        self.rate = 1e6
        self.per_second = 50
        self.clients = ["alarm-1", "archive"]
        self.mean_ms = {"alarm-1": 10.0, "archive": 20.0}
        self.waiting = 0
        """Bytes that wait for the link."""
        self.answers = True
        """Whether the broker announces at once what is in force."""

    def snapshot(self) -> Snapshot:
        """One second passes."""
        self.now += 1
        flows = [
            FlowSnapshot(
                client=client,
                filter="t",
                application=client.split("-")[0],
                category="default",
                link="floor",
                priority=7,
                offered=self.per_second,
                delivered=self.per_second,
                bytes=1000 * self.per_second,
                mean_ms=self.mean_ms.get(client, 10.0),
            )
            for client in self.clients
        ]
        link = LinkSnapshot(
            name="floor", rate=self.rate, estimated=False, sent=0, waiting=self.waiting
        )
        return Snapshot(
            time=self.now,
            interval=1.0,
            policy=self.controller.in_force.version,
            received=self.per_second,
            connections=2,
            flows=flows,
            links=[link],
        )

    def turn(self, clock: float | None = None) -> Answer:
        """The controller sees a second; `clock` is its own time."""
        answer = self.controller.see(self.snapshot(), clock)
        if answer.policy is not None and self.answers:
            self.controller.policy_is(answer.policy)
        return answer

    def turns(self, count: int) -> list[Answer]:
        return [self.turn() for _ in range(count)]


def event(answer: Answer) -> Event | None:
    return None if answer.record is None else answer.record.event


def told(answers: list[Answer]) -> list[Record]:
    """All that goes into the history."""
    return [record for a in answers for record in (*a.before, a.record) if record is not None]


def priority(policy: Policy | None, application: str) -> int | None:
    assert policy is not None
    found = None
    for rule in policy.rules:
        if rule.application == application and rule.priority is not None:
            found = rule.priority
    return found


def test_the_first_snapshot_is_planned_for() -> None:
    answer = World().turn()
    assert event(answer) is Event.APPLIED
    assert answer.policy is not None
    assert answer.policy.version == 1
    assert priority(answer.policy, "alarm") == 0
    assert answer.record is not None
    assert answer.record.predicted["alarm"] < 1


def test_nothing_new_is_nothing_to_do_and_a_good_change_is_confirmed() -> None:
    world = World()
    world.turn()
    answers = world.turns(30)
    assert all(answer.policy is None for answer in answers)
    assert [event(a) for a in answers if a.record] == [Event.CONFIRMED]


def test_a_verdict_keeps_nobody_waiting_who_needs_another_plan() -> None:
    world = World()
    world.turn()
    world.turns(int(VERIFY_AFTER + VERIFY_FOR) - 1)
    world.rate = 0.7e6  # in the very second in which the change before is judged
    answer = world.turn()
    assert event(answer) is Event.APPLIED
    assert [r.event for r in told([answer])] == [Event.CONFIRMED, Event.APPLIED]


def test_a_newcomer_that_was_seen_in_part_is_looked_at_again() -> None:
    """It subscribed at the end of a snapshot's second, to a topic of its own."""
    world = World()
    world.per_second = 30
    world.turns(12)
    snapshot = world.snapshot()
    came = FlowSnapshot(
        client="archive", filter="more", application="archive", category="default", link="floor",
        priority=7, offered=4, delivered=4, bytes=4000,
    )  # fmt: skip
    answer = world.controller.see(msgspec.structs.replace(snapshot, flows=[*snapshot.flows, came]))
    assert event(answer) is not Event.APPLIED
    snapshot = world.snapshot()
    # 15 % more of the archive than was planned for: without the newcomer that would be borne.
    whole = msgspec.structs.replace(came, offered=9, delivered=9, bytes=9000)
    flows = [*snapshot.flows, whole]
    world.controller.see(msgspec.structs.replace(snapshot, flows=flows))
    valid = world.controller._planned_for
    assert valid is not None
    assert valid.present["archive", "floor"] == pytest.approx(39 * 1000 * 8, rel=0.02)


def test_who_is_configured_has_a_place_before_it_comes() -> None:
    config = CONFIG.replace("links:", SIREN + "links:")
    patient = "  log: {clients: [log], requirement: {mean_ms: 60000, loss: 0.9}}\n"
    silent = "  nobody: {clients: [nobody]}\n"
    world = World(config.replace("links:", patient + silent + "links:"))
    policy = world.turn().policy
    levels = {name: priority(policy, name) for name in ("alarm", "siren", "archive", "log")}
    assert levels["alarm"] < levels["siren"] <= levels["archive"] < levels["log"]  # type: ignore[operator]
    assert priority(policy, "nobody") is None
    assert dropped(policy, "siren") == 0
    reactive = World(config.replace("mode: auto", "mode: auto, proactive: false"))
    assert priority(reactive.turn().policy, "siren") is None


def test_who_went_keeps_a_place_and_loses_nothing_when_it_is_back() -> None:
    world = World(CONFIG.replace("links:", SIREN + "links:"))
    world.clients.append("siren")
    world.per_second = 44
    world.turns(12)
    assert dropped(world.controller.in_force, "archive") > 0
    world.clients.remove("archive")
    world.turns(75)
    world.per_second = 20
    world.clients[:] = ["archive", "siren"]
    policy = next(a.policy for a in world.turns(75) if a.policy is not None)
    assert dropped(policy, "archive") == 0
    assert priority(policy, "alarm") == 0  # it went meanwhile
    names = [rule.application for rule in policy.rules]
    assert sorted(str(name) for name in names) == ["alarm", "archive", "siren"]


def test_a_link_that_halves_is_answered_at_once() -> None:
    world = World()
    world.turns(15)
    world.rate = 0.7e6
    answer = world.turn()
    assert event(answer) is Event.APPLIED
    assert answer.record is not None
    assert "floor changed" in answer.record.why
    assert answer.policy is not None
    drops = [r.drop for r in answer.policy.rules if r.application == "archive" and r.drop]
    assert drops
    assert drops[-1] <= 0.5  # what the archive tolerates


def test_advice_is_recorded_and_nothing_is_sent() -> None:
    world = World(CONFIG.replace("auto", "advise"))
    answers = world.turns(20)
    assert all(answer.policy is None for answer in answers)
    assert [event(a) for a in answers if a.record] == [Event.ADVISED]  # once, not every second


def test_a_change_that_made_things_worse_is_taken_back_and_not_tried_again_soon() -> None:
    world = World()
    first = world.turn()
    world.mean_ms["alarm-1"] = 200.0  # against all predictions
    answers = world.turns(int(VERIFY_AFTER + VERIFY_FOR) + 1)
    taken_back = [a for a in answers if event(a) is Event.ROLLED_BACK]
    assert len(taken_back) == 1
    assert taken_back[0].policy is not None
    assert taken_back[0].policy.rules == ()  # as it was before
    assert taken_back[0].policy.version > first.policy.version  # type: ignore[union-attr]
    later = world.turns(10)
    assert all(answer.policy is None for answer in later)


def test_a_plan_is_not_taken_back_for_what_a_newcomer_does() -> None:
    world = World(CONFIG.replace("links:", SIREN + "links:"))
    world.per_second = 40
    world.turns(12)
    world.clients.append("siren")
    answers = world.turns(2)
    assert Event.APPLIED in [event(answer) for answer in answers]
    world.mean_ms["archive"] = 9000.0  # the link is full, and it is the one to wait
    verdicts = [r.event for r in told(world.turns(int(VERIFY_AFTER + VERIFY_FOR) + 2))]
    assert Event.ROLLED_BACK not in verdicts
    assert Event.MISSED in verdicts  # it was promised that the archive would not wait that long


def test_a_plan_leaves_a_link_some_room_where_that_keeps_everything() -> None:
    world = World()
    world.per_second = 58  # 99 % of the link: the archive would do with that, at five seconds
    answer = world.turn()
    assert answer.policy is not None
    dropped = [rule.drop for rule in answer.policy.rules if rule.application == "archive"]
    kept = 58 * 1066 * 8 * (2 - max(drop or 0.0 for drop in dropped))
    assert kept <= (1 - ROOM) * 1e6 + 1
    strict = World(CONFIG.replace("loss: 0.5", "loss: 0.0"))
    strict.per_second = 58
    policy = strict.turn().policy
    assert policy is not None  # no room can be had, and all the same everything is kept
    assert not any(rule.drop for rule in policy.rules)
    assert priority(policy, "alarm") == 0


def test_changes_have_a_budget() -> None:
    world = World()
    applied = 0
    for number in range(40):
        world.rate = 0.7e6 if number % 2 else 1e6
        applied += world.turn().policy is not None
    assert applied <= BUDGET


def test_who_comes_and_goes_is_planned_for() -> None:
    world = World()
    world.turns(12)
    world.clients.append("alarm-2")
    reasons = [a.record.why for a in world.turns(3) if a.record]
    assert any("alarm on floor changed from 400 kbit/s to" in why for why in reasons)
    assert len(world.controller.measurements.scenario().clients) == 3


def ramp(config: str = CONFIG) -> tuple[World, list[tuple[int, Answer]]]:
    """From 47 to 82 messages/s within 35 s: the link carries 58 of them to both."""
    world = World(config.replace("5000", "200"))
    world.per_second = 47
    world.turns(20)
    answers = []
    for _ in range(35):
        world.per_second += 1
        answers.append((world.per_second, world.turn()))
    return world, answers


def dropped(policy: Policy | None, application: str) -> float:
    rules = () if policy is None else policy.rules
    return max([r.drop or 0.0 for r in rules if r.application == application], default=0.0)


def test_a_rising_load_is_planned_for_before_it_breaks_anything() -> None:
    _, answers = ramp()
    ahead = [(load, a) for load, a in answers if a.record and "forecast" in a.record.why]
    assert ahead
    load, answer = ahead[0]
    assert "archive" in answer.record.why  # type: ignore[union-attr]
    assert event(answer) is Event.APPLIED
    assert dropped(answer.policy, "archive") > 0
    _, without = ramp(CONFIG.replace("mode: auto", "mode: auto, proactive: false"))
    assert not any(a.record and "forecast" in a.record.why for _, a in without)
    first = next(load for load, a in without if dropped(a.policy, "archive") > 0)
    assert load < first, f"{load} {first}"


def test_a_forecast_that_does_not_come_true_is_given_up() -> None:
    world, answers = ramp()
    load, _ = next((n, a) for n, a in answers if a.record and "forecast" in a.record.why)
    world = World(CONFIG.replace("5000", "200"))
    world.per_second = 47
    world.turns(20)
    while world.per_second < load:
        world.per_second += 1
        world.turn()
    assert dropped(world.controller.in_force, "archive") > 0
    world.per_second = 47  # everything as at the beginning
    world.turns(40)
    assert dropped(world.controller.in_force, "archive") == 0


def test_nothing_that_holds_is_given_up_for_what_may_come() -> None:
    # Both want the same, and nothing may be dropped: one of them must lose when the load has risen.
    config = CONFIG.replace("5000, loss: 0.5", "40, loss: 0.0")
    world = World(config)
    world.per_second = 35
    world.turns(20)
    assert not broken(world.controller.measurements.scenario(), world.controller.in_force)
    for _ in range(12):
        old = world.controller.in_force
        world.per_second += 1
        answer = world.turn()
        if answer.record and "forecast" in answer.record.why and answer.policy is not None:
            scenario = world.controller.measurements.scenario()
            assert broken(scenario, old) or not broken(scenario, answer.policy)


def test_steady_noise_is_no_forecast() -> None:
    world = World()
    rng = Random(3)
    answers = []
    for _ in range(200):
        world.per_second = max(1, round(rng.gauss(50, 7)))
        answers.append(world.turn())
    assert not [a.record.why for a in answers if a.record and "forecast" in a.record.why]


def test_applications_by_command_are_known_with_their_requirement() -> None:
    world = World()
    world.clients.append("camera-1")
    world.turns(3)
    assert "camera" not in world.turn().record.predicted if world.turn().record else True
    world.controller.applications_are(
        [Application(name="camera", requirement=Requirement(mean_ms=60, loss=0.3), weight=3)]
    )
    found = {a.name: a for a in world.controller.measurements.scenario().applications}
    assert found["camera"].requirement == Requirement(mean_ms=60, loss=0.3)
    assert found["camera"].weight == 3
    record = world.turn().record
    assert record is not None
    assert "camera" in record.predicted


def test_records_say_what_was_seen_and_measured() -> None:
    world = World()
    applied = world.turn().record
    assert applied is not None
    assert applied.seen["floor"] == 1e6
    assert applied.seen["floor/alarm"] == 50 * 1000 * 8
    assert applied.measured["alarm"] == pytest.approx(10 / 30, abs=1e-3)
    confirmed = next(a.record for a in world.turns(12) if a.record)
    assert confirmed.event is Event.CONFIRMED
    assert confirmed.measured["alarm"] == pytest.approx(10 / 30, abs=1e-3)
    assert confirmed.predicted == applied.predicted


def test_a_flow_that_gets_nothing_is_seen_as_broken() -> None:
    measurements = Measurements(parse(CONFIG))
    for second in range(4):
        flow = FlowSnapshot(
            client="alarm-1", filter="t", application="alarm", priority=7, offered=5, waiting=9
        )
        snapshot = Snapshot(
            time=10.0 + second,
            interval=1.0,
            policy=0,
            received=0,
            connections=1,
            flows=[flow],
            links=[],
        )
        measurements.take(snapshot)
    assert measured_strains(snapshot, measurements)["alarm"] == pytest.approx(3000 / 30)


def test_a_policy_by_hand_is_built_upon() -> None:
    world = World()
    world.turns(12)
    by_hand = PolicyRule(topic="t", lifetime=9.0)
    world.controller.policy_is(Policy(version=50, rules=(by_hand,)))
    answer = world.turn()
    assert answer.policy is not None
    assert answer.policy.version == 51
    assert answer.policy.rules[0] == by_hand


def test_a_returning_controller_takes_up_where_it_was() -> None:
    world = World()
    world.turns(12)
    policy = world.controller.in_force
    again = World()
    again.controller.policy_is(policy)
    answers = again.turns(5)
    assert all(answer.policy is None for answer in answers)  # its plan is in force already


def test_history_is_read_back_and_a_line_cut_short_is_left_out(tmp_path) -> None:  # type: ignore[no-untyped-def]
    history = History(tmp_path)
    records = [
        Record(time=float(n), event=Event.APPLIED, why="because", version=n) for n in range(3)
    ]
    for record in records:
        history.add(record)
    with history.path.open("ab") as file:
        file.write(b'{"time": 1, "ev')
    assert list(History(tmp_path)) == records


def test_a_plan_for_later_that_fails_its_rehearsal_is_not_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(margin, "ROOM", 0.0)  # or the present would need a plan soon enough
    rehearsed: list[str] = []

    def fails(_scenario: Scenario, made: Plan) -> list[str]:
        rehearsed.append(str(made.verdict))
        return ["archive"]

    world = World(CONFIG.replace("5000", "200"))
    world.controller = Controller(parse(CONFIG.replace("5000", "200")), rehearse=fails)
    world.per_second = 47
    world.turns(20)
    assert world.controller.in_force.version == 1  # what is needed now is not rehearsed
    assert not rehearsed
    applied = []
    while world.per_second < 56:
        world.per_second += 1
        applied.append(world.turn().policy)
    assert rehearsed
    assert not any(applied)
