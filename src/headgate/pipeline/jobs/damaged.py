"""Segments that a stream passes over: found beside it, named once, and kept in a list."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from headgate.contract.records import Schema
from headgate.pipeline.records import unreadable

LIST = "_damaged"
"""Folder in the output; what begins with _ is no part of the result to whoever reads it."""

MARGIN = timedelta(minutes=10)
"""How far clocks of writers may be apart, and how long a copy may take."""


class Damaged:
    """What cannot be read of one kind of records, while a query reads the rest.

    A stream's own reader tells nothing of what it skips. This looks at the files beside it, so that
    micro-batches do not wait for it; after a first look at all, only at those that are new.
    """

    def __init__(self, spark: SparkSession, place: str, schema: Schema, output: str) -> None:
        self._spark = spark
        self._place = place
        self._schema = schema
        self._list = f"{output.rstrip('/')}/{LIST}"
        self._since: datetime | None = None
        self._known = self._load()

    @property
    def count(self) -> int:
        """All that were ever found for this output."""
        return len(self._known)

    def _load(self) -> set[str]:
        try:
            rows = self._spark.read.json(self._list, "name string").toLocalIterator()
            return {row["name"] for row in rows}
        except AnalysisException:
            return set()

    def look(self) -> list[str]:
        """Names of damaged segments that were not known; they are in the list from now on."""
        now = datetime.now(UTC)
        options = {}
        if self._since is not None:
            options["modifiedAfter"] = (self._since - MARGIN).strftime("%Y-%m-%dT%H:%M:%S")
        try:
            found = unreadable(self._spark, self._place, self._schema, **options).collect()
        except AnalysisException:  # nothing was recorded yet, or nothing new
            return []
        self._since = now
        new = sorted(
            (row["name"], row["length"]) for row in found if row["name"] not in self._known
        )
        if new:
            rows = self._spark.createDataFrame(new, "name string, bytes bigint")
            rows.withColumn("found", sf.lit(now)).coalesce(1).write.mode("append").json(self._list)
            self._known.update(name for name, _ in new)
        return [name for name, _ in new]
