"""The process is killed while it writes, again and again: what is left is always a prefix of what
was recorded, and holds all that was reported durable."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headgate.server.store import Durability

from .broker import KINDS, PATIENCE
from .numbered import Reference

ROUNDS = {"fsync": 6, "os": 4, "none": 3}
FOLDER = Path(__file__).parents[len(__name__.split(".")) - 1]
"""From where this package is imported."""


def run_and_kill(kind: str, durability: str, directory: Path, done: int, seconds: float) -> int:
    """Let a child record from change `done` + 1 on; the last position it reported durable."""
    program = f"{__package__}.numbered"
    command = [sys.executable, "-m", program, kind, durability, str(directory), str(done)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=FOLDER, text=True)
    watchdog = threading.Timer(PATIENCE, child.kill)
    watchdog.start()
    assert child.stdout is not None
    try:
        if durability == "none":  # It reports nothing, since nothing waits.
            deadline = time.monotonic() + PATIENCE
            while not list(directory.glob("*")) and time.monotonic() < deadline:
                time.sleep(0.01)
        else:
            assert child.stdout.readline(), "the child ended before its first commit"
        time.sleep(seconds)  # Not to wait for anything: this is the random moment.
        child.kill()
        reported = child.stdout.read().split()
    finally:
        watchdog.cancel()
        child.kill()
        child.wait()
        child.stdout.close()
    # The last line may be cut short; a shorter number is a smaller one, which only weakens it.
    return max(map(int, reported), default=0)


@pytest.mark.parametrize("durability", ["fsync", "os", "none"])
def test_survivors_are_a_prefix_with_all_that_was_durable(
    kind: str, durability: Durability, tmp_path: Path
) -> None:
    moments = random.Random(f"{kind} {durability}")
    reference = Reference()
    grew = 0
    for _ in range(ROUNDS[durability]):
        before = reference.position
        # Without promises it writes once a second.
        seconds = moments.uniform(0.0, 0.3) if durability != "none" else moments.uniform(0.5, 1.5)
        durable = run_and_kill(kind, durability, tmp_path, before, seconds)

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
