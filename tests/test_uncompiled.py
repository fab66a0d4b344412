"""Without a compiler the package works all the same, from the same source."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def plain_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a machine without a compiler has it."""
    folder = tmp_path_factory.mktemp("plain")
    compiled = shutil.ignore_patterns("*.so", "*.c", "__pycache__")
    shutil.copytree(ROOT / "src", folder, ignore=compiled, dirs_exist_ok=True)
    return folder


def run(plain_source: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        env={**os.environ, "PYTHONPATH": str(plain_source)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_the_command_says_that_it_is_not_compiled(plain_source: Path) -> None:
    said = run(plain_source, "headgate", "--version")
    assert said.returncode == 0
    assert "not compiled" in said.stdout


def test_messages_and_queues_behave_as_when_compiled(plain_source: Path) -> None:
    parts = ["messages", "qos_in", "qos_out", "flow_control", "urgent", "retained"]
    suites = [f"tests/conformance/test_{part}.py" for part in parts]
    done = run(plain_source, "pytest", "-q", "-p", "no:cacheprovider", *suites)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
