"""`python -m bench pipeline`: parts that can be run one by one, put together in one result."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.brokers import REPOSITORY, BenchError
from bench.report import machine

RESULTS = REPOSITORY / "bench" / "results"
PLOT = REPOSITORY / "docs" / "img" / "pipeline.png"
RATE = 100_000
"""Records per second of the site whose records are observed in one go."""


def parts() -> dict[str, Callable[[], dict[str, Any]]]:
    """The measurements by name; Spark is imported only when one is run."""
    from bench.pipeline import measuring  # noqa: PLC0415

    return {
        "observe-10M": lambda: measuring.batch(10_000_000, RATE, "local[*]"),
        "observe-10M-sparse": lambda: measuring.batch(10_000_000, RATE // 10, "local[*]"),
        "observe-100M": lambda: measuring.batch(100_000_000, RATE, "local[*]"),
        "latency-10k": lambda: measuring.latency(10_000, 60, "local[*]"),
        "latency-100k": lambda: measuring.latency(100_000, 60, "local[*]"),
        "sweep-1": lambda: measuring.sweeping(200, "local[1]"),
        "sweep-2": lambda: measuring.sweeping(200, "local[2]"),
    }


def register(commands: Any) -> None:
    parser = commands.add_parser("pipeline", help="the Spark jobs: records and points per second")
    parser.add_argument("--only", default="", metavar="PART,…", help="of those that --list names")
    parser.add_argument("--list", action="store_true", help="name the parts and stop")
    parser.add_argument("--save", action="store_true", help="keep results, and draw the plot")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    known = parts()
    if options.list:
        print("\n".join(known))
        return 0
    chosen = [name for name in options.only.split(",") if name] or list(known)
    for name in chosen:
        if name not in known:
            raise BenchError(f"--only {name}: known are {', '.join(known)}")
    file = RESULTS / f"{date.today().isoformat()}-pipeline.json"
    result = existing(file) if options.save else fresh()
    for name in chosen:
        print(f"{name} …", file=sys.stderr, flush=True)
        result["parts"][name] = known[name]()
        print(f"{name}: {summary(result['parts'][name])}", flush=True)
        if options.save:
            file.write_text(json.dumps(result, indent=1) + "\n")
    if options.save:
        from bench.pipeline.plot import draw  # noqa: PLC0415  (matplotlib takes a second)

        draw(result, PLOT)
        print(f"written: {file}, {PLOT}", file=sys.stderr)
    return 0


def existing(file: Path) -> dict[str, Any]:
    """Today's result, to which parts are added."""
    if not file.exists():
        return fresh()
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def fresh() -> dict[str, Any]:
    names = ("headgate", "pyspark", "pyarrow", "numba")
    return {
        "date": date.today().isoformat(),
        "machine": machine(),
        "versions": {name: version(name) for name in names},
        "parts": {},
    }


def summary(figures: dict[str, Any]) -> str:
    return ", ".join(
        f"{key} {value:,.3g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in figures.items()
    )
