"""What a stream's reader keeps and acknowledges, asked as Spark asks it, without Spark."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headgate.errors import ConfigurationError
from headgate.pipeline.mqtt.stream import MqttStreamReader, Offset

from .test_mqtt_stream import numbered, publish

ALL = ReadAllAvailable()
PATIENCE = 30.0

Make = Callable[[], MqttStreamReader]


def maker(broker: BrokerProcess, folder: Path, topic: str, **options: str) -> Make:
    given = {
        "broker": f"127.0.0.1:{broker.port}",
        "topics": f"{topic}/#",
        "spool": str(folder / "spool"),
        **options,
    }
    return lambda: MqttStreamReader(given)


def rows(reader: MqttStreamReader, start: int, end: int) -> list[str]:
    parts = reader.partitions({"segment": start}, {"segment": end})
    return [
        bytes(row["payload"]).decode()
        for part in parts
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


def until_waiting(reader: MqttStreamReader, count: int) -> None:
    """Until so many messages have arrived at the reader."""
    deadline = time.monotonic() + PATIENCE
    while sum(map(len, reader.receiving.receivers)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def at(segment: int) -> Offset:
    return {"segment": segment}


def test_what_the_broker_sends_again_is_not_taken_twice(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    make = maker(broker, tmp_path, "again")
    first = make()
    assert first.initialOffset() == at(0)
    publish(f"mqtt://127.0.0.1:{broker.port}", "again/a", numbered(10))
    until_waiting(first, 10)
    assert first.latestOffset(at(0), ReadMaxRows(6)) == at(1)
    first.stop()  # before the batch is committed: six are in a segment, four in memory only

    second = make()
    assert rows(second, 0, 1) == numbered(6)
    until_waiting(second, 4)
    assert second.latestOffset(at(1), ALL) == at(2)  # the first batch is committed
    assert rows(second, 1, 2) == numbered(6, 10)
    second.commit(at(1))
    assert [number for number, _ in second.receiving.spool.segments()] == [2]
    assert second.latestOffset(at(2), ALL) == at(2)
    second.stop()

    third = make()
    publish(f"mqtt://127.0.0.1:{broker.port}", "again/a", ["last"])
    assert third.latestOffset(at(2), ALL) in (at(2), at(3))
    until_one_more(third, 3)
    assert rows(third, 2, 3) == ["last"], "what was acknowledged came again"
    third.stop()


def until_one_more(reader: MqttStreamReader, segment: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while reader.latestOffset(at(2), ALL) != at(segment):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_lost_spool_loses_nothing_that_was_not_committed(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    make = maker(broker, tmp_path, "lost", clientid="lost-spool")
    first = make()
    first.initialOffset()
    publish(f"mqtt://127.0.0.1:{broker.port}", "lost/a", numbered(10))
    until_waiting(first, 10)
    assert first.latestOffset(at(0), ALL) == at(1)
    first.stop()
    shutil.rmtree(tmp_path / "spool")

    second = make()
    with pytest.raises(ConfigurationError, match="does not have segment 1"):
        second.partitions(at(0), at(1))
    until_waiting(second, 10)
    assert second.latestOffset(second.initialOffset(), ALL) == at(1)
    assert rows(second, 0, 1) == numbered(10)
    second.stop()


def test_filters_that_are_not_wanted_any_more_are_left(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    place = f"mqtt://127.0.0.1:{broker.port}"
    first = maker(broker, tmp_path, "old")()
    first.initialOffset()
    first.stop()
    second = maker(broker, tmp_path, "new")()
    second.initialOffset()
    publish(place, "old/a", ["unwanted"])
    publish(place, "new/a", ["wanted"])
    until_waiting(second, 1)
    assert second.latestOffset(at(0), ALL) == at(1)
    assert rows(second, 0, 1) == ["wanted"]
    second.stop()
