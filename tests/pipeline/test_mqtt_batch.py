"""`read`, `write` and `writeStream` of format("mqtt"), with a real broker and session."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_process import BrokerProcess
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from .test_mqtt_stream import numbered, publish, reading, run


def address(broker: BrokerProcess) -> str:
    return f"mqtt://127.0.0.1:{broker.port}"


def test_what_is_written_with_retain_can_be_read(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    rows = spark.sql(
        "select format_string('kept/%03d', id) topic, string(id) payload, true retain, "
        "map('unit', 'K') properties, 'text/plain' content_type, "
        "unhex('0102') correlation from range(0, 500, 1, 2)"
    )
    rows.write.format("mqtt").mode("append").option("broker", address(broker)).save()
    reader = spark.read.format("mqtt").options(broker=address(broker), quiet="0.5")
    found = reader.option("topics", "kept/#").load().sort("topic").collect()
    assert [(row["topic"], bytes(row["payload"])) for row in found] == [
        (f"kept/{number:03d}", str(number).encode()) for number in range(500)
    ]
    assert {(row["retain"], row["content_type"]) for row in found} == {(True, "text/plain")}
    assert [tuple(one) for one in found[0]["properties"]] == [("unit", "K")]
    assert bytes(found[0]["correlation"]) == b"\x01\x02"
    few = reader.options(topics="kept/00+,kept/#", maxMessages=7)
    with pytest.raises(PySparkException, match=r"\+ is not alone in its level"):
        few.load().count()
    assert reader.options(topics="kept/#,nothing/here", maxMessages=7).load().count() == 7


def test_a_session_is_looked_at_and_left_as_it_is(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    place = address(broker)
    stream = reading(spark, place, tmp_path, "looked", clientId="looked-at")
    run(stream, tmp_path)  # makes the session, and leaves
    publish(place, "looked/a", numbered(20))
    session = spark.read.format("mqtt").options(
        broker=place, what="session", clientId="looked-at", quiet="0.5"
    )
    for _ in range(2):
        assert session.load().count() == 20
    with pytest.raises(PySparkException, match="has no session of 'nobody'"):
        session.option("clientId", "nobody").load().count()


def test_a_stream_is_published(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    """From topic to topic: what is written arrives in the stream that reads it."""
    place = address(broker)
    source = reading(spark, place, tmp_path / "source", "from")
    target = reading(spark, place, tmp_path / "target", "to")
    run(target, tmp_path / "target")
    forward = source.selectExpr("replace(topic, 'from', 'to') topic", "payload", "properties")
    writer = (
        forward.writeStream.format("mqtt")
        .option("broker", place)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    writer.start().awaitTermination(120)
    publish(place, "from/a", numbered(150))
    writer.start().awaitTermination(120)
    run(target, tmp_path / "target")
    rows = spark.read.parquet(str(tmp_path / "target" / "out")).collect()
    assert sorted(bytes(row["payload"]).decode() for row in rows) == numbered(150)
    assert {row["topic"] for row in rows} == {"to/a"}


def test_a_topic_that_cannot_be_published_to_fails_the_write(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    rows = spark.sql("select 'a/#' topic, 'x' payload")
    with pytest.raises(PySparkException, match="contains a wildcard"):
        rows.write.format("mqtt").mode("append").option("broker", address(broker)).save()
