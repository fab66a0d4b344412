"""Knowledge tables on their shelf: versions that are whole or do not count, and bounded in number.

A version is written as Parquet first and gets its lineage last, in one piece: whoever looks for the
version in force never finds half of one. A job that is killed leaves a folder without lineage; the
next one takes another number, and clears it away.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headgate import __version__
from headgate.contract.knowledge import (
    LINEAGE,
    TABLES,
    Input,
    Lineage,
    complete,
    version_folder,
    version_of,
)
from headgate.errors import ConfigurationError
from headgate.pipeline.records import SPARK, spark_schema

Errors = dict[str, dict[str, float | None]]
Parameters = dict[str, str | float | int | bool | None]

KEEP = 10
"""Versions of each kind that stay."""


@dataclass(frozen=True)
class Making:
    """What is known of a version beside its rows."""

    inputs: tuple[Input, ...]
    parameters: Parameters
    errors: Errors
    notes: tuple[str, ...] = ()


class Shelf:
    """The folder or object store in which knowledge lies."""

    def __init__(self, place: str) -> None:
        self.place = place.rstrip("/")
        try:
            if "://" in place:
                # Hadoop's name of S3 is not Arrow's.
                self._files, self._root = fs.FileSystem.from_uri(
                    self.place.replace("s3a://", "s3://", 1)
                )
            else:
                self._files, self._root = fs.LocalFileSystem(), str(Path(place).absolute())
        except Exception as error:
            raise ConfigurationError(f"no knowledge can be kept at {place}: {error}") from None

    def version(self, kind: str) -> int | None:
        """The one in force."""
        found = complete(self._names(kind))
        return found[-1] if found else None

    def read(self, spark: SparkSession, kind: str, version: int | None = None) -> DataFrame | None:
        """The table of a version, or of the one in force; None if there is none."""
        number = self.version(kind) if version is None else version
        if number is None:
            return None
        schema = spark_schema(TABLES[kind])
        return spark.read.schema(schema).parquet(self._path(kind, number))

    def lineage(self, kind: str, version: int | None = None) -> Lineage | None:
        number = self.version(kind) if version is None else version
        if number is None:
            return None
        with self._files.open_input_stream(f"{self._below(kind, number)}/{LINEAGE}") as file:
            return Lineage.from_json(file.read())

    def add(
        self, tables: Mapping[str, DataFrame], making: Making, *, keep: int = KEEP
    ) -> dict[str, Lineage]:
        """A new version of each table, all with the same number; the last one named leads.

        The tables that explain another one come before it, so that they are there when it counts.
        """
        taken = [number for kind in tables for number in self._numbers(kind)]
        version = max(taken, default=0) + 1
        written = {}
        for kind, rows in tables.items():
            written[kind] = self._write(kind, version, rows, making)
        for kind in tables:
            self._clear(kind, keep)
        return written

    def _write(self, kind: str, version: int, rows: DataFrame, making: Making) -> Lineage:
        shaped(rows, kind).write.mode("error").parquet(self._path(kind, version))
        session = rows.sparkSession
        lineage = Lineage(
            kind=kind,
            version=version,
            created=datetime.now(UTC),
            inputs=making.inputs,
            code=__version__,
            parameters=making.parameters,
            rows=session.read.parquet(self._path(kind, version)).count(),
            errors=making.errors,
            notes=making.notes,
        )
        folder = self._below(kind, version)
        data = lineage.to_json()
        # In a folder it is renamed when it is whole; an object shows when it is.
        name = LINEAGE if "://" in self.place else f".{LINEAGE}"
        with self._files.open_output_stream(f"{folder}/{name}") as file:
            file.write(data)
        if name != LINEAGE:
            self._files.move(f"{folder}/{name}", f"{folder}/{LINEAGE}")
        return lineage

    def _clear(self, kind: str, keep: int) -> None:
        """Remove old versions, and what was never completed before the newest that is."""
        whole = complete(self._names(kind))
        stays = set(whole[-max(1, keep) :])
        for number in self._numbers(kind):
            if number not in stays and number < whole[-1]:
                with suppress(FileNotFoundError):
                    self._files.delete_dir(self._below(kind, number))

    def _names(self, kind: str) -> list[str]:
        selector = fs.FileSelector(f"{self._root}/{kind}", recursive=True, allow_not_found=True)
        return [info.path for info in self._files.get_file_info(selector)]

    def _numbers(self, kind: str) -> list[int]:
        """Versions of which anything is there."""
        parts = (part for name in self._names(kind) for part in name.split("/"))
        return sorted({number for number in map(version_of, parts) if number is not None})

    def _path(self, kind: str, version: int) -> str:
        """As Spark names it."""
        root = self.place if "://" in self.place else self._root
        return f"{root}/{version_folder(kind, version)}"

    def _below(self, kind: str, version: int) -> str:
        """As Arrow names it."""
        return f"{self._root}/{version_folder(kind, version)}"


def shaped(rows: DataFrame, kind: str) -> DataFrame:
    """The columns of a table in its order and types, in one file: what is made in parallel is
    gathered after."""
    fields = TABLES[kind].fields
    return rows.select(
        *(sf.col(one.name).cast(SPARK[one.type]).alias(one.name) for one in fields)
    ).repartition(1)


def described(kind: str, place: str, rows: DataFrame, moment: str | None) -> Input:
    """What an input holds: files, rows, and from when to when."""
    found: dict[str, Any] = (
        rows.select(
            sf.col("_metadata.file_path").alias("_file"),
            *([sf.unix_micros(moment).alias("_at")] if moment else [sf.lit(None).alias("_at")]),
        )
        .agg(
            sf.count("*").alias("rows"),
            sf.count_distinct("_file").alias("files"),
            sf.min("_at").alias("since"),
            sf.max("_at").alias("until"),
        )
        .collect()[0]
        .asDict()
    )
    return Input(
        kind=kind,
        place=place,
        files=found["files"],
        rows=found["rows"],
        since=moment_of(found["since"]),
        until=moment_of(found["until"]),
    )


def moment_of(micros: int | None) -> datetime | None:
    """Spark's own datetimes have no time zone once they are in Python: numbers cannot mislead."""
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)
