"""Retained messages for a new subscription: all of them, in order, and nobody waits for it."""

from __future__ import annotations

from typing import Any

import pytest
from durability.peer import Publisher, Subscriber
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.config import Configuration, Overflow
from headgate.config.limits import Limits
from headgate.core.link import SLICE
from headgate.core.message import Message
from headgate.core.session import NEVER
from headgate.wire.packets import Publish, Subscribe, SubscriptionOptions, Unsubscribe

from .stage import Stage

MANY = 3000


def stage(retained: int = 0, **limits: Any) -> Stage:
    """A broker that retains so many messages of QoS 2, below `t/`."""
    on = Stage(Configuration(limits=Limits(**limits)))
    for number in range(retained):
        message = Message(b"t/%d/%d" % (number % 7, number), b"%d" % number, b"", 2)
        message.retain = True
        on.broker.retain(message)
    on.commit()
    return on


def run(on: Stage) -> None:
    """Until nothing is left to say, to commit or to wait for."""
    for _ in range(10_000):
        on.now += 0.001
        on.broker.timers.run(on.now)
        on.turn()
        if on.uncommitted:
            on.commit()
        elif not on.broker.pool.resting:
            return
    raise AssertionError("the replay does not end")


def subscriber(on: Stage, name: str = "reader", expiry: int = NEVER) -> Subscriber:
    client = Subscriber(name, expiry=expiry)
    on.connect(client)
    on.turn()
    return client


def subscribe(on: Stage, client: Subscriber, *filters: str, qos: int = 0) -> None:
    client.send(Subscribe(1, [(one, SubscriptionOptions(qos)) for one in filters]))
    on.turn()


def publisher(on: Stage) -> Publisher:
    client = Publisher("writer", expiry=0, window=1000)
    on.connect(client)
    on.turn()
    return client


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_small_queue_gets_everything_that_is_retained(qos: int) -> None:
    on = stage(MANY, queued_messages=5, inflight=10)
    client = subscriber(on)
    subscribe(on, client, "t/#", qos=qos)
    run(on)
    got = [int(message.payload) for message in client.messages]
    assert sorted(got) == list(range(MANY))
    assert all(message.retain and message.qos == qos for message in client.messages)


def test_a_replay_stops_after_a_slice_of_work() -> None:
    on = stage(MANY)
    client = subscriber(on)
    before = on.broker.pool.steps
    for _ in range(50):
        client.send(Subscribe(1, [("t/#", SubscriptionOptions(0))]))
    wire = on.wires["reader"]
    wire.channel.receive(client.speak(), on.now)
    assert before == SLICE
    assert sum(len(piece) > 4 for piece in wire.channel.outlet.pieces) <= SLICE + 50
    assert on.broker.pool.size == 0  # nothing is queued
    run(on)
    assert {int(message.payload) for message in client.messages} == set(range(MANY))


def test_a_filter_that_matches_little_rests_too() -> None:
    on = stage(MANY)
    client = subscriber(on)
    client.send(
        Subscribe(1, [("t/+/2999", SubscriptionOptions(0)), ("+/+/0", SubscriptionOptions(0))])
    )
    run(on)
    assert [message.topic for message in client.messages] == ["t/3/2999", "t/0/0"]


def test_live_messages_do_not_wait_for_a_replay() -> None:
    on = stage(MANY)
    client = subscriber(on)
    other = publisher(on)
    client.send(Subscribe(1, [("t/#", SubscriptionOptions(0))]))
    wire = on.wires["reader"]
    wire.channel.receive(client.speak(), on.now)
    assert on.broker.pool.resting
    other.send(Publish("t/new", b"-1", 0))
    on.turn()
    place = [message.payload for message in client.messages].index(b"-1")
    assert place < MANY / 2
    run(on)
    assert len(client.messages) == MANY + 1


def test_the_older_state_of_a_topic_comes_before_a_live_message() -> None:
    on = stage(MANY)
    client = subscriber(on)
    other = publisher(on)
    client.send(Subscribe(1, [("t/#", SubscriptionOptions(0))]))
    on.wires["reader"].channel.receive(client.speak(), on.now)
    other.send(Publish("t/6/2995", b"live", 0))
    run(on)
    assert [m.payload for m in client.messages if m.topic == "t/6/2995"] == [b"2995", b"live"]


def test_what_changes_during_a_replay_comes_once() -> None:
    on = stage(MANY)
    client = subscriber(on)
    other = publisher(on)
    client.send(Subscribe(1, [("t/#", SubscriptionOptions(0))]))
    on.wires["reader"].channel.receive(client.speak(), on.now)
    other.send(Publish("t/6/2995", b"new", 0, retain=True))
    other.send(Publish("t/6/2988", b"", 0, retain=True))
    run(on)
    assert [m.payload for m in client.messages if m.topic == "t/6/2995"] == [b"new"]
    assert [m.payload for m in client.messages if m.topic == "t/6/2988"] == [b""]


def test_unsubscribing_ends_a_replay() -> None:
    on = stage(MANY)
    client = subscriber(on)
    client.send(Subscribe(1, [("t/#", SubscriptionOptions(0))]))
    client.send(Unsubscribe(2, ["t/#"]))
    run(on)
    assert len(client.messages) <= SLICE


@pytest.mark.parametrize("crash", [False, True])
def test_a_session_that_lasts_gets_the_rest_when_its_client_returns(crash: bool) -> None:
    on = stage(MANY, inflight=10)
    client = subscriber(on)
    subscribe(on, client, "t/#", qos=1)
    on.commit()
    if crash:
        on.crash()
    else:
        on.lose(client)
    on.connect(client)
    run(on)
    got = [int(message.payload) for message in client.messages if not message.dup]
    assert set(got) == set(range(MANY))
    assert crash or len(got) <= MANY + 10


def test_quota_is_told_and_counted() -> None:
    """Half of the memory is for retained messages; who can be told gets 0x97."""
    on = stage(memory=100_000)
    other = publisher(on)
    for number in range(8):
        other.publish(f"big/{number}", bytes(10_000), 1, True)
        run(on)
    assert on.broker.retained.count == 4
    assert on.broker.counters.messages_refused == 4
    assert 40_000 < on.broker.pool.retained <= 50_000


def test_bytes_in_flight_are_counted() -> None:
    on = stage(MANY, inflight=10)
    client = subscriber(on)
    client.holding = True
    subscribe(on, client, "t/#", qos=1)
    assert on.broker.pool.unacknowledged > 0
    client.holding = False
    run(on)
    on.turn()
    assert on.broker.pool.unacknowledged == 0


@pytest.mark.parametrize("overflow", list(Overflow))
def test_as_much_of_a_run_is_kept_as_the_limit_allows(overflow: Overflow) -> None:
    on = Stage(Configuration(limits=Limits(queued_messages=10), overflow=overflow))
    client = subscriber(on)
    subscribe(on, client, "live")
    wire = on.wires["reader"]
    wire.stalled = True
    wire.flush()
    other = publisher(on)
    for start in (0, 50):
        for number in range(start, start + 50):
            other.send(Publish("live", b"%d" % number, 0))
        on.turn()
    wire.stalled = False
    wire.flush()
    run(on)
    kept = range(90, 100) if overflow is Overflow.OLDEST else range(10)
    assert [int(message.payload) for message in client.messages] == list(kept)


TOPICS = [f"s/{number % 3}/{number}" for number in range(12)]
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("retain"), st.sampled_from(TOPICS)),
        st.tuples(st.just("remove"), st.sampled_from(TOPICS)),
        st.tuples(st.just("live"), st.sampled_from(TOPICS)),
        st.tuples(st.just("drain"), st.just("")),
        st.tuples(st.just("stall"), st.just("")),
        st.tuples(st.just("leave"), st.just("")),
        st.tuples(st.just("step"), st.just("")),
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(first=st.sets(st.sampled_from(TOPICS)), actions=ACTIONS, window=st.sampled_from([1, 3, 50]))
def test_any_interleaving_ends_with_the_latest_state(
    first: set[str], actions: list[tuple[str, str]], window: int
) -> None:
    """Numbers of a topic never fall, none comes twice, and the last one is the newest."""
    on = stage(inflight=window)
    other = publisher(on)
    count = 0
    newest: dict[str, int] = {}

    def send(topic: str, retain: bool) -> None:
        nonlocal count
        count += 1
        newest[topic] = count
        other.publish(topic, b"%d" % count, 1, retain)
        on.turn()

    for topic in sorted(first):
        send(topic, True)
    on.commit()
    client = subscriber(on)
    on.broker.pool.steps = 2.0  # a replay rests after every other topic
    on.broker.pool.stepped = on.now + 1000.0
    client.send(Subscribe(1, [("s/#", SubscriptionOptions(1))]))
    on.turn()
    on.commit()
    removed: set[str] = set()
    for what, topic in actions:
        wire = on.wires.get("reader")
        if what in ("retain", "live"):
            send(topic, what == "retain")
            removed.discard(topic)
        elif what == "remove":
            other.send(Publish(topic, b"", 0, retain=True))
            on.turn()
            removed.add(topic)
        elif what == "step":
            on.broker.pool.steps = 2.0
            on.now += 0.01
            on.broker.timers.run(on.now)
            on.turn()
        elif what == "leave":
            if wire is not None:
                on.lose(client)
            on.connect(client)
            on.turn()
        elif wire is not None:
            wire.stalled = what == "stall"
            wire.flush()
            on.turn()
        on.commit()
    wire = on.wires["reader"]
    wire.stalled = False
    wire.flush()
    on.broker.pool.stepped = on.now
    run(on)
    for topic in TOPICS:
        got = [int(m.payload) for m in client.messages if m.topic == topic and m.payload]
        fresh = [number for number, before in zip(got, [0, *got], strict=False) if number != before]
        assert fresh == sorted(set(fresh)), f"{topic}: {got}"
        if topic in newest and topic not in removed:
            assert got[-1] == newest[topic]
