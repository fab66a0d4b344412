"""When there is no room: the least important goes first and is counted, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from durability.peer import Publisher, Subscriber

from headgate.config import Configuration, Overflow
from headgate.config.limits import Limits
from headgate.contract import PolicyRule
from headgate.core.link import MESSAGE
from headgate.core.message import Message
from headgate.core.reasons import Drop
from headgate.core.session import NEVER
from headgate.core.statistics import Statistics
from headgate.wire.packets import (
    Properties,
    Publish,
    Subscribe,
    SubscriptionOptions,
)

from .stage import Memory, Stage

POLICY = (PolicyRule(topic="low/#", priority=9), PolicyRule(topic="high/#", priority=1))
PAYLOAD = 1000


def stage(overflow: Overflow = Overflow.OLDEST, **limits: Any) -> Stage:
    return Stage(Configuration(limits=Limits(**limits), overflow=overflow, policy=POLICY))


def stalled(on: Stage, name: str, *filters: str, qos: int = 0) -> Subscriber:
    """A client that subscribed and then stopped reading."""
    client = Subscriber(name, expiry=NEVER)
    wire = on.connect(client)
    on.turn()
    client.send(Subscribe(1, [(one, SubscriptionOptions(qos)) for one in filters]))
    on.turn()
    while on.uncommitted:
        on.commit()
    assert client.granted == [qos] * len(filters)
    wire.stalled = True
    wire.flush()
    return client


def publisher(on: Stage, name: str = "publisher") -> Publisher:
    client = Publisher(name, expiry=0, window=1000)
    on.connect(client)
    on.turn()
    return client


def send(
    on: Stage, client: Publisher, topic: str, count: int, qos: int = 0, claim: str = ""
) -> None:
    """Messages that begin with their number."""
    properties = Properties(user_properties=[("class", claim)] if claim else [])
    for number in range(count):
        payload = b"%d " % number
        payload += b"x" * (PAYLOAD - len(payload))
        if qos:
            client.publish(topic, payload, qos)
        else:
            client.send(Publish(topic, payload, properties=properties))
        on.turn()  # each in a read of its own


def read(on: Stage, client: Subscriber) -> dict[str, list[int]]:
    """Let a client read all that waits for it: numbers by topic."""
    wire = on.wires[client.client_id]
    wire.stalled = False
    wire.flush()
    on.turn()
    while on.uncommitted:
        on.commit()
    numbers: dict[str, list[int]] = {}
    for message in client.messages:
        numbers.setdefault(message.topic, []).append(int(message.payload.split()[0]))
    return numbers


def dropped(on: Stage) -> dict[Drop, int]:
    """As `$SYS/headgate/dropped/…` tells it."""
    values = dict(Statistics(on.broker, on.now).values(on.now))
    counts = {
        reason: int(values[f"$SYS/headgate/dropped/{reason.name.lower()}"]) for reason in Drop
    }
    assert int(values["$SYS/broker/publish/messages/dropped"]) == sum(counts.values())
    return {reason: count for reason, count in counts.items() if count}


def test_a_full_queue_gives_up_its_oldest() -> None:
    on = stage(queued_messages=10)
    client = stalled(on, "slow", "t")
    send(on, publisher(on), "t", 25)
    assert dropped(on) == {Drop.CAPACITY: 15}
    assert read(on, client) == {"t": list(range(15, 25))}


def test_or_its_newest() -> None:
    on = stage(Overflow.NEWEST, queued_messages=10)
    client = stalled(on, "slow", "t")
    send(on, publisher(on), "t", 25)
    assert dropped(on) == {Drop.CAPACITY: 15}
    assert read(on, client) == {"t": list(range(10))}


def test_bytes_are_a_limit_too() -> None:
    on = stage(queued_bytes=10 * PAYLOAD)
    client = stalled(on, "slow", "t")
    send(on, publisher(on), "t", 25)
    assert on.broker.sessions["slow"].queued_size <= 10 * PAYLOAD
    assert dropped(on) == {Drop.CAPACITY: 16}  # a topic takes room as well
    assert read(on, client) == {"t": list(range(16, 25))}


@pytest.mark.parametrize("overflow", Overflow)
def test_the_lowest_priority_makes_room_for_a_higher_one(overflow: Overflow) -> None:
    on = stage(overflow, queued_messages=10)
    client = stalled(on, "slow", "low/t", "high/t")
    device = publisher(on)
    send(on, device, "low/t", 10)
    send(on, device, "high/t", 7)
    assert read(on, client) == {"low/t": [7, 8, 9], "high/t": list(range(7))}
    assert dropped(on) == {Drop.CAPACITY: 7}


@pytest.mark.parametrize("overflow", Overflow)
def test_a_low_priority_finds_no_room_among_higher_ones(overflow: Overflow) -> None:
    on = stage(overflow, queued_messages=10)
    client = stalled(on, "slow", "low/t", "high/t")
    device = publisher(on)
    send(on, device, "high/t", 10)
    send(on, device, "low/t", 5)
    assert read(on, client) == {"high/t": list(range(10))}
    assert dropped(on) == {Drop.CAPACITY: 5}


def test_urgent_and_critical_outlive_every_priority() -> None:
    on = stage(queued_messages=10)
    client = stalled(on, "slow", "#")
    device = publisher(on)
    send(on, device, "high/t", 10)
    send(on, device, "alarm", 3, claim="urgent")
    send(on, device, "state", 3, claim="critical")
    assert read(on, client) == {
        "alarm": [0, 1, 2],
        "state": [0, 1, 2],
        "high/t": [6, 7, 8, 9],
    }
    assert dropped(on) == {Drop.CAPACITY: 6}
    first = [message.topic for message in client.messages]
    assert first == ["alarm"] * 3 + ["state"] * 3 + ["high/t"] * 4


def test_memory_is_shared_and_the_least_important_client_pays() -> None:
    on = stage(memory=20 * (PAYLOAD + MESSAGE))
    poor = stalled(on, "poor", "low/t")
    rich = stalled(on, "rich", "high/t")
    device = publisher(on)
    send(on, device, "low/t", 15)
    send(on, device, "high/t", 15)
    assert on.broker.pool.size <= 20 * (PAYLOAD + MESSAGE)
    counts = dropped(on)
    assert counts.keys() == {Drop.MEMORY}
    assert read(on, rich) == {"high/t": list(range(15))}
    left = read(on, poor)["low/t"]
    assert left == list(range(15 - len(left), 15))
    assert counts[Drop.MEMORY] == 15 - len(left) > 0


@pytest.mark.parametrize("limit", ["queued_bytes", "memory"])
def test_what_can_never_fit_pushes_nothing_out(limit: str) -> None:
    on = stage(Overflow.OLDEST, **{limit: 10 * (PAYLOAD + MESSAGE)})
    client = stalled(on, "slow", "t")
    device = publisher(on)
    send(on, device, "t", 5)
    device.send(Publish("t", b"x" * 11 * (PAYLOAD + MESSAGE)))
    on.turn()
    assert sum(dropped(on).values()) == 1
    assert read(on, client) == {"t": list(range(5))}


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_dropped_for_a_client_that_is_away_leaves_the_disk_too(qos: int) -> None:
    on = stage(queued_messages=10)
    client = stalled(on, "away", "t", qos=qos)
    on.lose(client)
    send(on, publisher(on), "t", 25, qos)
    while on.uncommitted:
        on.commit()
    kept = Memory(on.journal.survivors())
    assert len(kept.deliveries) == len(kept.messages) == 10
    assert dropped(on) == {Drop.CAPACITY: 15}
    on.crash()
    on.connect(client)
    assert read(on, client) == {"t": list(range(15, 25))}
    assert not Memory(on.journal.survivors()).messages


def test_a_window_that_stays_full_is_bounded_as_well() -> None:
    """A client that reads and never acknowledges: in flight is its window, the rest waits."""
    on = stage(queued_messages=10, inflight=5)
    client = stalled(on, "silent", "t", qos=1)
    client.holding = True
    on.wires["silent"].stalled = False
    on.wires["silent"].flush()
    send(on, publisher(on), "t", 30, qos=1)
    assert len(client.messages) == 5
    assert on.broker.sessions["silent"].queued_messages == 10
    assert dropped(on) == {Drop.CAPACITY: 15}
    client.holding = False
    assert read(on, client) == {"t": [*range(5), *range(20, 30)]}


def test_bytes_in_flight_are_bounded_too() -> None:
    """A client that reads large messages and never acknowledges them keeps them in our memory."""
    on = stage(queued_bytes=20 * PAYLOAD)
    client = stalled(on, "silent", "t", qos=1)
    client.holding = True
    on.wires["silent"].stalled = False
    on.wires["silent"].flush()
    send(on, publisher(on), "t", 100, qos=1)
    session = on.broker.sessions["silent"]
    in_flight = sum(one.message.size + MESSAGE for one in session.inflight.values())
    assert 10 * PAYLOAD < in_flight <= 20 * PAYLOAD
    assert session.unacknowledged == in_flight
    assert dropped(on) == {Drop.CAPACITY: 100 - len(session.inflight) - session.queued_messages}
    client.holding = False
    got = read(on, client)["t"]
    assert got == sorted(got)
    assert len(got) == 30  # as much as fits in flight, and as much as fits into the queue
    assert (on.broker.pool.size, session.queued_size, session.unacknowledged) == (0, 0, 0)


def held(on: Stage) -> int:
    """What counts, added up anew from what is there."""
    broker = on.broker
    found = broker.pool.burden() + broker.pool.retained
    for session in broker.sessions.values():
        for lane in session.waiting:
            found += sum(d.message.size + MESSAGE * d.message.count for d in lane.items)
        found += sum(d.message.size + MESSAGE for d in session.inflight.values() if d.sent)
    return found


def test_what_is_in_flight_to_all_together_is_bounded() -> None:
    """Readers that never acknowledge, each within its own bounds: what is held has an end."""
    limit = 50 * (PAYLOAD + MESSAGE)
    on = stage(memory=limit)
    silent = []
    for number in range(10):
        client = stalled(on, f"silent-{number}", "t", qos=1)
        client.holding = True
        on.wires[client.client_id].stalled = False
        on.wires[client.client_id].flush()
        silent.append(client)
    send(on, publisher(on), "t", 30, qos=1)
    assert on.broker.pool.held == held(on) <= limit
    assert on.broker.pool.unacknowledged <= limit // 2
    assert dropped(on) == {Drop.MEMORY: 300 - limit // (PAYLOAD + len("t") + MESSAGE)}


def test_who_acknowledges_goes_on_though_others_hold_all_the_memory() -> None:
    on = stage(memory=20 * (PAYLOAD + MESSAGE))
    silent = stalled(on, "silent", "t", qos=1)
    silent.holding = True
    on.wires["silent"].stalled = False
    on.wires["silent"].flush()
    device = publisher(on)
    send(on, device, "t", 100, qos=1)
    on.lose(silent)  # for good, and its session stays
    reader = stalled(on, "reader", "u", qos=1)
    on.wires["reader"].stalled = False
    on.wires["reader"].flush()
    send(on, device, "u", 50, qos=1)
    assert read(on, reader) == {"u": list(range(50))}


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_retained_takes_the_place_of_what_waits(qos: int) -> None:
    """Queues may fill the memory, and retained messages half of it: not one and a half in all."""
    limit = 40 * (PAYLOAD + MESSAGE)
    on = stage(memory=limit)
    stalled(on, "slow", "low/t", qos=1)
    device = publisher(on)
    send(on, device, "low/t", 100, qos=1)
    assert on.broker.pool.held > 0.9 * limit
    for number in range(100):
        device.send(Publish(f"state/{number}", bytes(PAYLOAD), qos, True, packet_id=qos))
        on.turn()
        assert on.broker.pool.held == held(on) <= limit
    each = on.broker.retained.price(Message(b"state/100", bytes(PAYLOAD), b"", 0))
    assert on.broker.retained.count in range(limit // 2 // each - 1, limit // 2 // each + 1)
    assert on.broker.counters.messages_refused == 100 - on.broker.retained.count


def test_what_is_retained_takes_no_place_of_what_is_worth_more() -> None:
    on = stage(memory=20 * (PAYLOAD + MESSAGE))
    client = stalled(on, "slow", "high/t", qos=1)
    device = publisher(on)
    send(on, device, "high/t", 19, qos=1)
    device.send(Publish("state", bytes(4 * PAYLOAD), retain=True))
    on.turn()
    assert on.broker.retained.count == 0
    assert on.broker.counters.messages_refused == 1
    assert read(on, client) == {"high/t": list(range(19))}


def test_a_lane_emptied_by_others_is_not_forgotten() -> None:
    """What waited in it was pushed out while its client was stalled; later messages still go."""
    on = stage(memory=10 * (PAYLOAD + MESSAGE))
    client = stalled(on, "low", "low/t", qos=1)
    other = stalled(on, "high", "high/t")
    device = publisher(on)
    send(on, device, "low/t", 1, qos=1)
    send(on, device, "high/t", 10)
    assert dropped(on)[Drop.MEMORY] >= 1
    on.lose(client)
    read(on, other)
    send(on, device, "low/t", 3, qos=1)
    on.connect(client)
    assert read(on, client)["low/t"] == [0, 1, 2]


def test_flows_of_a_level_make_room_in_turn() -> None:
    on = stage(queued_messages=10)
    client = stalled(on, "reader", "low/a", "low/b")
    sender = publisher(on)
    send(on, sender, "low/a", 5)
    send(on, sender, "low/b", 5)
    send(on, sender, "low/a", 4)
    got = read(on, client)
    assert len(got["low/a"]) == 7
    assert got["low/b"] == [2, 3, 4]
