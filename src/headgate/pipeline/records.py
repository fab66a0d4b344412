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
        records = found(spark, schema).parquet(folder_of(place, schema))
        return once(records, segments(spark, place, schema))
    except Exception as error:
        raise missing(place, schema, error) from error


def folder_of(place: str, schema: Schema) -> str:
    return f"{place.rstrip('/')}/{schema.kind}"


def found(spark: SparkSession, schema: Schema, **options: str) -> DataFrameReader:
    return (
        spark.read.schema(spark_schema(schema))
        .option("ignoreCorruptFiles", "true")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.parquet")
        .options(**options)
    )


def segments(spark: SparkSession, place: str, schema: Schema, **options: str) -> DataFrame:
    """The files of a kind: `path`, `name` and `length` of each. Nothing is read of them."""
    return (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.parquet")
        .options(**options)
        .load(folder_of(place, schema))
        .select(
            sf.col("_metadata.file_path").alias("path"),
            sf.col("_metadata.file_name").alias("name"),
            "length",
        )
    )


def once(records: DataFrame, files: DataFrame) -> DataFrame:
    """Each segment once, however many copies of it there are (docs/decisions/0028).

    A segment's name is unique; copies of it in other folders are the same segment. They are found
    among the names of the files, and only if there are any is a record asked where it comes from.
    """
    copies = (
        files.groupBy("name")
        .agg(sf.array_sort(sf.collect_list("path")).alias("paths"))
        .where(sf.size("paths") > 1)
        .select(sf.explode(sf.slice("paths", sf.lit(2), sf.size("paths") - 1)).alias("_file"))
    )
    if copies.isEmpty():
        return records
    named = records.withColumn("_file", sf.col("_metadata.file_path"))
    return named.join(sf.broadcast(copies), "_file", "left_anti").drop("_file")


def unreadable(spark: SparkSession, place: str, schema: Schema, **options: str) -> DataFrame:
    """Segments that hold no record that could be read: `name` and `length` of each.

    They are passed over, so that one damaged file does not hold up all others. Who has a first
    record can be read: the footers alone tell.
    """
    seen = (
        found(spark, schema, **options)
        .parquet(folder_of(place, schema))
        .where(sf.col("_metadata.row_index") == 0)
        .select(sf.col("_metadata.file_name").alias("name"))
    )
    there = segments(spark, place, schema, **options).select("name", "length")
    return there.join(sf.broadcast(seen), "name", "left_anti").distinct()


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
        .parquet(folder_of(place, schema))
    )


def missing(place: str, schema: Schema, error: Exception) -> ConfigurationError:
    reason = str(error).strip().splitlines()[0]
    return ConfigurationError(f"no {schema.kind} records can be read from {place}: {reason}")
