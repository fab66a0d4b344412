"""`python -m bench pipeline`: parts that can be run one by one, put together in one result."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from datetime import date
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.brokers import REPOSITORY, BenchError
from bench.report import machine

RESULTS = REPOSITORY / "bench" / "results"
PLOT = REPOSITORY / "docs" / "img" / "pipeline.png"
RATE = 100_000
"""Records per second of the site whose records are observed in one go."""


def parts(options: argparse.Namespace) -> dict[str, Callable[[], dict[str, Any]]]:
    """The measurements by name; Spark is imported only when one is run."""
    from bench.pipeline import measuring  # noqa: PLC0415

    sizes = measuring.Sizes(
        repetitions=options.repetitions,
        stream_repetitions=options.stream_repetitions,
        kept=options.kept,
    )
    found: dict[str, Callable[[], dict[str, Any]]] = {}
    stream = options.stream_repetitions > 0
    for text in options.records.split(","):
        for suffix, rate in (("", RATE), ("-sparse", RATE // 10)):
            found[f"observe-{text}{suffix}"] = partial(
                measuring.batch, number(text), rate, "local[*]", sizes, stream=stream
            )
    for text in options.rates.split(","):
        found[f"latency-{text}"] = partial(
            measuring.latency, number(text), options.seconds, options.warm_up, "local[*]"
        )
    for cores in (1, 2):
        found[f"sweep-{cores}"] = partial(
            measuring.sweeping, options.points, cores, options.repetitions
        )
    return found


def number(text: str) -> int:
    """`10M`, `100k`, `5000`."""
    factor = {"k": 1000, "M": 1_000_000}.get(text[-1:], 1)
    try:
        return round(float(text.rstrip("kM")) * factor)
    except ValueError:
        raise BenchError(f"{text!r}: expected a number such as 10M or 100k") from None


EXAMPLE = """
examples:
  python -m bench pipeline --list
  python -m bench pipeline --only observe-1M --records 1M --repetitions 1      a minute
  python -m bench pipeline --only observe-100M --kept /var/tmp/records         keeps 4 GB there
  python -m bench pipeline --only sweep-1,sweep-2 --points 100 --save
"""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "pipeline",
        help="the Spark jobs: records and points per second",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", metavar="PART,…", help="of those that --list names")
    parser.add_argument("--list", action="store_true", help="name the parts and stop")
    parser.add_argument("--records", default="10M,100M", metavar="N,…", help="through observe")
    parser.add_argument("--repetitions", type=int, default=3, help="in one go; the median counts")
    parser.add_argument("--stream-repetitions", type=int, default=1, help="0 leaves streams out")
    parser.add_argument("--rates", default="10k,100k", metavar="N,…", help="records a second")
    parser.add_argument("--seconds", type=int, default=60, help="of micro-batches")
    parser.add_argument("--warm-up", type=int, default=120, help="seconds before these count")
    parser.add_argument("--points", type=int, default=200, help="to simulate")
    parser.add_argument("--kept", type=Path, metavar="FOLDER", help="records for another run")
    parser.add_argument("--save", action="store_true", help="keep results, and draw the plot")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    known = parts(options)
    if options.list:
        print("\n".join(known))
        return 0
    chosen = [name for name in options.only.split(",") if name] or list(known)
    for name in chosen:
        if name not in known:
            raise BenchError(f"--only {name}: known are {', '.join(known)}")
    file = result_file()
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


def result_file() -> Path:
    """Today's; figures of two machines are not put together."""
    file = RESULTS / f"{date.today().isoformat()}-pipeline.json"
    if file.exists() and json.loads(file.read_text())["machine"] != machine():
        return file.with_stem(f"{file.stem}-again")
    return file


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
        if not isinstance(value, list)
    )
