"""What is known of sensors: which topic is which sensor, in what unit, where, and whose.

An entry names a topic or, by MQTT's wildcards, many of them; the most specific one counts. Where
entries come from is no matter to the rest: a file is read here, and whoever has them elsewhere
makes `Entry`s of them.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from headgate.config.units import duration
from headgate.errors import ConfigurationError, ProtocolViolation
from headgate.wire.topics import validate_filter

FIELDS = ("topic", "name", "sensor", "unit", "place", "owner", "period")

FRAME = (
    "pattern string, rank string, exact string, entry_name string, sensor string, "
    "registered_unit string, place string, owner string, period_s double"
)
KNOWN = ("sensor", "registered_unit", "place", "owner", "period_s")


@dataclass(frozen=True)
class Entry:
    topic: str
    """A topic, or a filter with wildcards."""
    name: str | None = None
    """The measurement it is about; None for all of the topic's."""
    sensor: str | None = None
    unit: str | None = None
    place: str | None = None
    owner: str | None = None
    period_s: float | None = None
    """How often a value is expected."""


# Files


def read_registry(path: Path) -> list[Entry]:
    """YAML (a list, or one under `sensors`), CSV or Parquet, by the name's end."""
    try:
        rows = READERS.get(path.suffix.lower(), from_yaml)(path)
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigurationError(f"{path}: the registry cannot be read: {reason}") from error
    entries = [entry_of(row, f"{path}: entry {number}") for number, row in enumerate(rows, 1)]
    seen: set[tuple[str, str | None]] = set()
    for number, entry in enumerate(entries, 1):
        if (entry.topic, entry.name) in seen:
            raise ConfigurationError(f"{path}: entry {number}: {entry.topic!r} is there twice")
        seen.add((entry.topic, entry.name))
    return entries


def from_yaml(path: Path) -> list[Any]:
    loaded = yaml.safe_load(path.read_text())
    if isinstance(loaded, dict):
        loaded = loaded.get("sensors")
    if not isinstance(loaded, list):
        raise ValueError("expected a list of sensors, or one under `sensors`")
    return loaded


def from_csv(path: Path) -> list[Any]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def from_parquet(path: Path) -> list[Any]:
    import pyarrow.parquet as pq  # noqa: PLC0415

    return list(pq.read_table(path).to_pylist())


READERS = {".csv": from_csv, ".parquet": from_parquet}


def entry_of(row: Any, where: str) -> Entry:
    if not isinstance(row, Mapping) or not row.get("topic"):
        raise ConfigurationError(f"{where}: expected fields such as topic, sensor and unit")
    unknown = [str(key) for key in row if key not in FIELDS]
    if unknown:
        raise ConfigurationError(
            f"{where}: {unknown[0]!r} is not known; there are {', '.join(FIELDS)}"
        )
    texts = {key: str(value) for key, value in row.items() if value not in (None, "")}
    period = texts.pop("period", None)
    try:
        validate_filter(texts["topic"])
        seconds = None if period is None else duration(period)
    except (ProtocolViolation, ValueError) as error:
        raise ConfigurationError(f"{where}: {error}") from error
    return Entry(**texts, period_s=seconds or None)


# Matching


def pattern_of(topic_filter: str) -> str:
    """A filter as a regular expression for topic names (MQTT 5 §4.7)."""
    levels = topic_filter.split("/")
    tail = ""
    if levels[-1] == "#":
        # It includes the parent: a/# matches a.
        levels.pop()
        tail = "(/.*)?" if levels else ".*"
    body = "/".join("[^/]*" if level == "+" else quoted(level) for level in levels)
    # Wildcards at the beginning do not match what begins with $ [MQTT-4.7.2-1].
    guard = r"(?!\$)" if topic_filter.startswith(("+", "#")) else ""
    # Nothing after it: $ would let a line feed pass.
    return f"(?s)^{guard}{body}{tail}(?!.)"


def quoted(level: str) -> str:
    """For Java as well as for Python."""
    return re.sub(r"([^\w\s])", r"\\\1", level)


def rank_of(entry: Entry) -> str:
    """Comes first what is more specific: literal before +, + before #, from the left."""
    digits = {"+": "1", "#": "2"}
    levels = "".join(digits.get(level, "0") for level in entry.topic.split("/"))
    return levels + ("0" if entry.name else "1")


def registry_frame(spark: SparkSession, entries: Iterable[Entry]) -> DataFrame:
    rows = [
        (
            pattern_of(one.topic),
            rank_of(one),
            None if {"+", "#"} & set(one.topic.split("/")) else one.topic,
            one.name,
            one.sensor,
            one.unit,
            one.place,
            one.owner,
            one.period_s,
        )
        for one in entries
    ]
    return spark.createDataFrame(rows, FRAME)


def registered(rows: DataFrame, registry: DataFrame) -> DataFrame:
    """Rows with `topic` and `name`, with what the registry knows of them.

    Patterns are tried on the distinct topics only; what was found is joined to all rows. A topic
    that is registered as it stands is found by equality.
    """
    pairs = rows.select("topic", "name").distinct()
    about = sf.col("entry_name").isNull() | sf.col("entry_name").eqNullSafe(sf.col("name"))
    exact = registry.where(sf.col("exact").isNotNull())
    wild = registry.where(sf.col("exact").isNull())
    found = pairs.join(
        sf.broadcast(exact), (sf.col("topic") == sf.col("exact")) & about
    ).unionByName(
        pairs.join(sf.broadcast(wild), sf.expr("topic rlike pattern") & about),
    )
    best = Window.partitionBy("topic", "name").orderBy("rank")
    chosen = (
        found.withColumn("_place", sf.row_number().over(best))
        .where("_place = 1")
        .select("topic", "name", *KNOWN)
    )
    return (
        rows.alias("row")
        .join(
            sf.broadcast(chosen.alias("known")),
            sf.expr("row.topic = known.topic and row.name <=> known.name"),
            "left",
        )
        .select("row.*", *(f"known.{column}" for column in KNOWN))
    )
