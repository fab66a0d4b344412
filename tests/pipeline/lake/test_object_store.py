"""The lake's files in an object store: all that is done with them beside what Spark does."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from object_store import object_store

from headgate.errors import ConfigurationError
from headgate.pipeline.lake.damaged import records_in
from headgate.pipeline.lake.tables import Tables


@pytest.fixture(scope="module", autouse=True)
def store() -> Iterator[None]:
    with object_store():
        yield


def staged(tables: Tables, path: str, value: int) -> None:
    """What Spark leaves."""
    pq.write_table(pa.table({"value": [value]}), f"{tables.root}/{path}", filesystem=tables.files)


def test_a_step_is_moved_to_its_place_and_may_be_repeated() -> None:
    tables = Tables("s3a://site/lake")
    assert list(tables.found("silver")) == []
    for value in (1, 2):  # killed after the first, it is done again
        staged(tables, "_staging/silver/date=2026-11-17/part-00000-x.parquet", value)
        placed = tables._move("_staging/silver", "silver", "step-00000007")
        assert placed == ["silver/date=2026-11-17/step-00000007-00000.parquet"]
    assert list(tables.found("silver")) == placed
    assert list(tables.found("_staging")) == []
    read = pq.read_table(f"{tables.root}/{placed[0]}", filesystem=tables.files, partitioning=None)
    assert read["value"].to_pylist() == [2]
    assert records_in(tables.files, f"{tables.root}/{placed[0]}") == 1


def test_the_state_of_a_step_is_shown_as_a_table() -> None:
    tables = Tables("s3a://site/shown")
    for step in (1, 2):
        staged(tables, f"_checkpoint/state/sensors/step-{step:08d}.parquet", step)
        tables.show("sensors", step, "gold/sensors")
    (file,) = tables.found("gold/sensors")
    read = pq.read_table(f"{tables.root}/{file}", filesystem=tables.files, partitioning=None)
    assert read["value"].to_pylist() == [2]


def test_marks_and_small_texts() -> None:
    tables = Tables("s3a://site/marks")
    assert not tables.marked("_checkpoint/under-way")
    tables.mark("_checkpoint/under-way")
    assert tables.marked("_checkpoint/under-way")
    tables.unmark("_checkpoint/under-way")
    assert not tables.marked("_checkpoint/under-way")
    assert tables.lines("_checkpoint/offsets/1") == []


def test_what_cannot_be_replaced_in_one_moment_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="only on a local file system"):
        Tables("s3a://site/lake").swap("_staging/silver", "silver")
