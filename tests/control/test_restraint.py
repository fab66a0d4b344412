"""The loop keeps calm, sees trouble before it is there, and says what it does not understand."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest

from control.test_loop import CONFIG, World, dropped, event, told
from headgate.config import Address, parse
from headgate.contract import (
    Application,
    FlowSnapshot,
    LinkSnapshot,
    Policy,
    Requirement,
    Snapshot,
)
from headgate.control import process
from headgate.control.history import Event, History
from headgate.control.knowledge import Calibrated
from headgate.control.loop import BUDGET
from headgate.control.margin import ROOM, plan_with_room
from headgate.control.measuring import Measurements
from headgate.control.process import ControllerProcess, Door
from headgate.control.restraint import LONGEST, LOOK_AGAIN, Unexplained
from headgate.control.strains import measured_strains
from headgate.core.link import NORMAL_LEVEL, Link

QUICK = CONFIG.replace("5000", "200").replace("mode: auto", "mode: auto, proactive: false")


def test_what_the_model_cannot_explain_is_planned_for_less_and_less_often() -> None:
    world = World()
    world.turns(12)
    planned: list[float] = []
    whole = world.controller._planner

    def counted(*arguments):  # type: ignore[no-untyped-def]
        planned.append(world.now)
        return whole(*arguments)

    world.controller._planner = counted
    world.controller._drift.look = lambda *_: ""  # type: ignore[method-assign]
    world.mean_ms["alarm-1"] = 45.0  # 30 are asked for, and the model expects 10
    answers = world.turns(300)
    waits = [later - earlier for earlier, later in itertools.pairwise(planned)]
    assert len(planned) <= 6, "300 s of a puzzle, and it planned all the time"
    assert all(later > earlier for earlier, later in itertools.pairwise(waits))
    told = [a.record for a in answers if a.record]
    assert all(record.event is Event.KEPT for record in told)
    doubt = "alarm: the model expects it to be kept, not planned for again for 10 s"
    assert told[0].why == f"broken: alarm; {doubt}"
    world.rate = 0.7e6  # something that it does understand is answered at once
    assert event(world.turn()) is Event.APPLIED


def test_what_has_no_better_plan_is_not_planned_for_all_the_time() -> None:
    """Both ask for more than the link has: the one of less weight loses, and that is that."""
    world = World(CONFIG.replace("5000, loss: 0.5", "20, loss: 0.0"))
    world.rate = 0.7e6
    world.mean_ms["archive"] = 4000.0
    world.turns(12)
    planned: list[float] = []
    whole = world.controller._planner

    def counted(*arguments):  # type: ignore[no-untyped-def]
        planned.append(world.now)
        return whole(*arguments)

    world.controller._planner = counted
    world.controller._drift.look = lambda *_: ""  # type: ignore[method-assign]
    told = [a.record.why for a in world.turns(200) if a.record]
    assert len(planned) <= 8  # each with a second look
    assert any("archive: there is no better plan" in why for why in told)


def test_waits_double_up_to_a_limit_and_end_when_all_is_well() -> None:
    puzzles = Unexplained()
    waits = [puzzles.add(["a"], 0.0) for _ in range(9)]
    assert waits[:3] == [LOOK_AGAIN, 2 * LOOK_AGAIN, 4 * LOOK_AGAIN]
    assert waits[-1] == LONGEST
    assert Unexplained().add(["b"], 0.0, drains=True) == LOOK_AGAIN
    assert puzzles.mendable(["a", "b"], 1.0) == ["b"]
    assert puzzles.mendable(["a"], LONGEST) == ["a"]
    assert puzzles.mendable([], LONGEST + 1) == []  # kept again: forgotten
    assert puzzles.add(["a"], 0.0) == LOOK_AGAIN


def test_a_load_that_fills_the_link_is_planned_for_before_anything_waits() -> None:
    """Within the range that was planned for, and no requirement seen broken."""
    world = World(QUICK)
    world.per_second = 48
    world.turns(12)
    assert dropped(world.controller.in_force, "archive") == 0
    answers = []
    for load in (50, 52, 54, 56, 56, 56, 56, 56):  # 58 are all that the link carries
        world.per_second = load
        answers.append(world.turn())
    first = next(a.record for a in answers if a.policy is not None)
    assert first is not None
    assert first.why == "about to break: archive"
    assert dropped(world.controller.in_force, "archive") > 0
    later = []
    for number in range(30):  # noise is what the room is for
        world.per_second = 55 + number % 3
        later.append(world.turn().policy)
    assert not any(later)


def test_a_load_that_doubles_is_known_in_one_snapshot() -> None:
    world = World()
    world.per_second = 25
    world.turns(12)
    world.per_second = 50
    answer = world.turn()
    assert answer.record is not None
    assert "from 200 kbit/s to 400 kbit/s" in answer.record.why
    world.per_second = 40  # what falls is smoothed
    world.turn()
    (topic,) = world.controller.measurements.scenario().topics
    assert 40 < (topic.rate or 0) < 50


def test_a_newcomer_that_got_nothing_yet_is_planned_for() -> None:
    known = Measurements(parse(CONFIG))
    flows = [
        FlowSnapshot(
            client="archive", filter="t", application="archive", link="floor", priority=7,
            offered=50, delivered=50, bytes=50_000,
        ),
        FlowSnapshot(
            client="alarm-1", filter="t", application="alarm", link="floor", priority=7,
            offered=20, waiting=20,
        ),
    ]  # fmt: skip
    link = LinkSnapshot(name="floor", rate=1e6, estimated=False, sent=0, waiting=20_000)
    known.take(
        Snapshot(
            time=1.0, interval=1.0, policy=0, received=1, connections=2, flows=flows, links=[link]
        )
    )
    assert {client.name for client in known.scenario().clients} == {"archive", "alarm-1"}
    assert known.waiting == {"floor": 160_000}


def test_what_waits_is_given_room_to_drain_and_gets_nobody_into_trouble() -> None:
    config = parse(QUICK.replace("30,", "150,"))
    world = World(QUICK.replace("30,", "150,"))
    world.per_second = 58
    world.turn()
    scenario = world.controller.measurements.scenario()
    without = plan_with_room(scenario, config.first_policy, 1.0, {})
    waiting = plan_with_room(scenario, config.first_policy, 1.0, {"floor": 1e6})
    assert without.feasible
    assert waiting.feasible
    drops = {step.group: (step.priority, step.drop) for step in waiting.steps}
    assert drops["alarm"][0] < drops["archive"][0]
    rest = {step.group: step.drop for step in without.steps}
    assert drops["archive"][1] > rest["archive"] + ROOM


def test_drops_for_a_backlog_end_with_it() -> None:
    world = World(QUICK)
    world.turns(12)
    world.waiting = 200_000
    world.mean_ms["archive"] = 900.0
    answers = world.turns(3)
    assert any("broken: archive" in a.record.why for a in answers if a.record and a.policy)
    more = dropped(world.controller.in_force, "archive")
    assert more > 0
    world.waiting, world.mean_ms["archive"] = 0, 20.0
    answers = world.turns(12)
    assert any(a.record and "what waited for floor is gone" in a.record.why for a in answers)
    assert dropped(world.controller.in_force, "archive") < more


def test_snapshots_that_waited_share_one_budget() -> None:
    world = World()
    applied = 0
    for number in range(200):  # a minute and more by their own times, a moment by the clock
        world.rate = 0.7e6 if number % 20 < 10 else 1e6
        applied += world.turn(clock=5.0).policy is not None
    assert applied == BUDGET


def test_of_snapshots_that_waited_the_newest_is_decided_upon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    config = msgspec.structs.replace(parse(CONFIG), data_dir=tmp_path)
    controller = ControllerProcess(config, Door(Address(path=str(tmp_path / "nobody"))), tmp_path)
    controller.holds_lease = True
    seen: list[float] = []
    decide = controller.controller.see
    monkeypatch.setattr(
        controller.controller, "see", lambda s, now: (seen.append(s.time), decide(s, now))[1]
    )
    world.turns(1)
    queued = [(process.SNAPSHOT, world.snapshot().to_json()) for _ in range(4)]
    controller._handle_all(queued)
    assert seen == [world.now]
    (record,) = History(tmp_path)
    assert record.event is Event.APPLIED
    assert controller.controller.measurements.flows  # the others were learned from


def test_late_answers_to_our_own_policies_are_nobody_elses() -> None:
    world = World()
    world.answers = False
    first = world.turns(1)[0].policy
    world.turns(12)
    world.rate = 0.7e6
    second = world.turn().policy
    assert first is not None
    assert second is not None
    world.controller.policy_is(first)  # the broker's answers come late, and one after the other
    assert world.controller.in_force == second
    world.controller.policy_is(second)
    assert world.controller.base.rules == ()
    assert all(a.policy is None for a in world.turns(5))


def test_a_refused_policy_is_not_taken_to_be_in_force() -> None:
    world = World()
    world.answers = False
    assert world.turn().policy is not None
    assert world.controller.refused("no such link", world.now).event is Event.REFUSED
    assert world.controller.in_force == Policy()
    answer = world.turn()
    assert answer.record is not None
    assert answer.record.why == "the broker refused the last policy"


def test_why_it_plans_anew_is_told() -> None:
    world = World()
    world.turns(12)
    again = World()
    again.controller.policy_is(world.controller.in_force)
    answer = again.turn()
    assert answer.record is not None
    assert answer.record.why == "the controller came back and found policy 1"
    again.controller.policy_is(Policy(version=9))
    answer = again.turn()
    assert answer.record is not None
    assert answer.record.why == "policy 9 came from elsewhere"


def test_a_promise_that_is_not_kept_is_called_so() -> None:
    world = World()
    world.mean_ms["alarm-1"] = 40.0  # too long before, and too long after
    world.turn()
    records = told(world.turns(12))
    missed = next(record for record in records if record.event is Event.MISSED)
    assert "no worse than before; not as promised: alarm has 133% of what it asked" in missed.why
    assert not any(record.event is Event.CONFIRMED for record in records)


def test_large_packets_take_the_headers_of_all_their_segments() -> None:
    """As the broker charges them to the link; what was learned of a link has them in it."""
    known = Measurements(parse(CONFIG))
    flow = FlowSnapshot(
        client="alarm-1", filter="t", application="alarm", link="floor", priority=7,
        offered=10, delivered=10, bytes=100_000,
    )  # fmt: skip
    link = LinkSnapshot(name="floor", rate=1e6, estimated=False, sent=0, waiting=0)
    known.take(
        Snapshot(
            time=1.0, interval=1.0, policy=0, received=1, connections=2, flows=[flow], links=[link]
        )
    )
    pacer = Link("floor")
    pacer.charge(NORMAL_LEVEL, 10_000)
    scenario = known.scenario()
    assert scenario.topics[0].size + scenario.overhead == pacer.sent
    known.calibration = {"floor": Calibrated(None, 500.0, 1.0, 1.0, 0.1, False)}
    scenario = known.scenario()
    assert scenario.topics[0].size + (scenario.calibration[0].overhead or 0) == 10_500


def lossy(lost: int, reason: str = "expired", **asked: float) -> float:
    """The strain of a flow that loses so many of 50 messages in each of ten seconds."""
    known = Measurements(parse(CONFIG))
    known.applications_are(
        [Application(name="alarm", requirement=Requirement(mean_ms=1e6, **asked))]  # type: ignore[arg-type]
    )
    for second in range(10):
        flow = FlowSnapshot(
            client="alarm-1", filter="t", application="alarm", priority=7, offered=50,
            delivered=50 - lost, bytes=1000 * (50 - lost), dropped={reason: lost},
        )  # fmt: skip
        seen = Snapshot(
            time=100.0 + second, interval=1.0, policy=0, received=50, connections=1,
            flows=[flow], links=[],
        )  # fmt: skip
        known.take(seen)
    return measured_strains(seen, known)["alarm"]


def test_what_is_lost_beyond_what_is_tolerated_is_seen_as_broken() -> None:
    assert lossy(0) == 0
    assert lossy(1) > 1, "who tolerates no loss"
    assert lossy(5, "rate", loss=0.1) == 0, "as much as is tolerated"
    assert lossy(6, "rate", loss=0.1) == 0, "a little more, as chance has it"
    assert lossy(15, "capacity", loss=0.1) > 1
    assert lossy(15, "disconnected", loss=0.1) == 0, "nobody was there for them"


def test_too_few_messages_are_seen_as_broken_if_enough_are_published() -> None:
    assert lossy(10, loss=0.5, throughput=40.0) == 0
    assert lossy(40, loss=0.9, throughput=40.0) > 1
    assert lossy(0, loss=0.9, throughput=60.0) == 0, "nobody publishes that many"
