"""Retained messages for a new subscription: all of them, in order, and nobody waits for it."""

from __future__ import annotations

from typing import Any

import pytest
from durability.peer import Publisher, Subscriber
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.config import Configuration, Overflow
from headgate.config.limits import Limits
from headgate.contract import LinkSpec, PolicyRule
from headgate.core.link import HEADERS, SEGMENT, SLICE
from headgate.core.message import Message
from headgate.core.session import NEVER
from headgate.wire.packets import (
    Properties,
    Publish,
    Subscribe,
    SubscriptionOptions,
    Unsubscribe,
)

from .stage import Stage

MANY = 3000


def stage(retained: int = 0, **limits: Any) -> Stage:
    """A broker that retains so many messages of QoS 2, below `t/`."""
    on = Stage(Configuration(limits=Limits(**limits)))
    for number in range(retained):
        message = Message(b"t/%d/%d" % (number % 7, number), b"%d" % number, b"", 2)
        message.retain = True
        message.arrived = on.now
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
    on.commit()  # CONNACK waits for it
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


def test_what_was_cleared_leaves_nothing_behind_while_a_replay_stands_still() -> None:
    """Topics that come and go are not held by a cursor that does not move."""
    on = stage(MANY)
    client = subscriber(on)
    client.send(Subscribe(1, [("t/#", SubscriptionOptions(0))]))
    on.wires["reader"].channel.receive(client.speak(), on.now)
    flow = on.broker.sessions["reader"].flows["t/#"]
    here = flow.replay.cursor.leaf
    topics = [b"t/%d/%d" % (number % 7, number) for number in range(MANY)]
    for topic in topics:
        on.broker.forget_retained(topic)
    assert on.broker.retained.count == 0
    assert here.next is None
    run(on)
    assert on.broker.retained.root.children == {}
    assert on.broker.retained.root.first is None


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_urgent_message_is_not_followed_by_an_older_state(qos: int) -> None:
    """It overtakes what waits: a state that would have to wait is not sent at all."""
    on = stage(MANY)
    client = subscriber(on)
    other = publisher(on)
    wire = on.wires["reader"]
    client.send(Subscribe(1, [("t/#", SubscriptionOptions(qos))]))
    wire.channel.receive(client.speak(), on.now)
    wire.stalled = True
    wire.flush()
    other.publish("$urgent/t/6/2995", b"urgent", qos or 1)
    on.turn()
    wire.stalled = False
    wire.flush()
    run(on)
    assert [m.payload for m in client.messages if m.topic == "t/6/2995"] == [b"urgent"]
    assert len({m.topic for m in client.messages}) == MANY


@pytest.mark.parametrize("overflow", list(Overflow))
def test_a_state_that_overflows_during_a_replay_comes_at_its_end(overflow: Overflow) -> None:
    config = Configuration(limits=Limits(queued_messages=2), overflow=overflow)
    on = Stage(config)
    for number in range(MANY):
        message = Message(b"t/%d" % number, b"0", b"", 1)
        message.retain = True
        message.arrived = on.now
        on.broker.retain(message)
    on.commit()
    client = subscriber(on)
    other = publisher(on)
    wire = on.wires["reader"]
    client.send(Subscribe(1, [("t/#", SubscriptionOptions(1))]))
    wire.channel.receive(client.speak(), on.now)
    wire.stalled = True
    wire.flush()
    for number in range(MANY - 20, MANY):
        other.publish(f"t/{number}", b"1", 1, True)
    on.turn()
    on.commit()
    assert sum(on.broker.sessions["reader"].flows["t/#"].drops) == 18
    wire.stalled = False
    wire.flush()
    run(on)
    got = {message.topic: message.payload for message in client.messages}
    assert len(client.messages) == len(got) == MANY
    assert all(got[f"t/{number}"] == b"1" for number in range(MANY - 20, MANY))


def test_a_replay_waits_for_what_waited_before_it() -> None:
    on = stage()
    client = subscriber(on)
    other = publisher(on)
    subscribe(on, client, "t", qos=1)
    wire = on.wires["reader"]
    wire.stalled = True
    wire.flush()
    for number in range(3):
        other.publish("t", b"%d" % number, 1, True)
    on.turn()
    on.commit()
    subscribe(on, client, "t", qos=1)
    wire.stalled = False
    wire.flush()
    run(on)
    assert [(m.payload, m.retain) for m in client.messages] == [
        (b"0", False),
        (b"1", False),
        (b"2", False),
        (b"2", True),
    ]


def test_a_suback_promises_the_replay_too() -> None:
    """The client has its SUBACK, and the broker crashes: what is retained is still owed."""
    on = stage(MANY, inflight=10)
    client = subscriber(on)
    client.send(Subscribe(1, [("t/#", SubscriptionOptions(1))]))
    on.wires["reader"].channel.receive(client.speak(), on.now)
    assert client.granted is None
    while client.granted is None:  # commits one change at a time
        on.journal.durable += 1
        on.broker.committed(on.journal.durable, on.now)
        on._write()
    on.crash()
    on.connect(client)
    run(on)
    assert {int(message.payload) for message in client.messages} == set(range(MANY))


@pytest.mark.parametrize("qos", [1, 2])
def test_after_a_crash_no_older_state_follows_what_waited(qos: int) -> None:
    on = stage(MANY, inflight=10)
    client = subscriber(on)
    other = publisher(on)
    client.holding = True
    subscribe(on, client, "t/#", qos=qos)
    other.publish("t/6/2995", b"live", 2)
    on.turn()
    on.commit()
    on.crash()
    client.holding = False
    on.connect(client)
    run(on)
    got = [m.payload for m in client.messages if m.topic == "t/6/2995"]
    assert got == [b"2995", b"live"]


def test_a_replay_keeps_the_pace_of_its_link() -> None:
    """Ten kilobytes a second; what is live and more important overtakes it."""
    on = Stage(
        Configuration(
            links=(LinkSpec(name="slow", clients=("reader",), rate=80e3),),
            policy=(PolicyRule(topic="#", priority=3), PolicyRule(topic="alarm", priority=0)),
        )
    )
    for number in range(200):
        message = Message(b"t/%d" % number, bytes(100), b"", 1)
        message.retain = True
        message.arrived = on.now
        on.broker.retain(message)
    on.commit()
    client = subscriber(on)
    other = publisher(on)
    began = on.now
    client.send(Subscribe(1, [("t/#", SubscriptionOptions(0)), ("alarm", SubscriptionOptions(0))]))
    on.turn()
    assert len(client.messages) < 50
    other.send(Publish("alarm", b"", 0))
    on.turn()
    while len(client.messages) < 201:
        on.now += 0.01
        on.broker.timers.run(on.now)
        on.broker.pace(on.now)
        on.turn()
        assert on.now < began + 60, len(client.messages)
    place = [message.topic for message in client.messages].index("alarm")
    assert place < 50
    sent = 200 * (100 + 10 + HEADERS) - 2 * (SEGMENT + HEADERS)  # a burst goes at once
    assert on.now - began == pytest.approx(sent / 10e3, rel=0.1)


def test_figures_of_the_broker_are_replayed() -> None:
    on = stage(3)
    for number in range(2000):
        on.broker.publish(f"$SYS/figure/{number}", b"1", True, on.now)
    client = subscriber(on)
    subscribe(on, client, "$SYS/#", "#", "+/figure/1")
    run(on)
    topics = [message.topic for message in client.messages]
    assert sorted(topics) == sorted(
        [f"$SYS/figure/{number}" for number in range(2000)] + [f"t/{n}/{n}" for n in range(3)]
    )


def test_access_is_judged_topic_by_topic_where_a_rule_denies_a_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on = stage(MANY)
    gate = on.broker.gatekeeper
    monkeypatch.setattr(gate, "may_receive_all", lambda *asked: False)
    monkeypatch.setattr(gate, "may_receive", lambda who, client_id, topic: topic[2] != "6")
    client = subscriber(on)
    subscribe(on, client, "t/#")
    run(on)
    assert {message.topic[2] for message in client.messages} == set("012345")


def test_a_rule_that_comes_during_a_replay_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    on = stage(MANY)
    client = subscriber(on)
    client.send(Subscribe(1, [("t/#", SubscriptionOptions(0))]))
    on.wires["reader"].channel.receive(client.speak(), on.now)
    monkeypatch.setattr(on.broker.gatekeeper, "may_receive_all", lambda *asked: False)
    monkeypatch.setattr(on.broker.gatekeeper, "may_receive", lambda *asked: False)
    on.broker.access_changed()
    run(on)
    assert 0 < len(client.messages) <= SLICE


TOPICS = [f"s/{number % 3}/{number}" for number in range(12)]
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("retain"), st.sampled_from(TOPICS)),
        st.tuples(st.just("remove"), st.sampled_from(TOPICS)),
        st.tuples(st.just("live"), st.sampled_from(TOPICS)),
        st.tuples(st.just("drain"), st.just("")),
        st.tuples(st.just("stall"), st.just("")),
        st.tuples(st.just("leave"), st.just("")),
        st.tuples(st.just("again"), st.just("")),
        st.tuples(st.just("step"), st.just("")),
    ),
    max_size=30,
)


class Play:
    """A subscriber of overlapping filters, a publisher, and what each subscription is owed."""

    def __init__(self, window: int, qos: int, filters: list[str]) -> None:
        self.on = stage(inflight=window)
        self.other = publisher(self.on)
        self.qos = qos
        self.filters = filters
        self.count = 0
        self.retained: dict[str, int] = {}
        self.newest: dict[str, int] = {}
        self.live: list[tuple[str, int]] = []
        """What was published since the first SUBSCRIBE."""

    def publish(self, topic: str, retain: bool) -> None:
        self.count += 1
        self.newest[topic] = self.count
        if retain:
            self.retained[topic] = self.count
        self.live.append((topic, self.count))
        self.other.publish(topic, b"%d" % self.count, 2, retain)
        self.on.turn()

    def begin(self) -> None:
        self.client = subscriber(self.on)
        self.on.broker.pool.steps = 2.0  # a replay rests after every other topic
        self.on.broker.pool.stepped = self.on.now + 1000.0
        self.before = dict(self.retained)
        self.live.clear()
        self.subscribe()
        self.on.commit()

    def subscribe(self) -> None:
        for number, one in enumerate(self.filters, 1):
            properties = Properties(subscription_identifiers=[number])
            options = SubscriptionOptions(self.qos)
            self.client.send(Subscribe(number, [(one, options)], properties))
        self.on.turn()

    def act(self, what: str, topic: str) -> None:
        on = self.on
        wire = on.wires["reader"]
        if what in ("retain", "live"):
            self.publish(topic, what == "retain")
        elif what == "remove":
            self.retained.pop(topic, None)
            self.other.send(Publish(topic, b"", 0, retain=True))
            on.turn()
        elif what == "step":
            on.broker.pool.steps = 2.0
            on.now += 0.01
            on.broker.timers.run(on.now)
            on.turn()
        elif what == "leave":
            on.lose(self.client)
            on.connect(self.client)
            on.turn()
        elif what == "again":
            self.subscribe()
        else:
            wire.stalled = what == "stall"
            wire.flush()
            on.turn()
        on.commit()

    def end(self) -> None:
        wire = self.on.wires["reader"]
        wire.stalled = False
        wire.flush()
        self.on.broker.pool.stepped = self.on.now
        run(self.on)

    def got(self, number: int, topic: str) -> list[tuple[int, bool]]:
        """What came of a topic by one subscription, without what was sent again by QoS 1."""
        came: list[tuple[int, bool]] = []
        for m in self.client.messages:
            if m.properties.subscription_identifiers == [number] and m.topic == topic and m.payload:
                one = (int(m.payload), m.retain)
                if not (m.dup and one in came):
                    came.append(one)
        return came


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    first=st.sets(st.sampled_from(TOPICS)),
    actions=ACTIONS,
    window=st.sampled_from([1, 3, 50]),
    qos=st.sampled_from([0, 1, 2]),
    filters=st.sampled_from([["s/#"], ["s/#", "s/1/+"]]),
)
def test_any_interleaving_brings_everything_once_and_in_order(
    first: set[str], actions: list[tuple[str, str]], window: int, qos: int, filters: list[str]
) -> None:
    """Live messages come once and in order. What was retained comes before what is newer; once,
    unless the client asked again; and always, unless it was replaced or removed in time.
    """
    play = Play(window, qos, filters)
    for topic in sorted(first):
        play.publish(topic, True)
    play.on.commit()
    play.begin()
    for what, topic in actions:
        play.act(what, topic)
    play.end()
    done = [what for what, _ in actions]
    replaced = {topic for what, topic in actions if what in ("retain", "remove")}
    lossy = qos == 0 and "leave" in done  # QoS 0 ends with the connection
    for number in range(1, len(filters) + 1):
        for topic in TOPICS if number == 1 else [one for one in TOPICS if one[2] == "1"]:
            came = play.got(number, topic)
            numbers = [one for one, _ in came]
            live = [one for one, retain in came if not retain]
            sent = [one for name, one in play.live if name == topic]
            assert live == sorted(set(live)), f"{topic}: {came}"
            assert set(live) <= set(sent)
            if not lossy:
                assert live == sent, f"{topic}: {came} of {sent}"
            if "again" not in done:
                assert numbers == sorted(set(numbers)), f"{topic}: {came}"
                if topic in play.before and topic not in replaced and not lossy:
                    assert came[0] == (play.before[topic], True), f"{topic}: {came}"
            elif not lossy and topic in play.retained:
                assert numbers[-1] in (play.newest[topic], play.retained[topic])
                assert play.retained[topic] in numbers
