"""The tape: every message of every flow is accounted for, whatever became of it."""

from __future__ import annotations

from collections import Counter
from io import BytesIO
from random import Random
from tempfile import TemporaryFile

import numpy as np
import pyarrow.parquet as pq
import pytest
from flows.scene import Client, Scene, lasting

from headgate.config import Configuration, parse
from headgate.core.outlet import NOWHERE
from headgate.core.reasons import Drop
from headgate.core.tape import ACKNOWLEDGED, CUT, ROWS, SENT, Block, Tape, facets
from headgate.server.recorder.frames import ROW, block_frame, read
from headgate.server.recorder.rows import MessageWriter, Part, Room
from headgate.wire.packets import Publish, Version

from .reading import Row, messages_of


class Reel:
    """A tape whose blocks are read as the encoder would read them."""

    def __init__(self, blocks: int = 4, every: int = 1) -> None:
        self.full: list[Block] = []
        self.tape = Tape(self.full.append, blocks, every)
        self.rows: list[Row] = []

    def read(self) -> list[Row]:
        """All rows so far."""
        if self.tape.place > self.tape.begin:
            assert self.tape.turn()
        arena = np.frombuffer(self.tape.arena, dtype=ROW)
        for block in self.full:
            with TemporaryFile(buffering=0) as pipe:
                pipe.write(block_frame(block, len(self.rows), self.tape.every))
                pipe.seek(0)
                frame = read(pipe)
            assert frame is not None
            file = BytesIO()
            writer = MessageWriter(file, "run", Room())
            begin = block.index * ROWS
            writer.add(Part(frame, arena[begin : begin + block.rows]))
            writer.close()
            rows = pq.read_table(file).to_pylist()
            assert len(rows) == block.rows - block.hollow
            self.rows += rows
            block.clear()
            self.tape.free.append(block)
        self.full.clear()
        return self.rows


def recorded(config: str = "", every: int = 1) -> tuple[Scene, Reel]:
    scene = Scene(parse(config) if config else Configuration())
    reel = Reel(every=every)
    scene.broker.pool.tape = reel.tape
    return scene, reel


def test_a_message_that_was_sent_says_what_it_was_and_how_long_it_waited() -> None:
    scene, reel = recorded(
        """
        applications: {film: {clients: ["cam-*"], category: AN}}
        policy: [{category: AN, priority: 3}]
        """
    )
    camera = scene.connect("cam-1")
    camera.subscribe("a/#", qos=1)
    camera.room = 0
    publisher = scene.connect("publisher")
    publisher.publish("a/b", b"12345", qos=1)
    scene.turn()
    scene.now += 0.25
    camera.room = None
    camera.flush()
    scene.now += 0.5
    scene.turn()
    sent, acknowledged = reel.read()
    assert sent["outcome"] == "sent"
    assert (sent["client"], sent["filter"], sent["topic"]) == ("cam-1", "a/#", "a/b")
    assert (sent["application"], sent["category"], sent["priority"]) == ("film", "AN", 3)
    assert (sent["class"], sent["qos"], sent["retained"]) == ("normal", 1, False)
    assert (sent["messages"], sent["reason"], sent["weight"]) == (1, "", 1.0)
    assert sent["waited_ms"] == pytest.approx(250, abs=0.01)
    assert sent["acknowledged_ms"] is None
    assert (sent["at"] - sent["arrived"]).total_seconds() == pytest.approx(0.25, abs=1e-5)
    assert acknowledged["outcome"] == "acknowledged"
    assert acknowledged["waited_ms"] is None
    assert acknowledged["acknowledged_ms"] == pytest.approx(750, abs=0.01)


def test_a_run_is_one_record_that_stands_for_all_its_messages() -> None:
    scene, reel = recorded()
    subscriber = scene.connect("s", Version.V311)
    subscriber.subscribe("a")
    publisher = scene.connect("p", Version.V311)
    publisher.say(*[Publish("a", b"x" * 10)] * 50)
    scene.turn()
    (row,) = reel.read()
    assert (row["messages"], row["topic"], row["outcome"]) == (50, "a", "sent")
    assert row["bytes"] == subscriber.received_size() - len(b"\x20\x02\0\0\x90\x03\0\x01\0")


def test_messages_of_qos_1_that_share_all_but_their_number_are_one_record() -> None:
    scene, reel = recorded()
    subscriber = scene.connect("s", Version.V311)
    subscriber.subscribe("a", qos=1)
    publisher = scene.connect("p", Version.V311)
    same = [Publish("a", b"x" * 10, 1, packet_id=number + 1) for number in range(20)]
    publisher.say(*same, Publish("a", b"longer than those", 1, packet_id=21))
    scene.turn()
    scene.now += 0.5
    scene.turn()
    rows = reel.read()
    assert [row["messages"] for row in rows if row["outcome"] == "sent"] == [20, 1]
    assert messages_of(rows, outcome="acknowledged") == 21
    # Nothing is lost by it: the length of each is that of all, divided.
    sent = rows[0]["bytes"] / rows[0]["messages"]
    assert sent == 2 + 3 + 2 + 10


def test_messages_of_another_topic_or_moment_have_records_of_their_own() -> None:
    scene, reel = recorded()
    scene.connect("s", Version.V311).subscribe("#", qos=1)
    publisher = scene.connect("p", Version.V311)
    topics = ["a", "a", "b", "a"]
    publisher.say(*[Publish(topic, b"x", 1, packet_id=n + 1) for n, topic in enumerate(topics)])
    scene.turn()
    scene.now += 0.001
    publisher.say(Publish("a", b"x", 1, packet_id=9))
    scene.turn()
    sent = [row for row in reel.read() if row["outcome"] == "sent"]
    assert [(row["topic"], row["messages"]) for row in sent] == [
        ("a", 2),
        ("b", 1),
        ("a", 1),
        ("a", 1),
    ]


def test_a_connection_that_takes_long_holds_no_block_back() -> None:
    """Its rows leave the block, and are recorded when it is known what became of them."""
    scene, reel = recorded()
    slow = scene.connect("slow")
    slow.subscribe("+")
    slow.room = 0
    scene.connect("quick").subscribe("+")
    publisher = scene.connect("p")
    publisher.publish("t0")
    scene.turn()
    assert reel.tape.turn()
    assert [(block.rows, block.hanging) for block in reel.tape.closing] == [(2, 1)]
    publisher.publish("t1")  # for the slow one it waits in its flow
    scene.turn()
    assert reel.tape.turn()
    assert [(block.rows, block.hollow) for block in reel.full] == [(2, 1), (1, 0)]
    rows = reel.read()
    assert [(row["client"], row["topic"]) for row in rows] == [("quick", "t0"), ("quick", "t1")]
    scene.now += 0.75
    slow.room = None
    slow.flush()
    scene.turn()
    rows = reel.read()[2:]
    late = [row for row in rows if row["client"] == "slow"]
    assert sorted(row["topic"] for row in late) == ["t0", "t1"]
    assert all(row["waited_ms"] > 749 and row["outcome"] == "sent" for row in late)
    assert {row["filter"] for row in rows} == {"+"}
    assert (reel.tape.lost, reel.tape.written) == (0, 4)
    assert reel.tape.closing == []


def test_what_hangs_when_all_ends_is_lost_and_counted() -> None:
    scene, reel = recorded()
    slow = scene.connect("slow")
    slow.subscribe("a")
    slow.room = 0
    scene.connect("quick").subscribe("a")
    scene.connect("p").publish("a")
    scene.turn()
    reel.tape.finish()
    (block,) = reel.full
    assert (block.rows, block.hollow, reel.tape.lost) == (2, 1, 1)


def test_what_a_run_was_dropped_for_is_told_too() -> None:
    scene, reel = recorded()
    scene.connect("s", Version.V311, clean_start=False).subscribe("a")
    next(client for client in scene.clients if client.client_id == "s").drop()
    publisher = scene.connect("p", Version.V311)
    publisher.say(*[Publish("a", b"x")] * 50)
    scene.turn()
    (row,) = reel.read()
    assert (row["messages"], row["topic"], row["reason"]) == (50, "a", "disconnected")


def test_what_the_kernel_never_took_was_cut() -> None:
    scene, reel = recorded()
    subscriber = scene.connect("s")
    subscriber.subscribe("a")
    subscriber.room = 0
    publisher = scene.connect("p")
    publisher.publish("a", b"x")
    scene.turn()
    subscriber.close()
    (row,) = reel.read()
    assert (row["outcome"], row["messages"]) == ("cut", 1)


def test_retained_messages_do_not_count_the_time_they_were_retained() -> None:
    scene, reel = recorded()
    scene.connect("p").publish("a", b"x", retain=True)
    scene.advance(3600)
    scene.connect("s").subscribe("a")
    scene.turn()
    (row,) = reel.read()
    assert row["retained"]
    assert row["waited_ms"] == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("seed", range(8))
def test_records_agree_with_what_every_flow_counted(seed: int) -> None:
    """Clients that come, go, are slow and lose by every reason: nothing is missing or twice."""
    rng = Random(seed)
    scene, reel = recorded(
        """
        applications: {film: {clients: ["s-1", "s-2"], category: AN}}
        policy: [{category: AN, drop: 0.3, lifetime: 2s, capacity: 5}]
        links: [{name: floor, clients: ["s-3"], rate: 100kbit}]
        limits: {queued_messages: 20, queued_bytes: 4KiB}
        """
    )
    publisher = scene.connect("p", acknowledges=True)
    subscribers: list[Client] = []
    for number in range(6):
        client = scene.connect(f"s-{number}", properties=lasting())
        client.subscribe("t/#", qos=number % 3)
        subscribers.append(client)
    for _ in range(60):
        for _ in range(rng.randrange(8)):
            topic = f"t/{rng.randrange(3)}"
            publisher.publish(topic, b"x" * rng.randrange(300), qos=rng.randrange(3))
        number = rng.randrange(6)
        client = subscribers[number]
        chance = rng.random()
        if chance < 0.15 and client.open:
            client.close()
        elif chance < 0.4 and not client.open:
            subscribers[number] = scene.connect(
                f"s-{number}", properties=lasting(), clean_start=False
            )
        elif client.open:
            client.room = rng.choice([None, 0, 200])
            client.flush()
        scene.advance(rng.random())
    for client in subscribers:
        if client.open:
            client.room = None
            client.flush()
    scene.advance(1.0)
    rows = reel.read()
    assert reel.tape.lost == 0
    for flow in scene.flows():
        mine = {"client": flow.session.client_id, "filter": flow.filter}
        outlets = [client.channel.outlet for client in scene.clients]
        assert all(one.notes is None and one.first_row == NOWHERE for one in outlets)
        delivered = messages_of(rows, **mine, outcome="sent") + messages_of(
            rows, **mine, outcome="cut"
        )
        assert delivered == flow.delivered
        for reason in Drop:
            dropped = messages_of(rows, **mine, outcome="dropped", reason=reason.name.lower())
            assert dropped == flow.drops[reason], reason
        assert delivered + sum(flow.drops) + flow.backlog == flow.offered
    reasons = Counter(row["reason"] for row in rows)
    assert reasons["rate"]
    assert reasons["disconnected"]


def test_a_flow_that_changes_is_introduced_anew() -> None:
    scene, reel = recorded("policy: [{priority: 5}]")
    subscriber = scene.connect("s")
    subscriber.subscribe("a")
    publisher = scene.connect("p")
    publisher.publish("a")
    scene.turn()
    scene.broker.reconfigure(parse("policy: [{priority: 2}]"), scene.now)
    publisher.publish("a")
    scene.turn()
    assert [row["priority"] for row in reel.read() if row["topic"] == "a"] == [5, 2]


def test_each_block_stands_for_itself() -> None:
    scene, reel = recorded()
    subscriber = scene.connect("s")
    subscriber.subscribe("a")
    publisher = scene.connect("p")
    for _ in range(3):
        publisher.publish("a")
        scene.turn()
        reel.tape.turn()
    assert [(block.rows, len(block.flows), list(block.topics)) for block in reel.full] == [
        (1, 1, [b"a"])
    ] * 3


def test_rows_that_find_no_room_are_counted_and_nobody_waits() -> None:
    tape = Tape(lambda block: None, 2, 1)
    for row in range(2 * ROWS + 10):
        if tape.ready():
            tape.put(0, b"a", 1, 1, 1.0 + row, 1.0, 0.0, facets(SENT, 0, 2, 0, False))
    assert (tape.written, tape.lost) == (2 * ROWS, 10)


@pytest.mark.parametrize("every", [2, 10, 100])
def test_a_sample_is_of_the_size_that_was_asked_for_whatever_the_pattern(every: int) -> None:
    """Flows that take turns are each sampled alike: counting would always meet the same one."""
    tape = Tape(lambda block: None, 2, every)
    kept: Counter[int] = Counter()
    for number in range(100_000 * every // 10):
        tape.skip -= 1
        if tape.skip <= 0:
            tape.draw()
            kept[number % every] += 1
    # The skips are uniform on 1 … 2·every - 1: of variance (every² - every) / 3.
    expected = 100_000 / 10
    deviation = (expected * (1 - 1 / every) / 3) ** 0.5
    assert abs(kept.total() - expected) < 5 * deviation
    each = expected / every
    assert max(abs(count - each) for count in kept.values()) < 6 * each**0.5
    assert len(kept) == every


def test_outcomes_that_share_a_number_with_the_core() -> None:
    from headgate.contract.records import Outcome

    assert [list(Outcome)[number] for number in (SENT, ACKNOWLEDGED, CUT)] == [
        Outcome.SENT,
        Outcome.ACKNOWLEDGED,
        Outcome.CUT,
    ]
