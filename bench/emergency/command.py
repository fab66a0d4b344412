"""`python -m bench emergency`: p-MQTT's experiment, beside Mosquitto."""

import argparse
import contextlib
import json
import os
import sys
from datetime import date
from pathlib import Path

from bench import network
from bench.brokers import REPOSITORY, BenchError
from bench.campaign import raise_descriptor_limit
from bench.emergency import contenders, experiment, report
from bench.emergency.contenders import Contender
from bench.emergency.experiment import SLOW, Outcome, Situation

RESULTS = REPOSITORY / "bench" / "results"
SAVED_PLOT = REPOSITORY / "docs" / "img" / "emergency.png"
MOST_PUBLISHERS = 10_000

_EXAMPLES = """examples:
  python -m bench emergency --situations quiet,cpu
  sudo python -m bench emergency --save
  sudo python -m bench emergency --situations link,overflow --add quiet.json cpu.json --save
  sudo python -m bench emergency --situations link --publishers 1000 --rounds 50
"""


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "emergency",
        help="p-MQTT's urgent and critical messages (the link's part needs root)",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--situations", default=",".join(Situation), metavar="S,…", help="default: all of them")
    add("--publishers", default="100,250,500,1000", metavar="N,…", help="100,250,500,1000")
    add("--rounds", type=int, default=10, help="of each kind of emergency (default 10)")
    add("--brokers", default=",".join(Contender), metavar="B,…", help="default: all of them")
    add("--seed", type=int, default=1, help="of who has the emergency, and the order of sending")
    add("--add", type=Path, nargs="+", default=[], metavar="FILE", help="earlier results (--json)")
    add("--json", type=Path, metavar="FILE", help="write every figure")
    add("--plot", type=Path, metavar="FILE.svg", help="draw them")
    add("--save", action="store_true", help="keep the result in bench/results, the plot in docs")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure, report, keep."""
    try:
        situations = [Situation(word) for word in options.situations.split(",") if word]
        chosen = [Contender(word) for word in options.brokers.split(",") if word]
        counts = [int(word) for word in options.publishers.split(",") if word]
    except ValueError as error:
        raise BenchError(
            f"{error}: situations are {', '.join(Situation)}; brokers are {', '.join(Contender)}; "
            "publishers are numbers"
        ) from None
    if not counts or min(counts) < 1 or max(counts) > MOST_PUBLISHERS or options.rounds < 1:
        raise BenchError(f"publishers: 1 to {MOST_PUBLISHERS}; rounds: at least 1")
    raise_descriptor_limit()
    outcomes: list[Outcome] = []
    versions: dict[str, str] = {}
    for path in options.add:
        found, known = report.read(path)
        outcomes += found
        versions |= known
    with contextlib.ExitStack() as stack:
        stack.enter_context(network.ended_by_signals())
        network.favour(os.getpid())
        place = None
        if any(situation in SLOW for situation in situations):
            place = stack.enter_context(network.namespace())
        steps = [(s, n, c) for s in situations for n in counts for c in chosen]
        try:
            for number, (situation, count, contender) in enumerate(steps):
                broker = contenders.broker(contender, situation, place.near if place else None)
                versions.setdefault(broker.name, broker.version)
                outcome = experiment.run(
                    broker, contender.form, situation, count, options.rounds, place, options.seed
                )
                outcomes.append(outcome)
                mean = outcome.latency["urgent"].mean
                said = f"[{number + 1}/{len(steps)}] {outcome.title}: urgent {mean:.2f} ms"
                print(said, file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            print("interrupted: reporting what was measured", file=sys.stderr)
    order = list(Situation)
    outcomes.sort(key=lambda one: (order.index(Situation(one.situation)), one.publishers))
    print(report.preamble(options.rounds, versions), end="\n\n")
    print(report.table(outcomes), end="\n\n")
    print(report.remarks(outcomes))
    _keep(options, report.document(outcomes, versions), outcomes)
    return 0


def _keep(
    options: argparse.Namespace, document: dict[str, object], outcomes: list[Outcome]
) -> None:
    files = [options.json] if options.json else []
    plots = [options.plot] if options.plot else []
    if options.save:
        files.append(RESULTS / f"{date.today().isoformat()}-emergency.json")
        plots.append(SAVED_PLOT)
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        print(f"written: {file}", file=sys.stderr)
    for file in plots:
        from bench.emergency.plot import draw  # noqa: PLC0415  (matplotlib takes a second)

        file.parent.mkdir(parents=True, exist_ok=True)
        draw(outcomes, file)
        print(f"written: {file}", file=sys.stderr)
