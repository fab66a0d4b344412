"""The broker's records as DataFrames: all that there are, or as they come."""

from __future__ import annotations

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headgate.contract.records import Schema, Type
from headgate.errors import ConfigurationError

SPARK: dict[Type, DataType] = {
    Type.TEXT: StringType(),
    Type.WHOLE: LongType(),
    Type.REAL: DoubleType(),
    Type.FLAG: BooleanType(),
    Type.TIME: TimestampType(),
    Type.BYTES: BinaryType(),
}


def spark_schema(schema: Schema) -> StructType:
    """A schema as Spark knows it. Older segments have null in the fields that they lack."""
    return StructType([StructField(field.name, SPARK[field.type]) for field in schema.fields])


def read(spark: SparkSession, place: str, schema: Schema) -> DataFrame:
    """All records of a kind in a folder or object store."""
    try:
        records = found(spark, schema).parquet(f"{place.rstrip('/')}/{schema.kind}")
    except Exception as error:
        raise missing(place, schema, error) from error
    return once(records)


def found(spark: SparkSession, schema: Schema) -> DataFrameReader:
    return (
        spark.read.schema(spark_schema(schema))
        .option("ignoreCorruptFiles", "true")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.parquet")
    )


def once(records: DataFrame) -> DataFrame:
    """Each segment once, however many copies of it there are (docs/decisions/0028).

    A segment's name is unique; copies of it in other folders are the same segment. To find them
    takes the names of the files alone: no column is read for it.
    """
    file = sf.col("_metadata.file_path")
    name = sf.col("_metadata.file_name")
    chosen = (
        records.select(file.alias("_file"), name.alias("_name"))
        .groupBy("_name")
        .agg(sf.min("_file").alias("_file"))
        .select("_file")
    )
    named = records.withColumn("_file", file)
    return named.join(sf.broadcast(chosen), "_file", "left_semi").drop("_file")


def unreadable(spark: SparkSession, place: str, schema: Schema) -> DataFrame:
    """Segments that hold no record that could be read: `name` and `length` of each.

    They are passed over, so that one damaged file does not hold up all others; the footers alone
    are read to find them.
    """
    folder = f"{place.rstrip('/')}/{schema.kind}"
    there = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.parquet")
        .load(folder)
        .select(sf.element_at(sf.split("path", "/"), -1).alias("name"), "length")
    )
    seen = found(spark, schema).parquet(folder).select(sf.col("_metadata.file_name").alias("name"))
    return there.join(sf.broadcast(seen.distinct()), "name", "left_anti").distinct()


def stream(
    spark: SparkSession, place: str, schema: Schema, files: int, oldest: str = "7d"
) -> DataFrame:
    """Records of a kind as segments appear, at most `files` of them in one micro-batch.

    Segments that are by `oldest` older than the newest one are passed over, if not at the start.
    """
    return (
        spark.readStream.schema(spark_schema(schema))
        .option("ignoreCorruptFiles", "true")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.parquet")
        .option("fileNameOnly", "true")  # a copy of a segment has its name
        .option("maxFilesPerTrigger", files)
        .option("maxFileAge", oldest)
        .parquet(f"{place.rstrip('/')}/{schema.kind}")
    )


def missing(place: str, schema: Schema, error: Exception) -> ConfigurationError:
    reason = str(error).strip().splitlines()[0]
    return ConfigurationError(f"no {schema.kind} records can be read from {place}: {reason}")
