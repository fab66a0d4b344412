"""`spark.read.format("mqtt")`: any MQTT 5 broker as a source and a sink.

    broker ─▶ receiver (one connection) ─▶ spool (segments on disk) ─▶ tasks that read a segment
                  ▲                                                          │
                  └──────── acknowledged when the micro-batch is committed ◀─┘

`register(spark)` makes the format known to a session; sessions of `headgate.pipeline.session` know
it already. docs/mqtt-source.md tells users the rest.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from headgate.pipeline.mqtt.source import MqttDataSource


def register(spark: SparkSession) -> None:
    """Make `format("mqtt")` known to a session."""
    spark.dataSource.register(MqttDataSource)


__all__ = ["MqttDataSource", "register"]
