"""Guaranteed capture: what was acknowledged is in a segment, whoever is killed and whenever.

Publishers obey the protocol to the letter and finish everything in the end. So every number must be
in the segments; one of QoS 2 once, one of QoS 1 again only if it was sent again.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from recorder.reading import Row, records, segments, until
from recorder.test_live import is_encoder_of

from headgate.wire.packets import Version

from .peer import Publisher, run, turn
from .process import MortalBroker

CONFIG = """
recorder:
  folder: records
  messages: 0
  segment_age: 300ms
  captures: [{topics: "kill/#", capture: guaranteed}]
"""
KILLS = 12
TOPICS = {"kill/one": 1, "kill/two": 2, "kill/more/one": 1, "kill/more/two": 2}
"""Topic and QoS at which it is published."""


class Load:
    """Numbered messages on their way."""

    def __init__(self, broker: MortalBroker) -> None:
        self.broker = broker
        self.published = dict.fromkeys(TOPICS, 0)
        self.publishers = {
            topic: Publisher(
                f"publisher-{number}", (Version.V5, Version.V311)[number % 2], window=20
            )
            for number, topic in enumerate(TOPICS)
        }

    def go_on(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.connect_all()
            for topic, publisher in self.publishers.items():
                while len(publisher.backlog) < 5:
                    self.published[topic] += 1
                    publisher.publish(topic, b"%d" % self.published[topic], TOPICS[topic])
            turn(self.publishers.values(), min(left, 0.01))

    def connect_all(self) -> None:
        for publisher in self.publishers.values():
            if publisher.socket is None:
                publisher.connect(self.broker.port)

    def read_last_words(self) -> None:
        for publisher in self.publishers.values():
            while publisher.socket is not None:
                publisher.read()

    def finish(self) -> None:
        self.connect_all()
        run(
            self.publishers.values(),
            lambda: all(publisher.idle for publisher in self.publishers.values()),
            "the last acknowledgements",
        )

    def judge(self, found: list[Row]) -> None:
        copies = Counter((row["broker"], row["sequence"]) for row in found)
        assert set(copies.values()) == {1}
        for topic, qos in TOPICS.items():
            rows = [row for row in found if row["topic"] == topic]
            times = Counter(int(row["payload"]) for row in rows)
            missing = set(range(1, self.published[topic] + 1)) - set(times)
            assert not missing, f"lost: {sorted(missing)[:10]} of {topic}"
            assert {row["qos"] for row in rows} == {qos}
            originals = Counter(int(row["payload"]) for row in rows if not row["duplicate"])
            assert set(originals.values()) <= {1}
            if qos == 2:
                assert set(times.values()) == {1}, f"twice: {topic}"


def encoders(pid: int) -> list[int]:
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and is_encoder_of(entry, pid)
    ]


@pytest.mark.timeout(150)
def test_broker_and_encoder_are_killed_and_nothing_acknowledged_is_missing(tmp_path: Path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")  # shown if the test fails
    rng = random.Random(seed)
    with MortalBroker(tmp_path, CONFIG) as broker:
        load = Load(broker)
        of_encoders = 0
        for _ in range(KILLS):
            load.go_on(rng.uniform(0.1, 0.9))
            victims = encoders(broker.pid)
            if victims and rng.random() < 0.6:
                of_encoders += 1
                os.kill(victims[0], signal.SIGKILL)
                load.go_on(rng.uniform(0.0, 0.3))
            if rng.random() < 0.7:
                broker.kill()
                load.read_last_words()
                broker.start()
        load.finish()
        broker.stop()
        # An encoder of a broker that was killed may still be at work, and the last one is.
        until(lambda: not list((tmp_path / "data/captures").iterdir()), "the spool was unloaded")
    found = records(tmp_path / "records", "captures")
    load.judge(found)
    assert sum(load.published.values()) > 20 * KILLS
    print(f"{len(found)} captured, {of_encoders} encoders killed")


def test_what_was_captured_is_published_at_the_end_also_if_the_encoder_was_killed(
    tmp_path: Path,
) -> None:
    """The broker ends before it would have started another."""
    with MortalBroker(tmp_path, CONFIG) as broker:
        until(lambda: bool(encoders(broker.pid)), "there is an encoder")
        os.kill(encoders(broker.pid)[0], signal.SIGKILL)
        publisher = Publisher("p")
        publisher.connect(broker.port)
        publisher.until_connected()
        publisher.publish("kill/one", b"kept", qos=1)
        run([publisher], lambda: publisher.idle, "the acknowledgement")
        broker.stop()
        assert not list((tmp_path / "data/captures").iterdir())
    (captured,) = records(tmp_path / "records", "captures")
    assert captured["payload"] == b"kept"


def test_acknowledgements_wait_while_there_is_no_room_and_nothing_is_lost(tmp_path: Path) -> None:
    """The encoder cannot publish, the spool may hold 2 KiB: publishers wait, not for ever."""
    (tmp_path / "records").mkdir()
    obstacle = tmp_path / "records" / "captures"
    obstacle.write_text("a file where a folder should be")
    config = CONFIG.replace("  captures:", "  capture_size: 2KiB\n  captures:")
    with MortalBroker(tmp_path, config) as broker:
        publisher = Publisher("p", window=200)
        publisher.connect(broker.port)
        publisher.until_connected()
        sent = 0
        deadline = time.monotonic() + 30
        while "no room for more" not in broker.errors:
            assert time.monotonic() < deadline
            for _ in range(20):
                sent += 1
                publisher.publish("kill/one", b"%d" % sent, qos=1)
            turn([publisher], 0.05)
        run([publisher], lambda: len(publisher.sending) == publisher.window, "the window is full")
        before = len(publisher.acknowledged)
        assert before < sent
        other = Publisher("other")
        other.connect(broker.port)
        other.until_connected()
        other.publish("elsewhere", b"not captured, nothing to keep", qos=1)
        run([other], lambda: other.idle, "others are served")
        assert len(publisher.acknowledged) == before
        obstacle.unlink()
        run([publisher], lambda: publisher.idle, "there is room again")
        broker.stop()
    until(lambda: not list((tmp_path / "data/captures").iterdir()), "the spool was unloaded")
    numbers = [int(row["payload"]) for row in records(tmp_path / "records", "captures")]
    assert numbers == list(range(1, sent + 1))
    assert "there is room again" in broker.errors
    assert len(segments(tmp_path / "records", "captures")) >= 2
