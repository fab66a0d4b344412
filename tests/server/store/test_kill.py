"""The process is killed while it writes, again and again: what is left is always a prefix of what
was recorded, and holds all that was reported durable."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.server.store import Durability
from headgate.server.store.files import LogDirectory

from .broker import KINDS, PATIENCE
from .numbered import Reference

ROUNDS = {"fsync": 6, "os": 4, "none": 3}
SECONDS = {
    "fsync": (0.0, 0.3),
    "os": (0.0, 0.3),
    "none": (0.5, 1.5),  # It writes a few times a second only.
}
FOLDER = Path(__file__).parents[len(__name__.split(".")) - 1]
"""From where this package is imported."""


def snapshot(directory: Path) -> int:
    """The number of the newest snapshot."""
    return LogDirectory(directory).last_snapshot()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def run_and_kill(
    kind: str, durability: str, directory: Path, done: int, seconds: float, *, compacted: bool
) -> int:
    """Let a child record from change `done` + 1 on; the last position it reported durable.

    With `compacted`, it is killed only after a compaction has come to its end.
    """
    before = snapshot(directory)
    output = directory.with_suffix(".out")
    program = f"{__package__}.numbered"
    command = [sys.executable, "-m", program, kind, durability, str(directory), str(done)]
    with output.open("wb") as file:
        child = subprocess.Popen(command, stdout=file, cwd=FOLDER)
    try:
        if durability == "none":  # It reports nothing, since nothing waits.
            wait_until((directory / "lock").exists)
        else:
            wait_until(lambda: b"\n" in output.read_bytes())
        if compacted:
            wait_until(lambda: snapshot(directory) > before)
        time.sleep(seconds)  # Not to wait for anything: this is the random moment.
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
    return max(map(int, output.read_bytes().split()), default=0)


@pytest.mark.parametrize("durability", ["fsync", "os", "none"])
def test_survivors_are_a_prefix_with_all_that_was_durable(
    kind: str, durability: Durability, tmp_path: Path
) -> None:
    moments = random.Random(f"{kind} {durability}")
    reference = Reference()
    grew = 0
    for turn in range(ROUNDS[durability]):
        before = reference.position
        seconds = moments.uniform(*SECONDS[durability])
        durable = run_and_kill(
            kind,
            durability,
            tmp_path,
            before,
            seconds,
            compacted=kind == "small-log" and turn % 2 == 1,
        )

        store = KINDS[kind](tmp_path, durability)
        saved = store.load()
        store.close()

        while reference.position < max(durable, int(saved.values.get("number", b"0"))):
            reference.advance()
        for _ in range(8):  # The number is saved every eighth change.
            if reference.equals(saved):
                break
            reference.advance()
        assert reference.equals(saved), f"not a prefix, at or after {durable}"
        grew += reference.position > before
    assert durability == "none" or grew == ROUNDS[durability]
