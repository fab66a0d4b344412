"""Links: who is behind which, how fast they send, why something waits."""

from __future__ import annotations

import json

import pytest

from headgate.config import Configuration
from headgate.config.limits import Limits
from headgate.contract import LinkSpec, PolicyRule
from headgate.core.link import HEADERS, SEGMENT, Link
from headgate.core.links import MARGIN
from headgate.core.reasons import Drop, Wait
from headgate.core.scheduler import hindrance
from headgate.wire.codec import encode
from headgate.wire.packets import Properties, Puback, Publish, Version

from .scene import Client, Scene, SlowJournal, claimed, drops, lasting

RATE = 1_000_000
"""Bits per second."""


def linked(rate: int = RATE, *rules: PolicyRule, limits: Limits | None = None) -> Configuration:
    """Clients called `app-…` share a link."""
    return Configuration(
        links=(LinkSpec(name="slow", clients=("app-*",), rate=rate),),
        policy=rules,
        limits=limits or Limits(),
    )


def the_link(scene: Scene) -> Link:
    (link,) = scene.broker.links
    return link


# Who is behind


@pytest.mark.parametrize(
    ("client_id", "user", "address", "name"),
    [
        ("app-1", None, "192.0.2.1", "floor"),
        ("app-1", "site-1", "10.20.3.4", "floor"),  # the first that holds it
        ("x", "site-1", "192.0.2.1", "sites"),
        ("x", None, "10.20.3.4", "trams"),
        ("x", None, "10.21.3.4", None),
        ("x", None, "2001:db8::7", "trams"),
        ("x", None, "2001:db9::7", None),
        ("x", None, "::ffff:10.20.0.1", "trams"),  # IPv4 as a dual-stack socket sees it
        ("x", None, "", None),  # a Unix socket
        ("App-1", "Site-1", "192.0.2.1", None),
    ],
)
def test_by_client_user_or_address(
    client_id: str, user: str | None, address: str, name: str | None
) -> None:
    config = Configuration(
        links=(
            LinkSpec(name="floor", clients=("app-*",), rate=RATE),
            LinkSpec(name="sites", users=("site-?",), rate=RATE),
            LinkSpec(name="trams", addresses=("10.20.0.0/16", "2001:db8::/32"), rate=RATE),
        )
    )
    scene = Scene(config)
    client = scene.connect(client_id, username=user, address=address)
    link = client.session.link
    assert (link.name if link is not None else None) == name


def test_a_client_that_moves_is_behind_another_link() -> None:
    config = Configuration(
        links=(
            LinkSpec(name="a", addresses=("10.1.0.0/16",), rate=RATE),
            LinkSpec(name="b", addresses=("10.2.0.0/16",), rate=RATE),
        )
    )
    scene = Scene(config)
    client = scene.connect("c", address="10.1.0.1", properties=lasting())
    client.subscribe("t", 1)
    publisher = scene.connect("p", address="10.3.0.1")
    publisher.say(*[Publish("t", bytes(1000), 1, packet_id=1 + i) for i in range(50)])
    scene.turn()
    one, other = scene.broker.links
    assert one.queued > 0
    client.drop()
    assert (one.queued, one.waiting, other.queued) == (0, 0, 0)
    back = scene.connect("c", address="10.2.0.1", clean_start=False, properties=lasting())
    assert (one.queued, one.waiting) == (0, 0)
    assert other.queued > 0
    scene.advance(10)
    assert len(client.payloads() + back.payloads()) >= 50
    assert (other.queued, other.waiting) == (0, 0)


# Pacing


def cost(size: int) -> float:
    """What a packet costs on the wire: itself, and headers for each segment."""
    return size + HEADERS * (1 + size // SEGMENT)


def assert_paced(scene: Scene, clients: list[Client], rate: float, largest: int) -> None:
    """In no interval did more arrive than rate × time + burst, and one packet begun in time.

    That holds for every interval if a bucket that leaks at the rate never holds more.
    """
    bound = the_link(scene).burst + cost(largest)
    level, last = 0.0, 0.0
    for when, size in sorted(event for client in clients for event in client.arrivals):
        level = max(0.0, level - rate * (when - last)) + size
        last = when
        assert level <= bound, f"{level} bytes at {when}"


def flood(scene: Scene, count: int, size: int, qos: int = 0, topic: str = "t") -> None:
    publisher = scene.connect(f"p-{topic.replace('/', '-')}")
    publisher.say(
        *[Publish(topic, bytes(size), qos, packet_id=1 + i if qos else 0) for i in range(count)]
    )
    scene.turn()


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("size", [10, 400, 5000])
def test_never_more_than_rate_times_time_and_a_burst(size: int, qos: int) -> None:
    scene = Scene(linked())
    clients = [scene.connect(f"app-{number}") for number in range(3)]
    for client in clients:
        client.subscribe("t", qos)
        client.arrivals.clear()
    count = min(900, 200_000 // (size + 100))
    flood(scene, count, size, qos)
    scene.advance(30)
    assert_paced(scene, clients, RATE / 8 * MARGIN, size + 20)
    assert [len(client.payloads()) for client in clients] == [count] * 3


def test_a_link_that_has_something_to_send_is_used() -> None:
    """What its packets cost adds up to the rate, within a burst."""
    scene = Scene(linked())
    client = scene.connect("app-1")
    client.subscribe("t")
    flood(scene, 300, 1000)
    start, before = scene.now, the_link(scene).sent
    scene.advance(2.0)
    link = the_link(scene)
    assert client.flow("t").backlog > 0
    used = link.sent - before
    assert abs(used - link.rate * (scene.now - start)) <= 2 * link.burst


def test_an_idle_link_delays_nothing() -> None:
    scene = Scene(linked())
    client = scene.connect("app-1")
    client.subscribe("t")
    publisher = scene.connect("p")
    for _ in range(20):
        publisher.publish("t", b"x")
        assert client.payloads() == [b"x"]
        scene.advance(0.1)


def test_a_packet_larger_than_the_burst_is_sent_and_paid_for() -> None:
    scene = Scene(linked())
    client = scene.connect("app-1")
    client.subscribe("t")
    link = the_link(scene)
    flood(scene, 3, 100_000)
    times = []
    for _ in range(40):
        scene.advance(0.1)
        times += [scene.now] * len(client.payloads())
    assert len(times) == 3
    assert link.tokens <= link.burst
    # The first goes at once; each other waits until the one before is paid for.
    assert times[1] - times[0] >= cost(100_000) / link.rate - 0.1
    assert times[2] - times[1] >= cost(100_000) / link.rate - 0.1


def test_a_client_of_no_link_is_not_paced() -> None:
    scene = Scene(linked())
    free = scene.connect("free")
    free.subscribe("t")
    flood(scene, 200, 1000)
    assert len(free.payloads()) == 200


def test_what_a_returning_client_is_sent_again_keeps_the_pace() -> None:
    scene = Scene(linked())
    client = scene.connect("app-1", properties=lasting(), acknowledges=False)
    client.subscribe("t", 1)
    flood(scene, 100, 1000, 1)
    scene.advance(30)
    assert len(client.payloads()) == 100
    client.drop()
    scene.advance(1)
    back = scene.connect("app-1", clean_start=False, properties=lasting())
    other = scene.connect("app-2")
    other.subscribe("u")
    scene.advance(0.1)
    assert 0 < len(back.heard) < 40
    flood(scene, 1, 1000, topic="u")
    scene.advance(0.1)
    assert len(other.payloads()) == 1  # it does not wait until all is repeated
    scene.advance(30)
    assert_paced(scene, [back], RATE / 8 * MARGIN, 1020)
    messages = back.take(Publish)
    assert [message.dup for message in messages] == [True] * 100
    assert [message.packet_id for message in messages] == list(range(1, 101))
    assert not back.session.inflight


def test_repetitions_come_before_what_is_new_and_after_what_is_urgent() -> None:
    scene = Scene(linked())
    client = scene.connect("app-1", properties=lasting(), acknowledges=False)
    client.subscribe("t", 1)
    flood(scene, 30, 1000, 1)
    scene.advance(30)
    client.drop()
    back = scene.connect("app-1", clean_start=False, properties=lasting())
    publisher = scene.connect("p")
    publisher.publish("t", b"new", 1)
    publisher.publish("t", b"urgent", properties=claimed("urgent"))
    scene.advance(30)
    messages = back.take(Publish)
    dups = [message.dup for message in messages]
    assert messages[-1].payload == b"new"
    assert dups.index(False) < 29  # the urgent one
    assert [message.payload for message in messages if not message.dup] == [b"urgent", b"new"]


# Who goes first


def test_an_urgent_message_waits_for_nothing_but_the_pace() -> None:
    scene = Scene(linked(RATE, PolicyRule(priority=0)))
    clients = [scene.connect(f"app-{number}") for number in range(5)]
    for client in clients:
        client.subscribe("t/#")
    flood(scene, 100, 1000, topic="t/1")
    scene.connect("p").publish("t/alarm", b"urgent", properties=claimed("urgent"))
    for client in clients:
        client.take(Publish)
    link = the_link(scene)
    scene.advance(5 * cost(100) / link.rate + cost(1010) / link.rate)
    for client in clients:
        assert client.payloads()[0] == b"urgent"


def test_strict_priority_across_clients() -> None:
    scene = Scene(
        linked(RATE, PolicyRule(topic="low", priority=9), PolicyRule(topic="high", priority=1))
    )
    low, high = scene.connect("app-low"), scene.connect("app-high")
    low.subscribe("low")
    high.subscribe("high")
    flood(scene, 50, 1000, topic="low")
    scene.advance(0.01)
    before = len(low.payloads())
    flood(scene, 50, 1000, topic="high")
    scene.advance(0.3)
    assert low.flow("low").backlog >= 50 - before - 1
    assert len(high.payloads()) > 20
    scene.advance(10)
    assert low.flow("low").backlog == high.flow("high").backlog == 0


def test_a_client_that_never_reads_does_not_hold_the_link() -> None:
    scene = Scene(linked(RATE, PolicyRule(topic="stuck", priority=0)))
    stuck, other = scene.connect("app-stuck"), scene.connect("app-other")
    stuck.subscribe("stuck")
    other.subscribe("t")
    stuck.room = 0
    flood(scene, 500, 1000, topic="stuck")
    scene.advance(1)
    flood(scene, 50, 1000)
    scene.advance(5)
    assert len(other.payloads()) == 50
    assert stuck.flow("stuck").backlog > 400
    stuck.read_all()
    scene.advance(10)
    assert len(stuck.payloads()) == 500


def test_a_full_window_does_not_hold_the_link() -> None:
    scene = Scene(linked(RATE, PolicyRule(topic="stuck", priority=0)))
    stuck = scene.connect("app-stuck", acknowledges=False, properties=Properties(receive_maximum=2))
    other = scene.connect("app-other")
    stuck.subscribe("stuck", 1)
    other.subscribe("t", 1)
    flood(scene, 50, 1000, 1, topic="stuck")
    flood(scene, 50, 1000, 1)
    scene.advance(5)
    assert len(other.payloads()) == 50
    assert len(stuck.payloads()) == 2


def test_a_flow_with_a_hundred_messages_leaves_every_other_its_turn() -> None:
    """Within a level flows take turns, message by message."""
    scene = Scene(linked())
    clients = [scene.connect(f"app-{number}") for number in range(4)]
    for number, client in enumerate(clients):
        client.subscribe(f"t/{number}")
    flood(scene, 300, 500, topic="t/0")
    for number in range(1, 4):
        flood(scene, 30, 500, topic=f"t/{number}")
    scene.advance(0.5)
    counts = [len(client.payloads()) for client in clients]
    assert max(counts[1:]) - min(counts[1:]) <= 1
    assert counts[0] - counts[1] <= 12  # what it got while it was alone: a burst


# Why something waits


def reason(client: Client, topic_filter: str, rank: int = 2) -> Wait:
    lane = client.flow(topic_filter).lanes[rank]
    assert lane is not None
    assert lane.items
    return Wait(hindrance(lane))


def test_pacing() -> None:
    scene = Scene(linked())
    clients = [scene.connect(f"app-{number}") for number in range(2)]
    for client in clients:
        client.subscribe("t")
    flood(scene, 50, 1000)
    assert [reason(client, "t") for client in clients] == [Wait.PACING] * 2


@pytest.mark.parametrize("config", [Configuration(), linked()])
def test_a_window_that_is_full(config: Configuration) -> None:
    scene = Scene(config)
    client = scene.connect("app-1", acknowledges=False, properties=Properties(receive_maximum=1))
    client.subscribe("t", 1)
    flood(scene, 2, 10, 1)
    scene.advance(1)
    assert reason(client, "t") is Wait.WINDOW
    (message,) = client.take(Publish)
    client.say(Puback(message.packet_id))
    scene.turn()
    assert len(client.payloads()) == 1


@pytest.mark.parametrize("config", [Configuration(), linked()])
def test_a_socket_that_is_busy(config: Configuration) -> None:
    scene = Scene(config)
    client = scene.connect("app-1")
    client.subscribe("t")
    client.room = 0
    flood(scene, 1, 10)
    flood(scene, 1, 10)
    scene.advance(1)
    assert reason(client, "t") is Wait.SOCKET


@pytest.mark.parametrize("config", [Configuration(), linked()])
def test_a_client_that_is_away(config: Configuration) -> None:
    scene = Scene(config)
    client = scene.connect("app-1", properties=lasting())
    client.subscribe("t", 1)
    client.room = 0
    flood(scene, 3, 10, 1)
    client.drop()
    flood(scene, 3, 10, 1)
    assert reason(client, "t") is Wait.OFFLINE


@pytest.mark.parametrize("config", [Configuration(), linked()])
def test_a_commit(config: Configuration) -> None:
    scene = Scene(config, journal=SlowJournal())
    client = scene.connect("app-1", properties=lasting())
    client.subscribe("t", 2)
    scene.commit()
    flood(scene, 3, 10, 2)
    assert reason(client, "t") is Wait.COMMIT
    assert client.payloads() == []
    scene.commit()
    scene.advance(1)
    assert len(client.payloads()) == 3


# Change


def test_a_policy_sorts_what_waits_on_the_link() -> None:
    scene = Scene(
        linked(RATE, PolicyRule(topic="a", priority=1), PolicyRule(topic="b", priority=2))
    )
    one, other = scene.connect("app-a"), scene.connect("app-b")
    one.subscribe("a")
    other.subscribe("b")
    flood(scene, 50, 1000, topic="a")
    flood(scene, 50, 1000, topic="b")
    scene.advance(0.1)
    assert (len(one.payloads()) > 5, other.payloads()) == (True, [])
    policy = {"version": 1, "rules": [{"topic": "b", "priority": 0}]}
    scene.connect("admin").publish("$CONTROL/headgate/policy", json.dumps(policy).encode(), 1)
    scene.advance(0.1)
    assert len(one.payloads()) <= 1
    assert len(other.payloads()) > 5
    scene.advance(10)
    assert the_link(scene).waiting == the_link(scene).queued == 0


def test_a_new_rate_holds_at_once() -> None:
    scene = Scene(linked(RATE))
    client = scene.connect("app-1")
    client.subscribe("t")
    flood(scene, 600, 1000)
    scene.advance(1)
    slow = len(client.payloads())
    scene.broker.reconfigure(linked(4 * RATE), scene.now)
    scene.advance(1)
    fast = len(client.payloads())
    assert 3.5 * slow < fast < 4.5 * slow


def test_a_link_that_is_no_more_lets_go() -> None:
    scene = Scene(linked(RATE))
    client = scene.connect("app-1")
    client.subscribe("t")
    flood(scene, 100, 1000)
    scene.broker.reconfigure(Configuration(), scene.now)
    scene.turn()
    assert len(client.payloads()) == 100
    assert client.flow("t").fast


def test_expiry_while_waiting_for_the_pace() -> None:
    scene = Scene(linked(RATE, PolicyRule(lifetime=0.25)))
    client = scene.connect("app-1")
    client.subscribe("t")
    flood(scene, 100, 1000)
    scene.advance(5)
    got = len(client.payloads())
    assert drops(client.flow("t")) == {Drop.EXPIRED: 100 - got}
    assert abs(got - the_link(scene).rate * 0.25 / cost(1007)) <= 5


def test_queue_limits_hold_on_a_link() -> None:
    scene = Scene(linked(RATE, limits=Limits(queued_messages=20)))
    client = scene.connect("app-1")
    client.subscribe("t")
    flood(scene, 100, 1000)
    assert client.session.queued_messages <= 20
    scene.advance(5)
    assert len(client.payloads()) + client.flow("t").drops[Drop.CAPACITY] == 100


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_bytes_counted_are_bytes_sent(version: Version) -> None:
    scene = Scene(linked())
    client = scene.connect("app-1", version)
    client.subscribe("t")
    client.arrivals.clear()
    before = the_link(scene).sent
    flood(scene, 20, 1000)
    scene.advance(5)
    size = len(encode(Publish("t", bytes(1000)), version))
    assert client.received_size() == 20 * size == client.flow("t").sent_bytes
    assert the_link(scene).sent - before == 20 * cost(size)


def test_a_client_that_is_moved_to_a_link_does_not_give_it_a_second_timer() -> None:
    def clients(*names: str) -> Configuration:
        spec = LinkSpec(name="slow", clients=names, rate=RATE)
        other = LinkSpec(name="other", clients=("app-*",), rate=RATE)
        return Configuration(links=(spec, other))

    scene = Scene(clients("app-1"))
    for name in ("app-1", "app-2", "app-3"):
        scene.connect(name).subscribe("t")
    flood(scene, 100, 1000)
    scene.advance(0.1)
    slow, other = scene.broker.links
    assert slow.scheduled
    assert other.scheduled
    before = alarms(scene)
    scene.broker.reconfigure(clients("app-1", "app-2", "app-3"), scene.now)
    scene.turn()
    assert len(slow.members) == 3
    assert alarms(scene) == before
    scene.advance(10)
    assert slow.waiting == slow.queued == 0


def alarms(scene: Scene) -> int:
    return sum(alarm.call is not None for _, _, alarm in scene.broker.timers.heap)
