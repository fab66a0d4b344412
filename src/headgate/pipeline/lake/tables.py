"""The lake's tables on disk: Parquet that is there whole or not at all.

    OUTPUT/silver/date=2026-11-18/step-00000012-00000.parquet

Spark writes a step under `_staging`, which readers pass over; then each file is moved to a name
that depends on the step alone. A step that is repeated after a kill puts the same rows under the
same names: nothing is twice, and a reader sees no half file (docs/decisions/0046).
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headgate.errors import ConfigurationError
from headgate.pipeline.lake.schemas import TABLES, WHOLE

KEPT = 3
"""Versions of a state; after a kill the one before the last is needed."""
ROWS_PER_FILE = 1_000_000
SORTED = ("topic", "name", "time", "start", "at")
"""What neighbours in a file have alike: a query for one sensor reads little of it."""

STEP = re.compile(r"step-(\d{8})")
EXCHANGE = 2
"""RENAME_EXCHANGE of renameat2(2)."""


class Tables:
    def __init__(self, output: str) -> None:
        self.output = output.rstrip("/")
        if "://" in output:
            # Hadoop's name for what Arrow calls s3.
            self.files, self.root = fs.FileSystem.from_uri(re.sub("^s3[an]:", "s3:", self.output))
        else:
            self.files, self.root = fs.LocalFileSystem(), str(Path(self.output).absolute())

    def prepare(self, spark: SparkSession) -> None:
        """Have every table exist, so that a reader finds one though it is empty."""
        self.clear("_staging")
        for table, schema in TABLES.items():
            if not self.holds(table):
                empty = spark.createDataFrame([], schema)
                self.files.create_dir(f"{self.root}/{table}", recursive=True)
                folder = table if table in WHOLE else f"{table}/date=1970-01-01"
                self._place(empty.coalesce(1), f"_staging/{table}", f"{folder}/none.parquet")

    def holds(self, table: str) -> bool:
        return any(True for _ in self.found(table))

    def found(self, folder: str) -> Iterator[str]:
        """Parquet files below a folder, from the root."""
        selector = fs.FileSelector(f"{self.root}/{folder}", recursive=True, allow_not_found=True)
        for info in self.files.get_file_info(selector):
            if info.is_file and info.base_name.endswith(".parquet"):
                yield info.path.removeprefix(f"{self.root}/")

    def lines(self, file: str) -> list[str]:
        """Of a small text; none if it is not there."""
        try:
            with self.files.open_input_file(f"{self.root}/{file}") as stream:
                return str(stream.read(), "utf-8").splitlines()
        except FileNotFoundError:
            return []

    def clear(self, folder: str) -> None:
        if self.files.get_file_info(f"{self.root}/{folder}").type == fs.FileType.Directory:
            self.files.delete_dir(f"{self.root}/{folder}")

    def at(self, place: str) -> str:
        """For Spark."""
        return f"{self.output}/{place}"

    # What a step writes

    def publish(
        self, rows: DataFrame, table: str, step: int, keys: Sequence[str], parts: int = 1
    ) -> list[str]:
        """A step's rows by `date`, sorted by `keys`; which file a row is in depends on it alone."""
        staged = f"_staging/{table}"
        (
            rows.repartition(parts, *keys)
            .sortWithinPartitions("date", *keys)
            .write.mode("overwrite")
            .partitionBy("date")
            .parquet(self.at(staged))
        )
        return self._move(staged, table, f"step-{step:08d}")

    def _move(self, staged: str, table: str, name: str) -> list[str]:
        placed = []
        for file in sorted(self.found(staged)):
            day = file.split("/")[-2]
            number = re.search(r"part-(\d{5})", file)
            assert number is not None
            target = f"{table}/{day}/{name}-{number[1]}.parquet"
            self.files.create_dir(f"{self.root}/{table}/{day}", recursive=True)
            self.files.move(f"{self.root}/{file}", f"{self.root}/{target}")
            placed.append(target)
        self.clear(staged)
        return placed

    def _place(self, rows: DataFrame, staged: str, target: str) -> None:
        """Rows as one file."""
        rows.coalesce(1).write.mode("overwrite").parquet(self.at(staged))
        (file,) = self.found(staged)
        self.files.create_dir(f"{self.root}/{target.rpartition('/')[0]}", recursive=True)
        self.files.move(f"{self.root}/{file}", f"{self.root}/{target}")
        self.clear(staged)

    # State from step to step

    def remember(self, rows: DataFrame, state: str, step: int) -> None:
        folder = f"_checkpoint/state/{state}"
        self._place(rows, f"_staging/{state}", f"{folder}/step-{step:08d}.parquet")
        # The newest ones, not those of the last steps: not every step changes every state.
        for _, file in self._versions(state)[:-KEPT]:
            self.files.delete_file(f"{self.root}/{file}")

    def remembered(self, spark: SparkSession, state: str, step: int, schema: str) -> DataFrame:
        """The state before a step."""
        versions = [file for number, file in self._versions(state) if number < step]
        if not versions:
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(self.at(versions[-1]))

    def show(self, state: str, step: int, table: str) -> None:
        """Have a table of one file be the state after a step."""
        name = f"{table}/{table.rpartition('/')[2]}.parquet"
        file = [file for number, file in self._versions(state) if number <= step][-1]
        staged = f"{self.root}/_staging/{state}.parquet"
        self.files.create_dir(f"{self.root}/_staging", recursive=True)
        self.files.copy_file(f"{self.root}/{file}", staged)
        self.files.move(staged, f"{self.root}/{name}")
        for other in list(self.found(table)):
            if other != name:
                self.files.delete_file(f"{self.root}/{other}")

    def _versions(self, state: str) -> list[tuple[int, str]]:
        found = []
        for file in sorted(self.found(f"_checkpoint/state/{state}")):
            number = STEP.search(file)
            if number:
                found.append((int(number[1]), file))
        return found

    # What is done now and then

    def mark(self, name: str) -> None:
        self.files.create_dir(f"{self.root}/{name.rpartition('/')[0]}", recursive=True)
        with self.files.open_output_stream(f"{self.root}/{name}"):
            pass

    def marked(self, name: str) -> bool:
        return bool(self.files.get_file_info(f"{self.root}/{name}").type == fs.FileType.File)

    def unmark(self, name: str) -> None:
        if self.marked(name):
            self.files.delete_file(f"{self.root}/{name}")

    def remade(self, rows: DataFrame, table: str) -> None:
        """Rows by `date` instead of all that a table has."""
        staged = f"_staging/remade/{table}"
        spread = rows.repartition("date", "topic").sortWithinPartitions("date", "topic", "at")
        spread.write.mode("overwrite").partitionBy("date").parquet(self.at(staged))
        for number, file in enumerate(sorted(self.found(staged))):
            folder = file.rpartition("/")[0]
            target = f"{self.root}/{folder}/step-remade-{number:05d}.parquet"
            self.files.move(f"{self.root}/{file}", target)
        self.swap(staged, table)

    def swap(self, staged: str, place: str) -> None:
        """Put a folder into the place of another, in one moment."""
        if not isinstance(self.files, fs.LocalFileSystem):
            raise ConfigurationError(
                f"{self.output}: only on a local file system can a table be replaced in one moment"
            )
        exchange(Path(self.root, staged), Path(self.root, place))
        self.clear(staged)

    def compact(self, spark: SparkSession, table: str) -> int:
        """The files of each day that is over made one; returns of how many days."""
        days: dict[str, list[str]] = {}
        for file in self.found(table):
            days.setdefault(file.split("/")[-2], []).append(file)
        done = 0
        for day, files in sorted(days.items())[:-1]:
            if len(files) > 1:
                staged = f"_staging/{table}/{day}"
                rows = spark.read.schema(TABLES[table]).parquet(*map(self.at, files))
                keys = [name for name in SORTED if name in rows.columns]
                parts = 1 + rows.count() // ROWS_PER_FILE
                (
                    rows.repartitionByRange(parts, *keys)
                    .sortWithinPartitions(*keys)
                    .write.mode("overwrite")
                    .parquet(self.at(staged))
                )
                self.swap(staged, f"{table}/{day}")
                done += 1
        return done


def exchange(one: Path, other: Path) -> None:
    """Two folders change places: whoever looks sees the one or the other."""
    libc = ctypes.CDLL(None, use_errno=True)
    here = -100  # AT_FDCWD
    if libc.renameat2(here, os.fsencode(one), here, os.fsencode(other), EXCHANGE):
        number = ctypes.get_errno()
        raise ConfigurationError(f"{one} and {other} cannot change places: {os.strerror(number)}")


def by_day(rows: DataFrame, moment: str) -> DataFrame:
    return rows.withColumn("date", sf.to_date(moment))
