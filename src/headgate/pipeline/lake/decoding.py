"""From bronze to silver and quarantine: every payload becomes measurements, or has a reason.

    bronze ─▶ decoded: each message with its measurements or a reason
                 ─▶ silver: one row for each measurement    ─▶ quarantine: the message, the reason

Numbers and words are Spark's own expressions. JSON, CBOR and Sparkplug are read by Python in Arrow
batches, and only where a step has such messages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType

from headgate.contract.records import CAPTURES
from headgate.pipeline.lake import documents, nodes
from headgate.pipeline.lake.formats import Format, Rule, recognised
from headgate.pipeline.lake.registry import registered
from headgate.pipeline.lake.values import MEASUREMENTS, READING

MESSAGE = [field.name for field in CAPTURES.fields]

KNOWN = "node string, known string"
"""What is known of Sparkplug nodes, from one step to the next."""

DOCUMENTS = (Format.JSON, Format.CBOR)

NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
QUOTED = r'^\s*"([^"\\]*)"\s*$'

AHEAD = "interval 1 minute"
"""How far a sensor's clock may be ahead of its message's arrival, and still be believed."""
BEGINNING = "timestamp '2000-01-01 00:00:00'"


def formats_of(captures: DataFrame, rules: Iterable[Rule]) -> set[str]:
    """The formats that a step has; a handful."""
    rows = recognised(captures, rules).select("format").distinct().collect()
    return {row["format"] for row in rows}


def decoded(
    captures: DataFrame, rules: Iterable[Rule], known: DataFrame, present: Collection[str]
) -> DataFrame:
    """Messages with `format`, and `measurements` or a `reason`.

    Rows without a message have in `known` what is now known of a Sparkplug `node`.
    """
    messages = recognised(captures.select(*MESSAGE), rules)
    kind = sf.col("format")
    branches = [of_texts(messages.where(~kind.isin(*DOCUMENTS, Format.SPARKPLUG)))]
    if not set(DOCUMENTS).isdisjoint(present):
        branches.append(of_documents(messages.where(kind.isin(*DOCUMENTS))))
    if Format.SPARKPLUG in present:
        branches.append(of_sparkplug(messages.where(kind == Format.SPARKPLUG), known))
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), branches)


def of_texts(messages: DataFrame) -> DataFrame:
    """Numbers and words, which are most of what MQTT carries; what is empty or of no format."""
    kind, text = sf.col("format"), sf.col("payload").cast("string")
    reason = sf.when(kind == Format.BINARY, "bytes of no format that is known").when(
        (kind == Format.TEXT) & ~sf.is_valid_utf8(text), "not UTF-8"
    )
    return messages.select(
        *MESSAGE,
        "format",
        sf.when((kind == Format.TEXT) & reason.isNull(), plain(text)).alias("measurements"),
        reason.alias("reason"),
    )


def plain(text: Column) -> Column:
    """The one measurement of a text: a number, true or false, or the text as it is."""
    number = sf.when(text.rlike(NUMBER), sf.trim(text).try_cast("double"))
    word = sf.lower(sf.trim(text))
    flag = sf.when(word.isin("true", "false"), word == "true")
    quoted = sf.regexp_extract(text, QUOTED, 1)
    said = sf.when(text.rlike(QUOTED), quoted).otherwise(text)
    wordy = number.isNull() & flag.isNull() & (word != "null")
    fields = {"value": number, "text": sf.when(wordy, said), "flag": flag}
    nothing = {"stamp": "timestamp", "unit": "string", "quality": "string"}
    return sf.array(
        sf.struct(
            sf.lit(READING).alias("name"),
            *(
                fields.get(name, sf.lit(None).cast(nothing.get(name, "string"))).alias(name)
                for name in ("stamp", "value", "text", "flag", "unit", "quality")
            ),
        )
    )


def of_documents(messages: DataFrame) -> DataFrame:
    return messages.mapInArrow(
        documents.read, with_fields(messages, f"measurements {MEASUREMENTS}, reason string")
    )


def of_sparkplug(messages: DataFrame, known: DataFrame) -> DataFrame:
    """By node, in the order of arrival, after what was known before."""
    level = sf.split("topic", "/")
    node = sf.concat_ws("/", sf.get(level, sf.lit(1)), sf.get(level, sf.lit(3)))
    rows = messages.withColumn("node", node).withColumn("known", sf.lit(None).cast("string"))
    together = (
        rows.unionByName(known, allowMissingColumns=True)
        .repartition("node")
        .sortWithinPartitions("node", sf.col("known").isNull(), "at", "broker", "sequence")
    )
    return together.mapInArrow(
        nodes.resolved, with_fields(rows, f"measurements {MEASUREMENTS}, reason string")
    )


def with_fields(frame: DataFrame, ddl: str) -> StructType:
    added = StructType.fromDDL(ddl)
    assert isinstance(added, StructType)
    # Any of them may be null: a row that says what is known of a node has no message.
    fields = frame.schema.fields + added.fields
    return StructType([StructField(field.name, field.dataType) for field in fields])


# What comes of it


def quarantined(messages: DataFrame) -> DataFrame:
    return messages.where(sf.col("reason").isNotNull()).select(*MESSAGE, "format", "reason")


def measured(messages: DataFrame, registry: DataFrame) -> DataFrame:
    """Silver: one row for each measurement; a message without any has one row without a value."""
    known = messages.columns
    good = messages.where(sf.col("reason").isNull())
    if "known" in known:
        good = good.where(sf.col("known").isNull())
    rows = good.select(
        "broker",
        "sequence",
        "at",
        "topic",
        "client",
        "format",
        sf.posexplode_outer("measurements").alias("_part", "m"),
    ).select(
        "broker",
        "sequence",
        sf.coalesce("_part", sf.lit(0)).alias("part"),
        "at",
        "topic",
        "client",
        "format",
        sf.col("m.name").alias("name"),
        believed(sf.col("m.stamp")).alias("time"),
        sf.col("m.stamp").alias("stamped"),
        "m.value",
        "m.text",
        "m.flag",
        "m.unit",
        "m.quality",
    )
    return registered(rows, registry).select(
        *(name for name in rows.columns if name not in ("unit", "quality")),
        sf.coalesce("unit", "registered_unit").alias("unit"),
        "quality",
        sf.coalesce("sensor", "topic").alias("sensor"),
        "place",
        "owner",
        "period_s",
    )


def believed(stamp: Column) -> Column:
    """The sensor's own time, unless it cannot be: then that of arrival."""
    return sf.when(
        stamp.between(sf.expr(BEGINNING), sf.col("at") + sf.expr(AHEAD)), stamp
    ).otherwise(sf.col("at"))


def known_nodes(messages: DataFrame, before: DataFrame) -> DataFrame:
    """What is known of every Sparkplug node after a step."""
    if "known" not in messages.columns:
        return before
    now = messages.where(sf.col("known").isNotNull()).select("node", "known")
    return now.unionByName(before.join(now, "node", "left_anti"))


def nothing_known(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], KNOWN)
