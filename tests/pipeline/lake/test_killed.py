"""Broker and pipeline are killed under load, again and again: what was acknowledged is in the lake.

Publishers obey the protocol to the letter and finish everything in the end, so every number must be
there; and again only if it was sent again, because the broker died before it could answer.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from broker_process import COMMAND
from durability.peer import Publisher, run, turn
from durability.process import MortalBroker
from pyspark.sql import SparkSession

from headgate.pipeline.jobs.lake import Lake, catch_up

CONFIG = """
recorder:
  folder: records
  messages: 0
  segment_age: 300ms
  captures: [{topics: "kill/#", capture: guaranteed}]
"""
TOPICS = ("kill/a", "kill/b", "kill/c")
KILLS = 2
"""Of the pipeline; of the broker many more."""
PATIENCE = 240.0


class Load:
    """Numbered messages, every tenth of which cannot be decoded."""

    def __init__(self, broker: MortalBroker, rng: random.Random) -> None:
        self.broker = broker
        self.rng = rng
        self.published = dict.fromkeys(TOPICS, 0)
        self.publishers = {topic: Publisher(f"p-{topic[-1]}", window=20) for topic in TOPICS}
        self.kills = 0

    def go_on(self, seconds: float) -> None:
        """Publish for a while; at its end the broker is killed and started again."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.connect_all()
            for topic, publisher in self.publishers.items():
                while len(publisher.backlog) < 3:
                    self.published[topic] += 1
                    number = self.published[topic]
                    text = b'{"n": %d' % number + (b"" if number % 10 == 0 else b"}")
                    publisher.publish(topic, text, 1)
            turn(self.publishers.values(), min(left, 0.05))
        self.broker.kill()
        self.kills += 1
        for publisher in self.publishers.values():
            while publisher.socket is not None:
                publisher.read()
        self.broker.start()

    def connect_all(self) -> None:
        for publisher in self.publishers.values():
            if publisher.socket is None:
                publisher.connect(self.broker.port)

    def finish(self) -> None:
        self.connect_all()
        run(
            self.publishers.values(),
            lambda: all(publisher.idle for publisher in self.publishers.values()),
            "the last acknowledgements",
        )


def table(folder: Path, name: str) -> pa.Table:
    return pq.read_table(folder / "lake" / name)


def ids(rows: pa.Table) -> Counter[tuple[str, int]]:
    """Messages, and how often each is there."""
    pairs = zip(rows["broker"].to_pylist(), rows["sequence"].to_pylist(), strict=True)
    return Counter(pairs)


def judge(folder: Path, published: dict[str, int]) -> int:
    bronze = table(folder, "bronze")
    messages = ids(bronze)
    assert set(messages.values()) == {1}, "a message is twice in bronze"
    rows = bronze.select(["topic", "payload", "duplicate"]).to_pylist()
    for topic, count in published.items():
        found = [
            (int(re.findall(rb"\d+", row["payload"])[0]), row["duplicate"])
            for row in rows
            if row["topic"] == topic
        ]
        missing = set(range(1, count + 1)) - {number for number, _ in found}
        assert not missing, f"acknowledged and lost: {sorted(missing)[:10]} of {topic}"
        assert set(Counter(number for number, again in found if not again).values()) == {1}
    silver, quarantine = table(folder, "silver"), table(folder, "quarantine")
    assert ids(silver) + ids(quarantine) == messages
    bad = sum(int(re.findall(rb"\d+", row["payload"])[0]) % 10 == 0 for row in rows)
    assert quarantine.num_rows == bad
    return len(rows)


@contextmanager
def following(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The pipeline, in a group of processes of its own; at the end all of them are killed."""
    command = [COMMAND, "pipeline", "lake", folder / "records", folder / "lake"]
    options = ["--follow", "100ms", "--files", "3", "--interval", "1s", "--lateness", "5s"]
    spark = ["--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=2"]
    spark += ["--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"]
    process = subprocess.Popen([*command, *options, *spark], start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def steps(folder: Path) -> int:
    return len(list((folder / "lake/_checkpoint/captures/commits").glob("[0-9]*")))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_was_acknowledged_is_in_the_lake_once(spark: SparkSession, tmp_path: Path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")  # shown if the test fails
    rng = random.Random(seed)
    with MortalBroker(tmp_path, CONFIG) as broker:
        load = Load(broker, rng)
        load.go_on(1.0)
        for _ in range(KILLS):
            before = steps(tmp_path)
            with following(tmp_path) as pipeline:
                deadline = time.monotonic() + PATIENCE
                while steps(tmp_path) == before:  # the one that the last kill interrupted, or more
                    load.go_on(rng.uniform(0.3, 1.5))
                    assert pipeline.poll() is None, "the pipeline ended by itself"
                    assert time.monotonic() < deadline, "the pipeline does nothing"
                load.go_on(rng.uniform(0.0, 1.0))  # so that it is killed anywhere in a step
            # Nothing half, nothing twice, also before anybody repairs it.
            assert set(ids(table(tmp_path, "bronze")).values()) == {1}
            both = ids(table(tmp_path, "silver")) + ids(table(tmp_path, "quarantine"))
            assert set(both.values()) == {1}
        load.finish()
        broker.stop()
    deadline = time.monotonic() + PATIENCE
    while any((tmp_path / "data" / "captures").iterdir()):  # the last encoder is still at work
        assert time.monotonic() < deadline
        time.sleep(0.05)
    catch_up(spark, Lake(str(tmp_path / "records"), str(tmp_path / "lake"), interval=1, lateness=5))
    found = judge(tmp_path, load.published)
    print(f"{found} messages, {load.kills} kills of the broker, {KILLS} of the pipeline")
    assert load.kills >= 2 * KILLS
    intervals = table(tmp_path, "gold/statistics").select(["topic", "name", "start"]).to_pylist()
    assert len({tuple(row.values()) for row in intervals}) == len(intervals) > 0
