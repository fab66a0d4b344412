"""Spark reads what our own writer of Parquet pages made, by either of its readers."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from recorder.blocks import block

from headgate.server.recorder.rows import MessageWriter, Part, Room

VECTORIZED = "spark.sql.parquet.enableVectorizedReader"


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_spark_finds_the_records_that_arrow_finds(
    spark: SparkSession, tmp_path: Path, vectorized: str
) -> None:
    path = tmp_path / "segment.parquet"
    rng = Random(7)
    first = 0
    with path.open("wb") as file:
        writer = MessageWriter(file, "run-1", Room())
        for size in (1, 3000, 500):
            frame, rows = block(rng, first, size)
            writer.add(Part(frame, rows))
            first += size
        writer.close()
    before = spark.conf.get(VECTORIZED)
    spark.conf.set(VECTORIZED, vectorized)
    try:
        frame_read = spark.read.parquet(str(path))
        found = frame_read.orderBy("sequence").toArrow()
        late = frame_read.where(sf.col("sequence") >= 3400).count()
    finally:
        spark.conf.set(VECTORIZED, before)
    expected = pq.read_table(path)
    assert found.column_names == expected.column_names
    for name in expected.column_names:
        assert found[name].to_pylist() == expected[name].to_pylist(), name
    assert late == 101
