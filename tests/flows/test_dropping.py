"""Dropping at a rate (PlanEMQX §IV-D): exact in the long run, independent between flows, counted.

Statistical tests state their level. The seeds are fixed, so that a test that passes keeps passing;
set FLOWS_SEED to another number to look elsewhere. Each seed is part of the test's name.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy.stats import binom, chi2_contingency

from headgate.config import Configuration
from headgate.contract import Application, Category, FlowSelector, PolicyRule, Requirement
from headgate.core.access import Identity
from headgate.core.flows import Flow, thinned
from headgate.core.link import Pool
from headgate.core.message import CRITICAL, NORMAL, URGENT, Message
from headgate.core.reasons import Drop
from headgate.core.session import Session
from headgate.wire.codec import encode
from headgate.wire.packets import Properties, Puback, Publish, Pubrec, Version

from .scene import Client, Scene, claimed, drops, lasting

MESSAGES = 1_000_000
LEVEL = 0.9999
"""Confidence level of every interval and test in this module."""

RATES = [0.001, 0.003, 0.01, 0.05, 0.1, 1 / 3, 0.5, 0.7, 0.9, 0.99, 0.999]
SEEDS = [int(os.environ.get("FLOWS_SEED", "20261116"))]


class Counting(Client):
    """Counts bytes instead of reading them: a million packets are too many to decode here."""

    def _hear(self, data: bytes) -> None:
        self.arrivals.append((self.scene.now, len(data)))


def dropping(rate: float, *others: PolicyRule) -> Configuration:
    return Configuration(policy=(PolicyRule(drop=rate), *others))


def test_what_the_broker_answers_is_not_dropped() -> None:
    scene = Scene(dropping(1.0))
    admin = scene.connect("admin")
    admin.subscribe("$SYS/headgate/#")
    admin.subscribe("answers")
    admin.take(Publish)
    policy = b'{"version": 1, "rules": [{"drop": 1.0}]}'
    asking = Properties(response_topic="answers")
    admin.publish("$CONTROL/headgate/policy", policy, 1, properties=asking)
    admin.publish("answers", b"a client's own")
    heard = [message.topic for message in admin.take(Publish)]
    assert heard == ["$SYS/headgate/policy", "$SYS/headgate/control", "answers"]
    assert drops(admin.flow("answers")) == {Drop.RATE: 1}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rate", RATES)
def test_the_measured_rate_of_a_million_messages_is_the_policys(rate: float, seed: int) -> None:
    scene = Scene(dropping(rate), seed=seed)
    subscriber = scene.connect("subscriber", Version.V311)
    subscriber.subscribe("t")
    subscriber.__class__ = Counting
    subscriber.arrivals.clear()
    publisher = scene.connect("publisher", Version.V311)
    packet = encode(Publish("t", b"1234"), Version.V311)
    for _ in range(MESSAGES // 5000):
        publisher.say(packet * 5000)
        scene.turn()
    flow = subscriber.flow("t")
    dropped = flow.drops[Drop.RATE]
    low, high = binom.interval(LEVEL, MESSAGES, rate)
    assert low <= dropped <= high, f"{dropped} of {MESSAGES} at {rate}, seed {seed}"
    assert flow.offered == MESSAGES
    assert flow.delivered == MESSAGES - dropped
    assert subscriber.received_size() == flow.delivered * len(packet)


def losses(rate: float, salt: int, count: int) -> np.ndarray:
    """Which of `count` messages a flow with this salt loses."""
    session = Session("c", Identity(), Pool(1 << 40))
    flow = Flow(session, "t", 0)
    flow.salt = salt
    flow.threshold = int(rate * 2**64)
    message = Message(b"t", b"", b"", 0)
    lost = np.zeros(count, dtype=bool)
    for index in range(count):
        message.number = 1 + index
        before = flow.drops[Drop.RATE]
        flow.deliver(message, False, 1.0)
        lost[index] = flow.drops[Drop.RATE] > before
    return lost


def independent(one: np.ndarray, other: np.ndarray) -> bool:
    """Does Pearson's test on the table of both fail to find a relation, at the module's level?"""
    table = [
        [np.sum(one & other), np.sum(one & ~other)],
        [np.sum(~one & other), np.sum(~one & ~other)],
    ]
    return bool(chi2_contingency(table).pvalue > 1 - LEVEL)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("one", "other"), [(0.5, 0.5), (0.1, 0.1), (0.05, 0.3), (0.9, 0.2)])
def test_two_flows_lose_independently(one: float, other: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    salts = [int(salt) for salt in rng.integers(0, 2**63, 2)]
    first, second = losses(one, salts[0], 200_000), losses(other, salts[1], 200_000)
    assert independent(first, second), f"salts {salts}"


@pytest.mark.parametrize("seed", SEEDS)
def test_one_loss_says_nothing_of_the_next(seed: int) -> None:
    salt = int(np.random.default_rng(seed).integers(0, 2**63))
    lost = losses(0.3, salt, 200_000)
    for lag in (1, 2, 3, 10, 64):
        assert independent(lost[:-lag], lost[lag:]), f"lag {lag}, salt {salt}"


@pytest.mark.parametrize("rate", RATES)
def test_the_loss_is_right_after_every_few_hundred_messages(rate: float) -> None:
    """A coin would be off by sqrt(256 p (1 - p)), up to eight messages of every 256 (0057)."""
    turns = np.concatenate([[False], losses(rate, 7, 256 * 400 - 1)]).reshape(-1, 256).sum(axis=1)
    assert np.all(np.abs(turns[1:] - 256 * rate) < 1)
    assert abs(turns[1:].mean() - 256 * rate) < 4 * np.sqrt(0.25 / len(turns))


def test_the_test_of_independence_can_fail() -> None:
    lost = losses(0.3, 1, 20_000)
    assert not independent(lost, lost)
    assert not independent(lost, lost & losses(0.9, 2, 20_000))


def test_the_hash_is_the_finaliser_of_splitmix64() -> None:
    # splitmix64's first outputs for the seed 0 are this finaliser of multiples of the golden gamma.
    gamma = 0x9E3779B97F4A7C15
    outputs = [thinned(gamma * n % 2**64, 0) for n in (1, 2, 3)]
    assert outputs == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_flows_of_one_topic_lose_different_messages() -> None:
    scene = Scene(dropping(0.5))
    one, other = scene.connect("one"), scene.connect("other")
    one.subscribe("t")
    other.subscribe("t")
    publisher = scene.connect("publisher")
    for number in range(64):
        publisher.say(Publish("t", b"%d" % number))
    scene.turn()
    got = [set(one.payloads()), set(other.payloads())]
    assert got[0] != got[1]
    assert all(0 < len(some) < 64 for some in got)


def test_nothing_urgent_or_critical_is_dropped() -> None:
    scene = Scene(dropping(1.0))
    subscriber = scene.connect("subscriber")
    subscriber.subscribe("t", 2)
    publisher = scene.connect("publisher")
    for rank in ("urgent", "critical"):
        for _ in range(20):
            publisher.publish("t", rank.encode(), properties=claimed(rank))
    publisher.publish("t", b"normal")
    assert subscriber.payloads() == [b"urgent"] * 20 + [b"critical"] * 20
    assert subscriber.flow("t").drops[Drop.RATE] == 1


def test_what_tolerates_no_loss_loses_nothing() -> None:
    config = Configuration(
        policy=(PolicyRule(drop=0.9),),
        applications=(
            Application(name="strict", clients=("strict-*",), requirement=Requirement()),
            Application(name="some", clients=("some-*",), requirement=Requirement(loss=0.25)),
            Application(name="video", clients=("video-*",), category="video"),
        ),
        categories=(Category(name="video", requirement=Requirement(loss=0.0)),),
    )
    scene = Scene(config)
    names = ("strict-1", "some-1", "video-1", "nobody")
    for name in names:
        scene.connect(name).subscribe("t")
    flows = [scene.broker.sessions[name].flows["t"] for name in names]
    assert [flow.drop_rate for flow in flows] == [0.0, 0.25, 0.0, 0.9]
    publisher = scene.connect("publisher")
    publisher.say(*[Publish("t", b"x")] * 4000)
    scene.turn()
    drops = [flow.drops[Drop.RATE] for flow in flows]
    assert drops[0] == drops[2] == 0
    for dropped, rate in ((drops[1], 0.25), (drops[3], 0.9)):
        low, high = binom.interval(LEVEL, 4000, rate)
        assert low <= dropped <= high


@pytest.mark.parametrize("qos", [1, 2])
def test_the_publisher_is_acknowledged_all_the_same(qos: int) -> None:
    scene = Scene(dropping(1.0))
    subscriber = scene.connect("subscriber")
    subscriber.subscribe("t", 2)
    publisher = scene.connect("publisher")
    for number in range(10):
        publisher.publish("t", b"%d" % number, qos)
    answers = publisher.take(Puback) + publisher.take(Pubrec)
    assert [answer.reason for answer in answers] == [0] * 10
    assert subscriber.payloads() == []
    assert drops(subscriber.flow("t")) == {Drop.RATE: 10}


def test_a_retained_message_is_sent_to_a_new_subscriber_whatever_the_rate() -> None:
    """It is the state of its topic, not one message of a stream."""
    scene = Scene(dropping(1.0))
    publisher = scene.connect("publisher")
    for number in range(10):
        publisher.publish(f"t/{number}", b"state", retain=True)
    subscriber = scene.connect("subscriber")
    subscriber.subscribe("t/+")
    assert subscriber.payloads() == [b"state"] * 10
    publisher.publish("t/0", b"news", retain=True)
    assert subscriber.payloads() == []


@pytest.mark.parametrize("join", [0.0, 0.3, 1.0])
def test_while_the_client_is_away_messages_join_with_the_given_probability(join: float) -> None:
    config = Configuration(policy=(PolicyRule(join=join),))
    scene = Scene(config)
    subscriber = scene.connect("subscriber", properties=lasting())
    subscriber.subscribe("t", 1)
    subscriber.drop()
    publisher = scene.connect("publisher")
    for _ in range(2000):
        publisher.say(Publish("t", b"x", 1, packet_id=1))
        scene.turn()
    flow = scene.broker.sessions["subscriber"].flows["t"]
    low, high = binom.interval(LEVEL, 2000, join)
    assert low <= flow.backlog <= high
    assert flow.drops[Drop.DISCONNECTED] == 2000 - flow.backlog


def test_a_drop_is_counted_under_its_reason_alone() -> None:
    config = Configuration(
        policy=(
            PolicyRule(flow=FlowSelector(client="rate", filter="t"), drop=1.0),
            PolicyRule(flow=FlowSelector(client="capacity", filter="t"), capacity=1),
        ),
    )
    scene = Scene(config)
    for name in ("rate", "capacity"):
        scene.connect(name).subscribe("t")
    slow = scene.clients[-1]
    slow.room = 0
    publisher = scene.connect("publisher")
    publisher.publish("t", b"gathered")
    for _ in range(3):
        publisher.publish("t", b"x")
    flows = {name: scene.broker.sessions[name].flows["t"] for name in ("rate", "capacity")}
    assert drops(flows["rate"]) == {Drop.RATE: 4}
    assert drops(flows["capacity"]) == {Drop.CAPACITY: 2}


def test_ranks_are_what_the_hash_does_not_see() -> None:
    session = Session("c", Identity(), Pool(1 << 40))
    flow = Flow(session, "t", 0)
    flow.threshold = 2**64 - 1
    for rank, dropped in ((URGENT, 0), (CRITICAL, 0), (NORMAL, 1)):
        message = Message(b"t", b"", b"", 0)
        message.rank = rank
        message.number = 7
        before = flow.drops[Drop.RATE]
        flow.deliver(message, False, 1.0)
        assert flow.drops[Drop.RATE] - before == dropped
