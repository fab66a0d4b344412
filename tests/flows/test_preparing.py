"""A policy that is much work: prepared in slices, in force between two messages.

Here a slice is one rule or one session, so that every policy takes several turns.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from headgate.config import Configuration
from headgate.contract import Application, Policy, PolicyRule
from headgate.core import control, preparing
from headgate.core.broker import Broker
from headgate.core.message import Message
from headgate.core.policies import Enforcer
from headgate.wire.packets import (
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Unsubscribe,
    Will,
)

from .scene import START, Client, Scene, SlowJournal, lasting

POLICY = "$CONTROL/headgate/policy"
APPLICATIONS = "$CONTROL/headgate/applications"

OLD, NEW = 4, 9


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "SLICE", 1)


def policy(version: int = 1, *rules: dict[str, Any]) -> bytes:
    return json.dumps({"version": version, "rules": rules or [{"priority": NEW}]}).encode()


class Stage:
    """Ten subscribers, and an admin who commands."""

    def __init__(self, journal: SlowJournal | None = None, **config: Any) -> None:
        config.setdefault("policy", (PolicyRule(priority=OLD),))
        self.scene = Scene(Configuration(**config), journal=journal)
        self.subscribers = [self.scene.connect(f"c{number}") for number in range(10)]
        for number, client in enumerate(self.subscribers):
            client.subscribe(f"t/{number}")
            client.subscribe("all")
        self.watcher = self.scene.connect("watcher")
        self.watcher.subscribe("$SYS/headgate/control")
        self.admin = self.scene.connect("admin")
        if journal is not None:
            self.scene.commit()

    def command(self, payload: bytes, qos: int = 1, client: Client | None = None) -> None:
        """Send a policy; nothing has become of it yet."""
        before = self.version
        (client or self.admin).publish(POLICY, payload, qos)
        assert self.version == before

    def step(self) -> bool:
        """One slice; False if there was none to do."""
        due: float = self.scene.broker.timers.due
        if due > self.scene.now + preparing.PAUSE:
            return False
        self.scene.advance(due - self.scene.now)
        return True

    def steps(self) -> int:
        """All slices; how many there were."""
        done = 0
        while self.step():
            done += 1
        return done

    @property
    def version(self) -> int:
        number: int = self.scene.broker.enforcer.policy.version
        return number

    def priorities(self) -> set[int]:
        return {flow.priority for flow in self.scene.flows()}

    def answers(self) -> list[Any]:
        """Each answer as its version or what it says is wrong."""
        told = [json.loads(payload) for payload in self.watcher.payloads()]
        return [answer.get("version", answer.get("reason")) for answer in told]


def reasons(client: Client) -> list[int]:
    return [answer.reason for answer in client.take(Puback) + client.take(Pubrec)]


def test_every_flow_changes_in_the_same_turn() -> None:
    stage = Stage()
    stage.command(policy())
    seen = [(stage.version, stage.priorities())]
    while stage.step():
        seen.append((stage.version, stage.priorities()))
    before = seen.count((0, {OLD}))
    assert 10 < before < len(seen)
    assert set(map(str, seen[before:])) == {str((1, {NEW}))}


def test_messages_between_the_slices_see_all_of_the_old_policy_and_then_all_of_the_new() -> None:
    stage = Stage()
    publisher = stage.scene.connect("publisher")
    stage.command(policy(1, {"topic": "all", "drop": 1.0}))
    number = 0
    while stage.version == 0:
        publisher.publish("all", b"%d" % number)
        number += 1
        assert stage.step()
    publisher.publish("all", b"too late")
    assert number > 10
    for client in stage.subscribers:
        assert client.payloads() == [b"%d" % n for n in range(number)]


@pytest.mark.parametrize("qos", [1, 2])
def test_it_is_acknowledged_when_it_is_in_force_and_kept(qos: int) -> None:
    stage = Stage(SlowJournal())
    stage.command(policy(), qos)
    stage.steps()
    assert (stage.version, reasons(stage.admin), stage.answers()) == (1, [], [])
    stage.scene.commit()
    assert (reasons(stage.admin), stage.answers()) == ([0], [1])


def test_the_sender_goes_on_after_its_command() -> None:
    stage = Stage()
    (first, *_) = stage.subscribers
    received = stage.scene.broker.counters.messages_received
    stage.admin.say(
        Publish("t/0", b"before"),
        Publish(POLICY, policy(1, {"drop": 1.0}), 1, packet_id=1),
        Publish("t/0", b"after", 1, packet_id=2),
    )
    stage.scene.turn()
    stage.admin.say(Publish("t/0", b"later", 1, packet_id=3), Pingreq())
    stage.scene.turn()
    assert stage.admin.take(Puback) == stage.admin.take(Pingresp) == []
    stage.steps()
    assert [answer.packet_id for answer in stage.admin.take(Puback)] == [1, 2, 3]
    assert len(stage.admin.take(Pingresp)) == 1
    assert first.payloads() == [b"before"]
    assert stage.scene.broker.counters.messages_received == received + 4


def test_what_is_urgent_behind_a_command_is_routed_once() -> None:
    stage = Stage()
    (first, *_) = stage.subscribers
    stage.admin.say(
        Publish("t/0", b"before"),
        Publish(POLICY, policy(), 1, packet_id=1),
        Publish("$urgent/t/0", b"fire", 1, packet_id=2),
        Publish("t/0", b"after", 1, packet_id=3),
    )
    stage.scene.turn()
    assert first.payloads() == [b"fire", b"before"]
    stage.steps()
    assert first.payloads() == [b"after"]
    assert [answer.packet_id for answer in stage.admin.take(Puback)] == [1, 2, 3]


def test_an_urgent_command_is_prepared_as_any() -> None:
    stage = Stage()
    stage.admin.publish("$urgent/" + POLICY, policy(), 1)
    assert stage.version == 0
    stage.steps()
    assert (stage.version, reasons(stage.admin), stage.answers()) == (1, [0], [1])


def test_two_in_quick_succession_end_with_the_second_and_are_answered_in_order() -> None:
    stage = Stage()
    other = stage.scene.connect("other")
    told = stage.scene.connect("told")
    told.subscribe("$SYS/headgate/policy")
    told.take(Publish)
    stage.command(policy(1))
    stage.step()
    stage.command(policy(2, {"priority": 2}), client=other)
    stage.steps()
    assert (stage.version, stage.priorities()) == (2, {2})
    assert stage.answers() == [1, 2]
    assert [Policy.from_json(payload).version for payload in told.payloads()] == [1, 2]
    assert reasons(stage.admin) == reasons(other) == [0]


def test_two_of_one_read_too() -> None:
    stage = Stage()
    stage.admin.say(
        Publish(POLICY, policy(1), 1, packet_id=1),
        Publish(POLICY, policy(2, {"priority": 2}), 1, packet_id=2),
    )
    stage.scene.turn()
    stage.steps()
    assert (stage.priorities(), stage.answers(), reasons(stage.admin)) == ({2}, [1, 2], [0, 0])


def test_the_second_is_refused_if_its_version_is_not_above_the_first() -> None:
    stage = Stage()
    other = stage.scene.connect("other")
    stage.command(policy(5))
    stage.command(policy(5, {"priority": 2}), client=other)
    stage.steps()
    assert stage.priorities() == {NEW}
    assert stage.answers() == [5, "version 5 is not above 5, which is in force"]
    assert (reasons(stage.admin), reasons(other)) == ([0], [0x99])


@pytest.mark.parametrize(
    "wrong",
    [b"nonsense", policy(2, {"priority": 1}, {"topic": "a/#/b", "priority": 1}, {"priority": 2})],
    ids=["at once", "after some slices"],
)
def test_an_invalid_one_in_between_changes_nothing(wrong: bytes) -> None:
    stage = Stage()
    others = [stage.scene.connect(name) for name in ("second", "third")]
    stage.command(policy(1))
    for client, payload in zip(others, (wrong, policy(3, {"priority": 3})), strict=True):
        stage.command(payload, client=client)
    while stage.version != 3:
        assert stage.priorities() in ({OLD}, {NEW})
        assert stage.step()
    assert stage.priorities() == {3}
    first, refused, last = stage.answers()
    assert (first, last) == (1, 3)
    assert "not a policy" in refused
    assert [reasons(client) for client in (stage.admin, *others)] == [[0], [0x99], [0]]


def test_applications_keep_their_place_in_line() -> None:
    stage = Stage()
    other = stage.scene.connect("other")
    stage.command(policy(1, {"application": "a", "priority": 1}))
    added = [{"name": "a", "clients": ["c*"]}]
    other.publish(APPLICATIONS, json.dumps(added).encode(), 1)
    assert reasons(other) == []
    stage.steps()
    assert reasons(other) == [0]
    answers = [json.loads(payload)["command"] for payload in stage.watcher.payloads()]
    assert answers == [POLICY, APPLICATIONS]
    assert {client.flow("all").priority for client in stage.subscribers} == {1}


def test_flows_that_come_go_and_change_meanwhile_are_settled_as_all_others() -> None:
    known = (Application(name="a", clients=("c*",)), Application(name="b", clients=("b*",)))
    stage = Stage(applications=known)
    scene = stage.scene
    rules = [
        {"topic": "all", "priority": 1},
        {"application": "b", "priority": 2},
        {"flow": {"client": "c1", "filter": "new"}, "priority": 3},
        {"flow": {"client": "c2", "filter": "t/2"}, "application": "a", "priority": 8},
        {"flow": {"client": "c2", "filter": "t/2"}, "application": "b", "priority": 5},
    ]
    lasts = scene.connect("lasts", clean_start=False, properties=lasting())
    lasts.subscribe("all", 1)
    changes = [
        lambda: stage.subscribers[1].subscribe("new"),
        lambda: stage.subscribers[3].say(Unsubscribe(9, ["t/3"])),
        stage.subscribers[4].leave,
        stage.subscribers[5].drop,
        lasts.drop,
        lambda: scene.connect("lasts", clean_start=False, properties=lasting()),
        lambda: scene.connect("fresh").subscribe("all"),
        # c2 comes again and says that it belongs to another application
        lambda: scene.connect("c2", properties=claims("b")).subscribe("t/2"),
    ]
    stage.command(policy(1, *rules))
    for _ in range(len(rules)):  # then every flow is asked about, a session a slice
        stage.step()
    for change in changes:
        stage.step()
        change()
        assert stage.version == 0
        assert stage.priorities() == {OLD}
    stage.steps()
    assert stage.version == 1
    shown = {(flow.session.client_id, flow.filter): flow.priority for flow in scene.flows()}
    assert shown["c1", "new"] == 3
    assert shown["c2", "t/2"] == 5
    assert shown["lasts", "all"] == shown["fresh", "all"] == 1
    assert shown.keys().isdisjoint({("c3", "t/3"), ("c4", "all"), ("c5", "all")})
    afresh = Enforcer(scene.broker.enforcer.policy)
    for flow in scene.flows():
        assert afresh.settings_of(flow).priority == flow.priority


def claims(application: str) -> Properties:
    return Properties(user_properties=[("application", application)])


def test_a_goodbye_behind_the_command_waits_for_it() -> None:
    stage = Stage()
    will = Will("all", b"died")
    leaving = stage.scene.connect("leaving", will=will)
    leaving.say(Publish(POLICY, policy()), Disconnect())
    stage.scene.turn()
    assert leaving.open
    stage.steps()
    assert (stage.version, leaving.open) == (1, False)
    assert stage.subscribers[0].payloads() == []


def test_a_connection_that_is_lost_meanwhile_said_what_it_said() -> None:
    stage = Stage()
    first, lost = stage.scene.connect("first"), stage.scene.connect("lost")
    stage.command(policy(1), client=first)
    lost.say(Publish(POLICY, policy(2), 0), Publish(POLICY, policy(3), 0), Publish("all", b"x"))
    stage.scene.turn()
    lost.drop()
    assert (stage.version, stage.priorities(), stage.answers()) == (3, {NEW}, [1, 2, 3])
    assert stage.subscribers[0].payloads() == [b"x"]
    stage.steps()
    stage.command(policy(4))  # the line is in order
    stage.steps()
    assert stage.version == 4


def test_a_connection_that_is_taken_over_meanwhile_takes_its_command_along() -> None:
    stage = Stage()
    stage.command(policy(1))
    again = stage.scene.connect("admin")
    stage.command(policy(2, {"priority": 2}), client=again)
    stage.steps()
    assert (stage.version, stage.priorities(), stage.answers()) == (2, {2}, [2])
    assert reasons(again) == [0]


def test_a_command_repeated_by_qos_2_is_obeyed_once() -> None:
    stage = Stage()
    stage.admin.acknowledges = False
    request = Publish(POLICY, policy(), 2, packet_id=7)
    stage.admin.say(request)
    stage.scene.turn()
    stage.steps()
    stage.admin.say(Publish(POLICY, policy(), 2, packet_id=7, dup=True))
    stage.scene.turn()
    stage.steps()
    assert (reasons(stage.admin), stage.answers()) == ([0, 0], [1])


def test_who_may_not_command_any_more_is_refused() -> None:
    stage = Stage()
    stage.command(policy())
    stage.scene.gate.publishers = lambda client_id, topic: False
    stage.scene.broker.access_changed()
    stage.steps()
    assert (stage.version, reasons(stage.admin)) == (0, [0x87])
    stage.scene.gate.publishers = lambda client_id, topic: True
    stage.scene.broker.access_changed()
    stage.command(policy(2))
    stage.steps()
    assert (stage.version, reasons(stage.admin)) == (2, [0])


def test_a_will_that_is_a_command_is_obeyed() -> None:
    stage = Stage()
    dying = stage.scene.connect("dying", will=Will(POLICY, policy(1)))
    stage.command(policy(2, {"priority": 2}))
    dying.drop()
    assert stage.version == 1
    stage.steps()
    assert (stage.version, stage.answers()) == (2, [1, 2])


def test_after_a_restart_what_was_kept_is_in_force_and_what_was_prepared_is_not() -> None:
    journal = Kept()
    stage = Stage(journal)
    stage.command(policy(1))
    stage.steps()
    stage.command(policy(2, {"priority": 2}))
    stage.step()
    broker = Broker(Configuration(), stage.scene.gate, SlowJournal(), stage.scene.broker.rng)
    broker.control.restore(journal.values)
    assert broker.enforcer.policy == Policy.from_json(policy(1))
    message = Message(POLICY.encode(), policy(2), b"", 1)
    assert broker.control.obey(message, None, START) == 0


class Kept(SlowJournal):
    """Remembers what has to survive."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, bytes] = {}

    def save_value(self, name: str, value: bytes) -> None:
        self.values[name] = value


MINE = (PolicyRule(priority=OLD), PolicyRule(application="mine", priority=NEW))


def of_subscribers(stage: Stage) -> set[int]:
    return {f.priority for f in stage.scene.flows() if f.session.client_id.startswith("c")}


def all_turns(stage: Stage) -> list[set[int]]:
    seen = [of_subscribers(stage)]
    while stage.step():
        seen.append(of_subscribers(stage))
    return seen


def test_with_other_applications_every_flow_changes_in_the_same_turn() -> None:
    stage = Stage(policy=MINE)
    known = json.dumps([{"name": "mine", "clients": ["c*"]}]).encode()
    stage.admin.publish(APPLICATIONS, known, 1)
    assert reasons(stage.admin) == []
    seen = all_turns(stage)
    before = seen.count({OLD})
    assert 10 < before < len(seen)
    assert seen[before:] == [{NEW}] * (len(seen) - before)
    assert reasons(stage.admin) == [0]


def test_after_a_reload_every_flow_changes_in_the_same_turn() -> None:
    stage = Stage(policy=(PolicyRule(priority=OLD),))
    config = Configuration(policy=MINE, applications=(Application(name="mine", clients=("c*",)),))
    stage.scene.broker.reconfigure(config, stage.scene.now)
    seen = all_turns(stage)
    before = seen.count({OLD})
    assert 10 < before < len(seen)
    assert seen[before:] == [{NEW}] * (len(seen) - before)


def test_of_two_reloads_the_second_counts() -> None:
    stage = Stage(policy=(PolicyRule(priority=OLD),))
    broker = stage.scene.broker
    broker.reconfigure(Configuration(policy=(PolicyRule(priority=3),)), stage.scene.now)
    stage.step()
    broker.reconfigure(Configuration(policy=(PolicyRule(priority=NEW),)), stage.scene.now)
    assert all_turns(stage)[-1] == {NEW}
    assert {3} not in all_turns(stage)


def test_applications_that_come_during_a_reload_count_as_well() -> None:
    stage = Stage(policy=(PolicyRule(priority=OLD),))
    stage.scene.broker.reconfigure(Configuration(policy=MINE), stage.scene.now)
    stage.step()
    known = json.dumps([{"name": "mine", "clients": ["c*"]}]).encode()
    stage.admin.publish(APPLICATIONS, known, 1)
    assert all_turns(stage)[-1] == {NEW}
