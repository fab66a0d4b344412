"""A Spark session: on this machine, on a cluster, or at the other end of Spark Connect."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from pyspark import __version__
from pyspark.sql import SparkSession

from headgate.errors import ConfigurationError
from headgate.pipeline import mqtt
from headgate.pipeline.java import find

LOGGING = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %m%n%ex{short}
"""

DEFAULTS = {
    "spark.app.name": "headgate",
    "spark.sql.session.timeZone": "UTC",
    # State that outgrows memory, and restarts that read only what changed.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A step writes what changed, not whole files of state.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Nobody asks how many rows the state has; to know it costs a look at each before it is put.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    # Quantiles and lists of more groups than 128, the default, would be sorted instead of hashed.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
}

CONNECT_PORT = 15002
PATIENCE = 10.0
"""Seconds for a server of Spark Connect to answer at all."""


def memory() -> str:
    """For Spark on this machine: a quarter of what it has, 1 to 8 GiB. Spark's own default is
    1 GiB, and `observe` has millions of sums at hand."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{min(8192, max(1024, there // 4 // 2**20))}m"


LOCAL = {
    "spark.driver.memory": memory(),
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A shuffle of 200 parts, which is the default, is for clusters: here each would be a few rows.
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
}


@dataclass(frozen=True)
class Options:
    """Where Spark runs, and its settings."""

    master: str = "local[*]"
    remote: str | None = None
    """Spark Connect, such as sc://localhost:15002; `master` then means nothing."""
    conf: Mapping[str, str] = field(default_factory=dict)
    progress: bool = False


@contextmanager
def spark_session(
    options: Options, tell: Callable[[str], None] = lambda _: None
) -> Iterator[SparkSession]:
    """A session that ends with the block; `tell` is told what it runs on."""
    with tempfile.TemporaryDirectory(prefix="headgate-spark-") as scratch:
        session = connect(options) if options.remote else start(options, Path(scratch), tell)
        mqtt.register(session)
        try:
            yield session
        finally:
            session.stop()


def connect(options: Options) -> SparkSession:
    """A session of a server that runs already."""
    assert options.remote is not None
    knock(options.remote)
    builder = SparkSession.builder.remote(options.remote)
    for key, value in options.conf.items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
        for key, value in DEFAULTS.items():
            if key.startswith("spark.sql.") and key not in options.conf:
                session.conf.set(key, value)
    except Exception as error:  # gRPC, Spark and Python each have their own
        raise ConfigurationError(f"no Spark at {options.remote}: {first_line(error)}") from error
    return session


def knock(remote: str) -> None:
    """Is anybody there? Spark's client would try for ten minutes before it says no."""
    try:
        place = urlsplit(remote)
        if place.scheme != "sc" or not place.hostname:
            raise ConfigurationError(f"--remote {remote}: expected sc://HOST:PORT")
        address = (place.hostname, place.port or CONNECT_PORT)
        socket.create_connection(address, timeout=PATIENCE).close()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"no Spark at {remote}: {first_line(error)}") from error


def start(options: Options, scratch: Path, tell: Callable[[str], None]) -> SparkSession:
    """A session with a driver of its own, here."""
    java = find(scratch)
    tell(f"Spark {__version__} on {options.master}, {java.described}")
    os.environ["JAVA_HOME"] = str(java.home)
    # Or else the workers are whatever `python3` is; where they have another, the user says so.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    local = options.master.startswith("local")
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    logging = scratch / "log4j2.properties"
    logging.write_text(LOGGING)
    settings = {**DEFAULTS, **(LOCAL if local else {}), **options.conf}
    settings["spark.ui.showConsoleProgress"] = str(options.progress).lower()
    settings["spark.driver.extraJavaOptions"] = " ".join(
        [f"-Dlog4j2.configurationFile={logging}", settings.get("spark.driver.extraJavaOptions", "")]
    ).strip()
    builder = SparkSession.builder.master(options.master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    said = scratch / "start.txt"
    try:
        with quiet(said):
            session: SparkSession = builder.getOrCreate()
    except Exception as error:
        detail = said.read_text(errors="replace").strip().splitlines()[-5:]
        raise ConfigurationError(
            f"Spark does not start on {options.master} with {java.described}: "
            + " / ".join([first_line(error), *detail])
        ) from error
    return session


@contextmanager
def quiet(said: Path) -> Iterator[None]:
    """Keep what the launcher and the young JVM say on standard error: it is of no use to anyone,
    unless they fail."""
    sys.stderr.flush()
    kept = os.dup(2)
    with said.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
