"""Every job on a standalone cluster and over Spark Connect, as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from broker_process import COMMAND

from headgate.server.recorder.tables import ARROW_SCHEMAS

from .cluster import JOB, connect_server, standalone
from .recording import NOON, record, segment


@dataclass(frozen=True)
class Job:
    """A job in this test: what is typed, with IN and OUT for the folders, and how many rows come.

    A new job is one more entry of `JOBS`.
    """

    command: str
    rows: int


JOBS = {
    "observe": Job("observe IN OUT", 3 * 5),
    "observe-steps": Job("observe IN OUT --catch-up --lateness 30s", 2 * 5),
    "connectivity": Job("connectivity IN OUT", 2),
    "sweep": Job("sweep planemqx OUT --points 4 --duration 2s --warmup 1s", 4 * 4),
}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Little of everything that a broker records."""
    folder = tmp_path_factory.mktemp("records")
    segment(folder, "one", [record(1), record(12), record(5)])
    segment(folder, "two", [record(100)])
    events = [
        {"broker": "run-1", "sequence": number, "at": NOON + timedelta(seconds=10 * number)}
        | {"client": f"app-{number % 2}", "user": "", "address": "", "link": "", "reason": "lost"}
        | {"event": "connected" if number % 4 < 2 else "parted"}
        for number in range(20)
    ]
    file = folder / "connections" / "date=2026-11-17" / "one.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(events, schema=ARROW_SCHEMAS["connections"]), file)
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    with standalone(tmp_path_factory.mktemp("cluster")) as address:
        conf = [word for key, value in JOB.items() for word in ("--conf", f"{key}={value}")]
        yield ["--master", address, *conf]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    with connect_server(tmp_path_factory.mktemp("connect")) as address:
        yield ["--remote", address]


def run(job: Job, records: Path, output: Path, where: list[str]) -> None:
    words = {"IN": str(records), "OUT": str(output)}
    typed = [words.get(word, word) for word in job.command.split()]
    # Workers and server have the same Python, and find the package where we found it.
    done = subprocess.run(
        [COMMAND, "pipeline", *typed, *where],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert ds.dataset(output, format="parquet").count_rows() == job.rows, done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", JOBS)
def test_on_a_cluster(name: str, records: Path, cluster: list[str], tmp_path: Path) -> None:
    run(JOBS[name], records, tmp_path / "out", cluster)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", JOBS)
def test_over_spark_connect(name: str, records: Path, server: list[str], tmp_path: Path) -> None:
    run(JOBS[name], records, tmp_path / "out", server)


def test_a_server_that_is_not_there_is_told_in_a_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            COMMAND,
            "pipeline",
            "observe",
            tmp_path,
            tmp_path / "out",
            "--remote",
            "sc://127.0.0.1:1",
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 1
    assert "no Spark at sc://127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
