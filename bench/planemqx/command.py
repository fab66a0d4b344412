"""`python -m bench planemqx`: the paper's evaluation with the real controller and the live broker.

Devices publish PlanEMQX's workload; its applications are behind a `tc tbf` link in a network
namespace. Compared are Mosquitto, Headgate with nobody planning ("default"), and Headgate whose
controller plans by itself from what it measures. 1 Mbit/s is the paper's, 2^20 bit/s.

Which runs count is fixed beforehand: those in which 99 % of the messages were sent less than 5 ms
late. Others are made again, twice at most, and kept in the result.
"""

import argparse
import json
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

from bench import network
from bench.brokers import REPOSITORY, BenchError
from bench.congestion.command import words
from bench.congestion.evaluating import Conditions
from bench.congestion.workload import Arrivals, planemqx
from bench.network import Line
from bench.planemqx import report
from bench.planemqx.contenders import Contender, Demands
from bench.planemqx.measuring import Run, attempts

RESULTS = REPOSITORY / "bench" / "results"
IMAGES = REPOSITORY / "docs" / "img"
EVERYWHERE = "8,9,10,11,12,13,10x1.5,10x2"

_EXAMPLES = """examples (as root):
  python -m bench planemqx
  python -m bench planemqx --at 10 --seconds 300 --requirements tight --brokers planned
  python -m bench planemqx --at 8,10x1.5 --brokers default,planned --seconds 60 --json out.json
"""


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "planemqx",
        help="PlanEMQX end to end: the controller plans, applications judge (needs root)",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--at", default=EVERYWHERE, metavar="M[xL],…", help=f"links and loads ({EVERYWHERE})")
    add("--requirements", default="paper", metavar="R,…", help="paper, tight")
    add("--brokers", default=",".join(Contender), metavar="B,…", help="all by default")
    add("--arrivals", default="periodic", metavar="A", help="periodic, together or poisson")
    add("--seconds", type=float, default=20.0, help="measured time (default 20)")
    add("--warm-up", type=float, default=10.0, help="seconds before it (default 10)")
    add("--congestion-control", default="cubic", metavar="NAME", help="of TCP (default cubic)")
    add("--seed", type=int, default=1, help="of the devices' phases")
    add("--again", type=int, default=2, help="how often a run that does not count is repeated")
    add("--json", type=Path, metavar="FILE", help="write every figure")
    add("--plots", type=Path, metavar="DIR", help="draw Fig. 5, 6 and 7")
    add("--save", default="", metavar="NAME", help="keep it in bench/results under this name")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure, report, keep."""
    demands = words(options.requirements, "--requirements", Demands)
    contenders = words(options.brokers, "--brokers", Contender)
    settings = report.settings(places(options.at), demands)
    (arrivals,) = words(options.arrivals, "--arrivals", Arrivals)
    conditions = Conditions(options.seconds, options.warm_up, arrivals, options.seed)
    workload = planemqx()
    runs: list[Run] = []
    line = Line(settings[0].rate, congestion_control=options.congestion_control)
    steps = [(setting, contender) for setting in settings for contender in contenders]
    with network.namespace() as place:
        network.hurry()
        try:
            for number, (setting, contender) in enumerate(steps):
                path = replace(line, rate=setting.rate)
                for one in attempts(
                    contender, setting, workload, path, conditions, place, options.again
                ):
                    runs.append(one)
                    mean = one.found.categories["RT"].response.mean
                    said = f"[{number + 1}/{len(steps)}] {one.title}: RT mean {mean:.1f} ms"
                    said += "" if one.counts else ", does not count"
                    print(said, file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            print("interrupted: reporting what was measured", file=sys.stderr)
    print(report.preamble(workload, line, conditions, runs), end="\n\n")
    print(report.table(runs), end="\n\n")
    if dropped := report.drops(runs):
        print(dropped, end="\n\n")
    print(report.remarks(runs))
    _keep(options, report.document(runs, line, conditions))
    return 0


def places(text: str) -> list[tuple[float, float]]:
    """`10` or `10x1.5`: the link's rate, and how many times the paper's load."""
    found = []
    for word in filter(None, text.split(",")):
        rate, _, load = word.partition("x")
        try:
            found.append((float(rate), float(load or "1")))
        except ValueError:
            found.append((0.0, 0.0))
    if not found or min(min(pair) for pair in found) <= 0:
        raise BenchError(f"--at {text}: expected links in Mbit/s such as 10, or 10x1.5 for a load")
    return found


def _keep(options: argparse.Namespace, document: dict[str, object]) -> None:
    files = [options.json] if options.json else []
    if options.save:
        files.append(RESULTS / f"{date.today().isoformat()}-{options.save}.json")
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        print(f"written: {file}", file=sys.stderr)
    if options.plots:
        from bench.planemqx.plot import draw  # noqa: PLC0415  (matplotlib takes a second)

        options.plots.mkdir(parents=True, exist_ok=True)
        for file in draw([document], options.plots):
            print(f"written: {file}", file=sys.stderr)
