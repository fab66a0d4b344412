"""Every job on a standalone cluster and over Spark Connect, as a user starts it.

In steps they run over Spark Connect alone: each step is many small jobs, which take a cluster of
two cores minutes and show nothing that one job does not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
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
from .lake.captured import capture
from .lake.captured import segment as lake_segment
from .recording import NOON, record, segment


@dataclass(frozen=True)
class Job:
    """A job in this test: what is typed, and how many rows come of it, in which folder.

    IN is what a broker recorded; names in capitals are folders that jobs make and others read.
    """

    command: str
    folder: str
    rows: int

    @property
    def in_steps(self) -> bool:
        return "--catch-up" in self.command


JOBS = (
    Job("observe IN METRICS", "METRICS", 3 * 5),
    Job("observe IN STEPS --catch-up --lateness 30s", "STEPS", 2 * 5),
    Job("connectivity IN HABITS", "HABITS", 2),
    Job("sweep planemqx DATASET --points 4 --duration 2s --warmup 1s", "DATASET", 4 * 4),
    Job("calibrate KNOWLEDGE --dataset DATASET --scenario planemqx", "KNOWLEDGE/calibration", 1),
    Job("forecast METRICS KNOWLEDGE --step 10s --horizon 20s", "KNOWLEDGE/forecast", 4 * 2),
    Job("lake IN LAKE", "LAKE/silver", 3),
    Job("lake IN LATER --catch-up", "LATER/silver", 3),
    Job(
        "report REPORT --metrics METRICS --habits HABITS --dataset DATASET --knowledge KNOWLEDGE "
        "--lake LAKE",
        "",
        0,
    ),
)
"""In the order in which they are run; a new job is one more entry."""

RUN = """
import sys
from headgate.cli import main
for command in sys.stdin.read().splitlines():
    sys.argv = ["headgate", *command.split()]
    try:
        main()
    except SystemExit as end:
        if end.code:
            sys.exit(f"{command}: status {end.code}")
"""
"""Commands one after the other: Java starts once, each command has a session of its own."""


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
    lake_segment(folder, "one", [capture(number, '{"t": 20}', number) for number in range(3)])
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


def run(records: Path, folder: Path, where: list[str], jobs: Sequence[Job]) -> None:
    names = {word for job in JOBS for word in job.command.split() if word.isupper()}
    places = {name: str(folder / name.lower()) for name in names} | {"IN": str(records)}
    typed = [
        " ".join(["pipeline", *(places.get(word, word) for word in job.command.split()), *where])
        for job in jobs
    ]
    # Workers and server have the same Python, and find the package where we found it.
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input="\n".join(typed),
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=840,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    for job in jobs:
        if job.folder:
            name, _, below = job.folder.partition("/")
            found = ds.dataset(Path(places[name], below), format="parquet").count_rows()
            assert found == job.rows, f"{job.command}\n{done.stdout}"
    page = Path(places["REPORT"]).read_text()
    assert page.count("<section") >= 8, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_job_runs_on_a_cluster(records: Path, cluster: list[str], tmp_path: Path) -> None:
    run(records, tmp_path, cluster, [job for job in JOBS if not job.in_steps])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_job_runs_over_spark_connect(
    records: Path, server: list[str], tmp_path: Path
) -> None:
    run(records, tmp_path, server, JOBS)


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
