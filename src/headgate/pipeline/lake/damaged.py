"""Segments that cannot be read, or not to their end: they are passed over, and named."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headgate.contract.records import CAPTURES
from headgate.pipeline.lake.schemas import QUARANTINE
from headgate.pipeline.records import spark_schema


def damaged(spark: SparkSession, batch: DataFrame) -> DataFrame:
    """One row of quarantine for each such segment of a step: no message, only a reason.

    What a segment should hold is in its footer; the batch tells what could be read of it.
    """
    files = {file.rpartition("/")[2]: file for file in batch.inputFiles()}
    if not files:
        return spark.createDataFrame([], QUARANTINE)
    footers = (
        spark.read.schema(spark_schema(CAPTURES))
        .option("ignoreCorruptFiles", "true")
        .parquet(*files.values())
        .groupBy(sf.col("_metadata.file_name").alias("_file"))
        .agg(sf.count("*").alias("_held"))
    )
    read = batch.groupBy("_file").agg(sf.count("payload").alias("_read"))
    named = spark.createDataFrame([(file,) for file in files], "_file string")
    suspects = (
        named.join(footers, "_file", "left")
        .join(read, "_file", "left")
        .where(sf.col("_held").isNull() | (sf.coalesce("_read", sf.lit(0)) < sf.col("_held")))
    )
    rows = []
    for row in suspects.collect():  # at most as many as a step has segments
        held = row["_held"]
        if held is None and whole(spark, files[row["_file"]]):
            continue
        said = "cannot be read" if held is None else f"{row['_read'] or 0} of {held} could be read"
        rows.append((f"segment {row['_file']}: {said}",))
    found = spark.createDataFrame(rows, "reason string")
    columns = spark.createDataFrame([], QUARANTINE)
    return columns.unionByName(
        found.withColumn("at", sf.current_timestamp()), allowMissingColumns=True
    )


def whole(spark: SparkSession, file: str) -> bool:
    """A segment without records is none that is damaged."""
    try:
        return spark.read.option("ignoreCorruptFiles", "false").parquet(file).count() == 0
    except Exception:
        return False
