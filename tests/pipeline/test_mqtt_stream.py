"""`readStream.format("mqtt")` end to end: a real broker, a real session, and kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from broker_process import BrokerProcess
from paho.mqtt.enums import CallbackAPIVersion
from pyspark.sql import DataFrame, SparkSession

from .brokers import mosquitto, no_mosquitto

PATIENCE = 120.0


@pytest.fixture(scope="module", params=["headgate", pytest.param("mosquitto", marks=no_mosquitto)])
def any_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a Headgate and of a Mosquitto."""
    if request.param == "mosquitto":
        with mosquitto(tmp_path_factory.mktemp("mosquitto")) as port:
            yield f"mqtt://127.0.0.1:{port}"
        return
    process = BrokerProcess(tmp_path_factory.mktemp("headgate"))
    process.start()
    yield f"mqtt://127.0.0.1:{process.port}"
    process.stop_if_running()


def publish(broker: str, topic: str, payloads: list[str], **options: Any) -> None:
    """All of them at QoS 1, acknowledged when it returns."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.max_inflight_messages_set(20)
    host, port = broker.removeprefix("mqtt://").split(":")
    client.connect(host, int(port))
    client.loop_start()
    for sent in [client.publish(topic, one, qos=1, **options) for one in payloads]:
        sent.wait_for_publish(PATIENCE)
        assert sent.is_published()
    client.disconnect()
    client.loop_stop()


def reading(
    spark: SparkSession, broker: str, folder: Path, topic: str, **options: Any
) -> DataFrame:
    reader = spark.readStream.format("mqtt").options(
        broker=broker, topics=f"{topic}/#", spool=str(folder / "spool"), quiet="0.5"
    )
    return reader.options(**options).load()


def run(frame: DataFrame, folder: Path) -> list[dict[str, Any]]:
    """All that is available, into Parquet; returns the progress of each batch that had rows."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "out"))
    )
    query.awaitTermination(PATIENCE)
    assert not query.isActive
    return [one for one in query.recentProgress if one["numInputRows"]]


def payloads(spark: SparkSession, folder: Path) -> list[str]:
    rows = spark.read.parquet(str(folder / "out")).selectExpr("string(payload) payload").collect()
    return sorted(row["payload"] for row in rows)


def numbered(*span: int) -> list[str]:
    return [f"{number:06d}" for number in range(*span)]


def test_what_comes_between_two_runs_is_not_lost(
    spark: SparkSession, any_broker: str, tmp_path: Path
) -> None:
    """The session stays with the broker while nobody reads; what was committed does not return."""
    frame = reading(spark, any_broker, tmp_path, "between", clientId="between")
    assert run(frame, tmp_path) == []  # makes the session
    publish(any_broker, "between/a", numbered(100), properties=described())
    run(frame, tmp_path)
    publish(any_broker, "between/b", numbered(100, 200))
    run(frame, tmp_path)
    assert payloads(spark, tmp_path) == numbered(200)
    row = spark.read.parquet(str(tmp_path / "out")).where("topic = 'between/a'").first()
    assert row is not None
    assert (row["qos"], row["retain"], row["content_type"]) == (1, False, "text/plain")
    assert (row["response_topic"], bytes(row["correlation"])) == ("answers", b"\x01\x02")
    assert [tuple(one) for one in row["properties"]] == [("unit", "K"), ("unit", "°C")]
    assert abs(row["time"].timestamp() - time.time()) < 600


def described() -> Any:
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    properties = Properties(PacketTypes.PUBLISH)
    properties.ContentType = "text/plain"
    properties.ResponseTopic = "answers"
    properties.CorrelationData = b"\x01\x02"
    properties.UserProperty = [("unit", "K"), ("unit", "°C")]
    return properties


def test_batches_are_as_large_as_was_asked_for(
    spark: SparkSession, any_broker: str, tmp_path: Path
) -> None:
    """And the broker is held back: it may have 40 messages under way, never more."""
    frame = reading(
        spark,
        any_broker,
        tmp_path,
        "pressed",
        maxMessages=25,
        receiveMaximum=40,
        clientId="pressed",
    )
    run(frame, tmp_path)
    publish(any_broker, "pressed/a", numbered(100))
    steps = run(frame, tmp_path)
    sizes = [one["numInputRows"] for one in steps]
    assert max(sizes) == 25
    # 40 come; of these 25 are taken, 15 are left; when the 25 are acknowledged others follow, and
    # how many of these are in time for the second batch is chance.
    assert sizes[0] == 25
    assert 15 <= sizes[1] <= 25
    assert payloads(spark, tmp_path) == numbered(100)


def test_readers_share_a_subscription(spark: SparkSession, any_broker: str, tmp_path: Path) -> None:
    frame = reading(spark, any_broker, tmp_path, "shared", readers=3, ship=True)
    parts = frame.selectExpr("string(payload) payload", "spark_partition_id() part")
    run(parts, tmp_path)
    publish(any_broker, "shared/a", numbered(300))
    run(parts, tmp_path)
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row["payload"] for row in rows) == numbered(300)
    assert len({row["part"] for row in rows}) == 3, "a reader got nothing"


DRIVER = """
import sys
from headgate.pipeline.session import Options, spark_session

broker, folder = sys.argv[1:]
conf = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.driver.memory": "512m"}
with spark_session(Options(master="local[1]", conf=conf)) as spark:
    options = dict(broker=broker, topics="killed/#", spool=f"{folder}/spool", maxMessages=50)
    frame = spark.readStream.format("mqtt").options(**options).load()
    frame.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint").start(
        f"{folder}/out"
    ).awaitTermination()
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_is_lost_when_driver_jvm_and_workers_are_killed(
    spark: SparkSession, any_broker: str, tmp_path: Path
) -> None:
    """The whole process group with SIGKILL, in the middle of its batches; then another goes on."""
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    commits = tmp_path / "checkpoint" / "commits"
    process = subprocess.Popen(
        [sys.executable, script, any_broker, tmp_path], start_new_session=True
    )
    try:
        until((tmp_path / "spool" / "state.json").exists, process)
        until(lambda: '"killed/#"' in (tmp_path / "spool" / "state.json").read_text(), process)
        publish(any_broker, "killed/a", numbered(2000))
        until(lambda: commits.exists() and len(list(commits.glob("[0-9]*"))) >= 3, process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    committed = len(list(commits.glob("[0-9]*")))
    assert committed < 40, "it was done before it was killed: the test shows nothing"

    run(reading(spark, any_broker, tmp_path, "killed"), tmp_path)
    found = Counter(payloads(spark, tmp_path))
    assert sorted(found) == numbered(2000)
    # Twice is only what was committed and not yet acknowledged: one batch at most.
    assert sum(found.values()) - len(found) <= 50


def until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, "the driver ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.01)
