"""Snapshots and `$SYS`: what is told is what happened."""

from __future__ import annotations

import pytest

from headgate.config import Configuration
from headgate.contract import Application, Claim, FlowSnapshot, LinkSpec, PolicyRule, Snapshot
from headgate.core import snapshots
from headgate.core.snapshots import Snapshots
from headgate.core.statistics import Statistics
from headgate.wire.codec import encode
from headgate.wire.packets import Properties, Publish, Version

from .scene import Client, Scene, claimed, lasting

TOPIC = "$SYS/headgate/snapshot"
INTERVAL = 1.0


class Watched(Scene):
    """A scene whose snapshots somebody reads."""

    def __init__(self, config: Configuration | None = None) -> None:
        super().__init__(config)
        self.snapshots = Snapshots(self.broker, INTERVAL, self.now)
        self.watcher = self.connect("watcher")
        self.watcher.subscribe(TOPIC)

    def next(self) -> Snapshot:
        """The next snapshot; those before are forgotten."""
        self.watcher.take(Publish)
        self.advance(INTERVAL)
        (message,) = self.watcher.take(Publish)
        return Snapshot.from_json(message.payload)

    def of(self, client: Client) -> FlowSnapshot:
        """What the next snapshot says of a client's only flow."""
        (flow,) = [flow for flow in self.next().flows if flow.client == client.client_id]
        return flow


def test_what_was_sent() -> None:
    scene = Watched()
    client = scene.connect("c", Version.V311)
    client.subscribe("t/+", 1)
    scene.next()
    publisher = scene.connect("p")
    for number in range(7):
        publisher.publish("t/x", b"%d" % number, 1)
    snapshot = scene.next()
    assert snapshot.time == scene.now
    assert snapshot.interval == pytest.approx(INTERVAL)
    assert snapshot.received == 7
    assert snapshot.connections == 3
    assert snapshot.policy == 0
    (flow,) = [flow for flow in snapshot.flows if flow.client == "c"]
    size = len(encode(Publish("t/x", b"0", 1, packet_id=1), Version.V311))
    assert (flow.filter, flow.connected, flow.priority) == ("t/+", True, 7)
    assert (flow.offered, flow.delivered, flow.bytes) == (7, 7, 7 * size)
    assert (flow.dropped, flow.waiting, flow.waits_for) == ({}, 0, "")
    assert flow.acknowledged == 7


def test_only_what_is_new_and_only_flows_in_which_something_happened() -> None:
    scene = Watched()
    client, idle = scene.connect("c"), scene.connect("idle")
    client.subscribe("t")
    idle.subscribe("u")
    publisher = scene.connect("p")
    publisher.publish("t", b"x")
    assert scene.of(client).delivered == 1
    assert [flow.client for flow in scene.next().flows] == ["watcher"]
    publisher.publish("t", b"x")
    assert scene.of(client).delivered == 1


def test_an_acknowledgement_alone_is_something() -> None:
    scene = Watched()
    client = scene.connect("c", acknowledges=False)
    client.subscribe("t", 1)
    scene.connect("p").publish("t", b"x", 1)
    assert scene.of(client).acknowledged == 0
    client.catch_up(True)
    scene.turn()
    shown = scene.of(client)
    assert (shown.acknowledged, shown.delivered) == (1, 0)
    assert shown.acknowledged_mean_ms == pytest.approx(INTERVAL * 1e3)


def test_whose_it_is_and_what_was_decided() -> None:
    config = Configuration(
        applications=(Application(name="alarm", clients=("c",), category="RT"),),
        policy=(PolicyRule(category="RT", priority=2, drop=0.25),),
        links=(LinkSpec(name="floor", clients=("c",), rate=1_000_000),),
    )
    scene = Watched(config)
    client = scene.connect("c")
    client.subscribe("t")
    scene.connect("p").publish("t", b"x")
    shown = scene.of(client)
    assert (shown.application, shown.category, shown.link) == ("alarm", "RT", "floor")
    assert (shown.priority, shown.drop) == (2, 0.25)


def test_drops_by_reason() -> None:
    scene = Watched(Configuration(policy=(PolicyRule(topic="t", drop=1.0),)))
    client = scene.connect("c", properties=lasting())
    client.subscribe("t")
    client.subscribe("u")
    publisher = scene.connect("p")
    for _ in range(3):
        publisher.publish("t", b"x")
    client.drop()
    for _ in range(2):
        publisher.publish("u", b"x")
    shown = {flow.filter: flow for flow in scene.next().flows if flow.client == "c"}
    assert shown["t"].dropped == {"rate": 3}
    assert shown["u"].dropped == {"disconnected": 2}
    assert shown["u"].connected is False
    values = dict(Statistics(scene.broker, scene.now).values(scene.now))
    assert values["$SYS/headgate/dropped/rate"] == "3"
    assert values["$SYS/headgate/dropped/disconnected"] == "2"


def test_what_waits_and_why() -> None:
    scene = Watched()
    client = scene.connect("c", acknowledges=False, properties=Properties(receive_maximum=1))
    client.subscribe("t", 1)
    publisher = scene.connect("p")
    for _ in range(5):
        publisher.publish("t", b"x", 1)
    shown = scene.of(client)
    assert (shown.offered, shown.delivered, shown.waiting, shown.waits_for) == (5, 1, 4, "window")
    shown = scene.of(client)  # it is shown as long as it waits
    assert (shown.offered, shown.delivered, shown.waiting, shown.waits_for) == (0, 0, 4, "window")


def test_response_times_are_from_arrival_to_hand_over() -> None:
    scene = Watched()
    client = scene.connect("c")
    client.subscribe("t")
    client.room = 0
    publisher = scene.connect("p")
    publisher.publish("t", b"x")  # gathered, and stuck in the socket
    publisher.publish("t", b"x")
    scene.advance(0.4)
    publisher.publish("t", b"x")
    scene.advance(0.1)
    client.read_all()
    shown = scene.of(client)
    # The histogram's buckets are an eighth of an octave wide: its quantiles err by 1/16 at most.
    assert shown.mean_ms == pytest.approx((500 + 500 + 100) / 3, rel=1e-6)
    assert shown.p50_ms == pytest.approx(500, rel=1 / 16)
    assert shown.p99_ms == pytest.approx(500, rel=1 / 16)


def test_a_repetition_is_no_second_delivery() -> None:
    scene = Watched()
    client = scene.connect("c", acknowledges=False, properties=lasting())
    client.subscribe("t", 1)
    scene.connect("p").publish("t", b"x", 1)
    client.drop()
    back = scene.connect("c", clean_start=False, properties=lasting())
    assert [message.dup for message in back.take(Publish)] == [True]
    shown = scene.of(back)
    assert (shown.offered, shown.delivered) == (1, 1)


def test_links() -> None:
    config = Configuration(
        links=(
            LinkSpec(name="slow", clients=("c",), rate=80_000),
            LinkSpec(name="auto", clients=("x",), rate=None),
        )
    )
    scene = Watched(config)
    client = scene.connect("c")
    client.subscribe("t")
    publisher = scene.connect("p")
    publisher.say(*[Publish("t", bytes(1000))] * 100)
    slow, auto = scene.next().links
    assert (slow.name, slow.estimated, slow.rate) == ("slow", False, pytest.approx(80_000 * 0.98))
    assert slow.sent == pytest.approx(80_000 / 8 * 0.98 * INTERVAL, rel=0.4)  # and a burst
    assert slow.waiting == client.session.queued_size > 50_000
    assert (auto.name, auto.estimated, auto.rate, auto.sent) == ("auto", True, 0.0, 0)
    slow, _ = scene.next().links
    assert slow.sent == pytest.approx(80_000 / 8 * 0.98 * INTERVAL, rel=0.15)


def test_the_policy_in_force() -> None:
    scene = Watched()
    scene.connect("admin").publish("$CONTROL/headgate/policy", b'{"version": 42, "rules": []}', 1)
    assert scene.next().policy == 42


def test_none_are_made_while_nobody_listens() -> None:
    scene = Watched()
    client = scene.connect("c")
    client.subscribe("t")
    scene.watcher.drop()
    scene.connect("p").publish("t", b"x")
    scene.advance(5 * INTERVAL)
    assert client.flow("t").reported is None
    other = scene.connect("other")
    other.subscribe("$share/watchers/" + TOPIC)
    scene.advance(INTERVAL)
    (message,) = other.take(Publish)
    snapshot = Snapshot.from_json(message.payload)
    assert snapshot.interval == pytest.approx(6 * INTERVAL)
    assert {flow.client: flow.delivered for flow in snapshot.flows}["c"] == 1


def test_many_flows_are_looked_at_in_several_turns_and_told_in_one_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshots, "SLICE", 2)
    scene = Watched()
    for number in range(9):
        scene.connect(f"c{number}").subscribe("t")
    publisher = scene.connect("p")
    publisher.publish("t", b"x")
    scene.watcher.take(Publish)
    scene.advance(INTERVAL - 0.001)
    assert scene.watcher.take(Publish) == []
    scene.advance(0.1)
    (message,) = scene.watcher.take(Publish)
    shown = Snapshot.from_json(message.payload)
    assert len([flow for flow in shown.flows if flow.client != "watcher"]) == 9
    scene.advance(INTERVAL)
    assert len(scene.watcher.take(Publish)) == 1


def test_urgent_and_denied_claims_in_sys() -> None:
    scene = Scene()
    scene.connect("s").subscribe("t")
    publisher = scene.connect("p")
    publisher.publish("t", b"", properties=claimed("urgent"))
    publisher.publish("t", b"", properties=claimed("critical"))
    scene.gate.claimants = lambda client_id, what: False
    publisher.publish("t", b"", properties=claimed("critical"))
    values = dict(Statistics(scene.broker, scene.now).values(scene.now))
    assert values["$SYS/headgate/messages/urgent"] == "1"
    assert values["$SYS/headgate/messages/critical"] == "1"
    assert values["$SYS/headgate/claims/denied"] == "1"


def test_what_a_client_asks_for_itself() -> None:
    scene = Watched()
    asks, silent = scene.connect("asks"), scene.connect("silent")
    properties = Properties(user_properties=[("max-response-ms", "20"), ("max-loss", "0.1")])
    asks.subscribe("t", 0, properties)
    silent.subscribe("t")
    scene.connect("p").publish("t", b"x")
    flows = {flow.client: flow for flow in scene.next().flows}
    assert flows["asks"].claim == Claim(response_ms=20.0, loss=0.1)
    assert flows["silent"].claim is None
