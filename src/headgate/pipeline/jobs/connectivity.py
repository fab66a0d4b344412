"""`headgate pipeline connectivity`: how clients come and go, and what to queue meanwhile."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from headgate.config import Configuration
from headgate.contract.records import CONNECTIONS, MESSAGES
from headgate.pipeline.connecting import habits, joining, periods, traffic
from headgate.pipeline.records import read


def thresholds_of(spark: SparkSession, config: Configuration) -> DataFrame:
    rows = [(one.name, one.threshold_s) for one in config.applications]
    return spark.createDataFrame(rows, "application string, threshold_s double")


def connectivity(spark: SparkSession, records: str, output: str, config: Configuration) -> int:
    """One row for each client; returns how many."""
    known = habits(periods(read(spark, records, CONNECTIONS)))
    offered = traffic(read(spark, records, MESSAGES), thresholds_of(spark, config))
    joining(known, offered).write.mode("overwrite").parquet(output)
    return spark.read.parquet(output).count()
