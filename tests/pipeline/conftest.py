"""One Spark session for all tests of a run: to start one takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from headgate.pipeline.session import Options, spark_session

SMALL = {
    # What lives for seconds is not worth the second compiler. Without it Java has room for 48 MB
    # of code, which hundreds of queries fill.
    "spark.driver.extraJavaOptions": "-Xshare:auto -XX:TieredStopAtLevel=1"
    " -XX:ReservedCodeCacheSize=240m",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session(Options(master="local[2]", conf=SMALL)) as session:
        yield session
