"""Message records in any number, made by Spark: a busy site's, the same for the same number."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType

from headgate.contract.records import MESSAGES
from headgate.pipeline.records import spark_schema

FLOWS = 200
APPLICATIONS = 40
LINKS = 10
TOPICS = 5
"""Of each flow; two flows share them."""
SEGMENT = 500_000
"""Records in one file; the recorder's default is 64 MiB or a minute."""
BLOCK = 10_000_000
START = datetime(2026, 11, 17, tzinfo=UTC)


def records(spark: SparkSession, count: int, rate: int) -> DataFrame:
    """`count` records: 200 flows of 40 applications, 4 categories and 10 links, 500 topics,
    with exponential response times; 5 % dropped, 10 % acknowledgements."""
    number = sf.col("id")

    def chance(salt: int) -> Column:
        """Uniform in [0, 1), of the record's number alone."""
        return (sf.xxhash64(number, sf.lit(salt)).bitwiseAND((1 << 53) - 1)) / float(1 << 53)

    def pick(salt: int, choices: int) -> Column:
        return sf.floor(chance(salt) * choices).cast("long")

    flow = pick(1, FLOWS)
    application = sf.col("_flow") % APPLICATIONS
    kind = chance(2)
    outcome = sf.when(kind < 0.85, "sent").when(kind < 0.95, "acknowledged").otherwise("dropped")
    at = sf.timestamp_micros(
        sf.lit(int(START.timestamp() * 1e6)) + (number * (1e6 / rate)).cast("long")
    )
    waited = -sf.ln(1 - chance(3)) * (2.0 + application % 4 * 5.0)
    made = (
        spark.range(0, count, 1, max(1, count // SEGMENT))
        .withColumn("_flow", flow)
        .withColumn("outcome", outcome)
        .withColumn("at", at)
        .select(
            sf.lit("run-1").alias("broker"),
            number.alias("sequence"),
            "at",
            sf.col("at").alias("arrived"),
            named("app-", sf.col("_flow")).alias("client"),
            sf.lit("site/#").alias("filter"),
            named("application-", application).alias("application"),
            sf.element_at(
                sf.array(*map(sf.lit, ("RT", "TS", "AN", "ST"))), (application % 4 + 1).cast("int")
            ).alias("category"),
            named("link-", sf.col("_flow") % LINKS).alias("link"),
            (application % 4).alias("priority"),
            sf.concat(
                named("site/", sf.col("_flow") % (FLOWS // 2)), named("/", pick(4, TOPICS))
            ).alias("topic"),
            sf.lit("normal").alias("class"),
            sf.lit(1).cast("long").alias("qos"),
            sf.lit(False).alias("retained"),
            "outcome",
            sf.when(sf.col("outcome") == "dropped", "capacity").otherwise("").alias("reason"),
            sf.lit(1).cast("long").alias("messages"),
            (64 + pick(5, 200)).alias("bytes"),
            sf.when(sf.col("outcome") != "acknowledged", waited).alias("waited_ms"),
            sf.when(sf.col("outcome") == "acknowledged", waited).alias("acknowledged_ms"),
            sf.lit(1.0).alias("weight"),
        )
    )
    return made.select(*spark_schema(MESSAGES).fieldNames())


def named(prefix: str, number: Column) -> Column:
    return sf.concat(sf.lit(prefix), number.cast("string"))


def write(spark: SparkSession, place: str, count: int, rate: int) -> None:
    """The same in segments, compressed as the recorder does; of many, all but the first block are
    that block again at later times, which needs no Spark."""
    first = min(count, BLOCK)
    records(spark, first, rate).write.mode("overwrite").option("compression", "snappy").parquet(
        f"{place}/{MESSAGES.kind}"
    )
    segments = sorted(Path(place, MESSAGES.kind).glob("*.parquet"))
    for block in range(1, -(-count // first)):
        for number, segment in enumerate(segments):
            later(segment, block * first, rate, f"block-{block:03d}-{number:05d}.parquet")


def later(segment: Path, records_before: int, rate: int, name: str) -> None:
    text = [field.name for field in spark_schema(MESSAGES) if field.dataType == StringType()]
    table = pq.read_table(segment, read_dictionary=text, partitioning=None)
    seconds = pa.scalar(timedelta(seconds=records_before / rate))
    for column, shift in (("at", seconds), ("arrived", seconds), ("sequence", records_before)):
        index = table.schema.get_field_index(column)
        table = table.set_column(index, column, pc.add(table[column], shift))
    pq.write_table(table, segment.with_name(name), compression="snappy", use_dictionary=text)
