"""Segments that cannot be read, or not to their end: they are passed over, and named."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

import pyarrow.parquet as pq
from pyarrow import ArrowException, fs
from pyspark.sql import DataFrame, SparkSession

from headgate.pipeline.lake.schemas import QUARANTINE
from headgate.pipeline.lake.tables import Tables


def damaged(spark: SparkSession, files: Iterable[str], read: Mapping[str, int]) -> DataFrame:
    """One row of quarantine for each such segment of a step: no message, only a reason.

    What a segment should hold is in its footer; `read` tells how many records could be read, by
    the segment's name.
    """
    rows = []
    for uri in files:
        name = uri.rpartition("/")[2]
        place, path = fs.FileSystem.from_uri(re.sub("^s3[an]:", "s3:", uri))
        held = records_in(place, path)
        reading = read.get(name, 0)
        if held is None or reading < held:
            said = "cannot be read" if held is None else f"{reading} of {held} could be read"
            # Not the present: a step that is repeated says the same.
            rows.append((place.get_file_info(path).mtime, f"segment {name}: {said}"))
    found = spark.createDataFrame(rows, "at timestamp, reason string")
    return spark.createDataFrame([], QUARANTINE).unionByName(found, allowMissingColumns=True)


def segments_of(tables: Tables, checkpoint: str, step: int) -> Iterator[str]:
    """The segments that Spark's file source gave to a step, readable or not, by its own log."""
    for number in range(
        offset(tables, checkpoint, step - 1) + 1, offset(tables, checkpoint, step) + 1
    ):
        log = f"{checkpoint}/sources/0/{number}"
        for line in tables.lines(log) or tables.lines(f"{log}.compact"):
            entry = json.loads(line) if line.startswith("{") else {}
            if entry.get("batchId") == number:
                yield entry["path"]


def offset(tables: Tables, checkpoint: str, step: int) -> int:
    """How far in that log a step goes."""
    for line in tables.lines(f"{checkpoint}/offsets/{step}"):
        if "logOffset" in line:
            return int(json.loads(line)["logOffset"])
    return -1


def records_in(place: fs.FileSystem, path: str) -> int | None:
    """By a segment's footer; None if it has none."""
    try:
        return int(pq.read_metadata(path, filesystem=place).num_rows)
    except (ArrowException, OSError):
        return None
