"""`python -m bench congestion`: PlanEMQX's workload behind a slow link, beside Mosquitto."""

import argparse
import contextlib
import json
import sys
from dataclasses import asdict, replace
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from bench import network
from bench.brokers import REPOSITORY, BenchError
from bench.congestion import contenders, earlier, following, ideal, report
from bench.congestion.contenders import CONTESTED, NONE, PLANNED, UNTHINNED, Variant
from bench.congestion.evaluating import Conditions
from bench.congestion.following import Stage
from bench.congestion.measuring import Result, measure
from bench.congestion.workload import Arrivals, planemqx
from bench.network import Line
from bench.report import machine

Word = TypeVar("Word", bound=StrEnum)

RESULTS = REPOSITORY / "bench" / "results"
SAVED_PLOT = REPOSITORY / "docs" / "img" / "congestion.png"

_EXAMPLES = """examples (as root):
  python -m bench congestion
  python -m bench congestion --rates 8Mbit,9Mbit,10Mbit,11Mbit,12Mbit,13Mbit --loads 1 --seconds 60
  python -m bench congestion --minutes 5 --loads 1.5 --brokers mosquitto,strict --save
  python -m bench congestion --add a.json b.json --brokers none --save
  python -m bench congestion --follow --seconds 20 --brokers mosquitto,strict,auto
  python -m bench congestion --arrivals poisson,together --queue-ms 50 --congestion-control cubic
"""


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "congestion",
        help="PlanEMQX's workload behind a slow link (needs root)",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    defaults, line = Conditions(), Line(1.0)
    add = parser.add_argument
    add(
        "--rates",
        default="10Mbit",
        metavar="R,…",
        help="links: 10Mbit is 10^7 bit/s, 10Mibit or 10 is the paper's 10 × 2^20 (default 10Mbit)",
    )
    add("--loads", default="1,1.5,2", metavar="X,…", help="times the paper's (default 1,1.5,2)")
    add("--arrivals", default="periodic", metavar="A,…", help="periodic, together, poisson")
    add(
        "--brokers",
        default=",".join(CONTESTED),
        metavar="B,…",
        help=f"of {', '.join(Variant)} (default: all but the last), or none with --add",
    )
    add("--seconds", type=float, default=defaults.seconds, help="measured time (default 20)")
    add("--minutes", type=float, help="the same in minutes")
    add("--warm-up", type=float, default=defaults.warm_up, help="seconds before it (default 5)")
    add("--seed", type=int, default=defaults.seed, help="of phases and Poisson arrivals")
    add("--no-drops", action="store_true", help="priorities alone, no drop rates")
    add("--burst", type=int, default=line.burst, metavar="BYTES", help="of tbf (default 1600)")
    add("--queue-ms", type=float, default=line.limit_ms, help="before the link (default 1000)")
    add("--congestion-control", default="", metavar="NAME", help="bbr, cubic … (the machine's)")
    add("--add", type=Path, nargs="+", default=[], metavar="FILE", help="earlier results (--json)")
    add("--follow", action="store_true", help="halve and double the link's rate in each run")
    add("--json", type=Path, metavar="FILE", help="write every figure")
    add("--plot", type=Path, metavar="FILE.svg", help="draw them")
    add("--save", action="store_true", help="keep the result in bench/results, the plot in docs")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure, report, keep."""
    rates = [network.rate(word) for word in options.rates.split(",") if word]
    loads = _numbers(options.loads, "--loads")
    arrivals = words(options.arrivals, "--arrivals", Arrivals)
    none = options.add and options.brokers == "none"
    variants = [] if none else words(options.brokers, "--brokers", Variant)
    seconds = options.minutes * 60 if options.minutes else options.seconds
    conditions = Conditions(seconds, options.warm_up, seed=options.seed)
    plan = UNTHINNED if options.no_drops else PLANNED
    line = Line(rates[0], options.burst, options.queue_ms, options.congestion_control)
    workload = planemqx()
    if options.follow:
        return _follow(options, line, loads, replace(conditions, arrivals=arrivals[0]), variants)
    results: list[Result] = []
    versions: dict[str, str] = {}
    for path in options.add:
        found, known = earlier.read(path)
        results += found
        versions |= known
    with network.namespace() if variants else contextlib.nullcontext() as place:
        network.hurry()
        steps = [
            (replace(line, rate=rate), load, replace(conditions, arrivals=kind), variant)
            for rate in rates
            for load in loads
            for kind in arrivals
            for variant in variants
        ]
        try:
            for number, (path, load, how, variant) in enumerate(steps):
                assert place is not None
                follows = NONE if variant is Variant.UNPLANNED else plan
                broker = contenders.broker(variant, workload, path.rate, follows, place.near)
                versions.setdefault(broker.name, broker.version)
                followed = None if variant is Variant.MOSQUITTO else follows
                result = measure(broker, workload, path, load, how, place, followed)
                results.append(result)
                p99 = result.experiences["RT"].response.p99
                said = f"[{number + 1}/{len(steps)}] {result.title}: RT p99 {p99:.1f} ms"
                print(said, file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            print("interrupted: reporting what was measured", file=sys.stderr)
    expected = {
        (rate, load): ideal.expected(workload, load, rate, plan)
        for rate, load in dict.fromkeys((result.rate, result.load) for result in results)
    }
    print(report.preamble(workload, line, conditions, versions), end="\n\n")
    print(report.table(results), end="\n\n")
    print(report.remarks(results, plan, expected))
    document = report.document(results, line, conditions, plan, expected, versions)
    _keep(options, document, results)
    return 0


def _follow(
    options: argparse.Namespace,
    line: Line,
    loads: list[float],
    conditions: Conditions,
    variants: list[Variant],
) -> int:
    """The link changes its rate while devices publish; each rate for `conditions.seconds`."""
    workload = planemqx()
    plan = UNTHINNED if options.no_drops else PLANNED
    found: dict[float, list[Stage]] = {}
    with network.namespace() as place:
        network.hurry()
        for load in loads:
            for variant in variants:
                broker = contenders.broker(variant, workload, line.rate, plan, place.near)
                stages = following.measure(broker, workload, line, load, conditions, place)
                found.setdefault(load, []).extend(stages)
                print(f"load {load:g}, {broker.name}: done", file=sys.stderr, flush=True)
    for load, stages in found.items():
        print(f"load {load:g}; response in ms, from {following.SETTLING:g} s after each change on")
        print(following.table(stages), end="\n\n")
    document: dict[str, object] = {
        "date": date.today().isoformat(),
        "machine": machine(),
        "link": asdict(line),
        "conditions": asdict(conditions),
        "stages": {f"{load:g}": [asdict(s) for s in stages] for load, stages in found.items()},
    }
    _write(options, report.finite(document), "congestion-follow")
    return 0


def _write(options: argparse.Namespace, document: object, name: str) -> None:
    files = [options.json] if options.json else []
    if options.save:
        files.append(RESULTS / f"{date.today().isoformat()}-{name}.json")
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        print(f"written: {file}", file=sys.stderr)


def _keep(options: argparse.Namespace, document: dict[str, object], results: list[Result]) -> None:
    _write(options, document, "congestion")
    plots = [options.plot] if options.plot else []
    if options.save:
        plots.append(SAVED_PLOT)
    for file in plots:
        from bench.congestion.plot import draw  # noqa: PLC0415  (matplotlib takes a second)

        file.parent.mkdir(parents=True, exist_ok=True)
        draw(results, file)
        print(f"written: {file}", file=sys.stderr)


def _numbers(text: str, option: str) -> list[float]:
    try:
        found = [float(word) for word in text.split(",") if word]
    except ValueError:
        found = []
    if not found or min(found) <= 0:
        raise BenchError(f"{option} {text}: expected numbers above 0, with commas between them")
    return found


def words(text: str, option: str, kind: type[Word]) -> list[Word]:
    """What an option lists."""
    try:
        return [kind(word) for word in text.split(",") if word]
    except ValueError:
        known = ", ".join(kind)
        raise BenchError(f"{option} {text}: known are {known}") from None
