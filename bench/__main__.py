"""`python -m bench COMMAND`: compare MQTT brokers."""

import argparse
import json
import signal
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

from bench import (
    brokers,
    bystanders,
    campaign,
    configured,
    core,
    memory,
    planner,
    policy,
    reaction,
    recorder,
    report,
    shapes,
    snapshots,
)
from bench.brokers import REPOSITORY, BenchError, Broker
from bench.campaign import Outcome, Step
from bench.congestion import command as congestion
from bench.dynamic import command as dynamic
from bench.emergency import command as emergency
from bench.pipeline import command as pipeline
from bench.planemqx import command as planemqx
from bench.target import QUICK, Effort

RESULTS = REPOSITORY / "bench" / "results"
SAVED_PLOT = REPOSITORY / "docs" / "img" / "broker.png"

KNOWN = {
    **brokers.KNOWN,
    "configured": configured.everything,
    "observed": snapshots.observed,
}

_EXAMPLES = """examples:
  python -m bench broker --quick
  python -m bench broker --only '1to1-*,rtt' --repetitions 5
  python -m bench broker --brokers headgate,configured,mosquitto --only '1to1-*,mixed*'
  python -m bench broker --brokers mosquitto --broker other=127.0.0.1:1883
  python -m bench broker --broker 'pure=VARIABLE=1 headgate serve --port {port} --data-dir {dir}'
"""


def main(arguments: list[str] | None = None) -> int:
    """Parse, measure, report."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    broker = commands.add_parser(
        "broker",
        help="compare MQTT brokers",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    broker.set_defaults(run=_broker)
    alone = commands.add_parser("core", help="what a delivery costs the core alone, in CPU time")
    alone.set_defaults(run=lambda _: core.main())
    taking = commands.add_parser("memory", help="what memory takes, and what is counted for it")
    taking.set_defaults(run=lambda _: memory.main())
    standing = commands.add_parser(
        "bystanders", help="how long others' messages take while one client makes trouble"
    )
    standing.set_defaults(run=lambda _: bystanders.main())
    settling = commands.add_parser(
        "policy", help="how long a policy for 10,000 flows stalls others"
    )
    settling.set_defaults(run=lambda _: policy.main())
    measuring = commands.add_parser(
        "snapshots", help="which part of the broker's time snapshots of 10,000 flows take"
    )
    measuring.set_defaults(run=lambda _: snapshots.main())
    add = broker.add_argument
    add("--quick", action="store_true", help="short and once: a smoke test, not a result")
    add("--only", default="", metavar="SHAPE,…", help="names or patterns such as '1to1-*'")
    add("--list", action="store_true", help="list the shapes and stop")
    add("--repetitions", type=int, metavar="N", help="default 3, with --quick 1")
    add("--seconds", type=float, metavar="S", help="measured time of each shape (default 1)")
    add("--in-flight", type=int, metavar="N", help="of one publisher at QoS 1 and 2 (1000)")
    add("--window", type=int, metavar="BYTES", help="published, not yet delivered (4 MiB)")
    add("--brokers", default="headgate,mosquitto", help=f"of {', '.join(KNOWN)}")
    add("--broker", action="append", default=[], metavar="NAME=…", help="host:port or a command")
    add("--no-ceiling", action="store_true", help="do not measure the driver's own limit")
    add("--json", type=Path, metavar="FILE", help="write every figure")
    add("--plot", type=Path, metavar="FILE.svg", help="draw the ratios")
    add("--save", action="store_true", help="keep the result in bench/results, the plot in docs")
    congestion.register(commands)
    emergency.register(commands)
    planemqx.register(commands)
    dynamic.register(commands)
    recorder.register(commands)
    planner.register(commands)
    pipeline.register(commands)
    reaction.register(commands)
    return parser


def _broker(options: argparse.Namespace) -> int:
    if options.list:
        for shape in shapes.SHAPES:
            print(f"{shape.name:22} {shape.title}")
        return 0
    try:
        chosen = shapes.select([name for name in options.only.split(",") if name])
    except ValueError as error:
        raise BenchError(str(error)) from None
    effort, repetitions = _effort(options)
    contenders = _contenders(options)
    ceiling = None if options.no_ceiling else brokers.relay()
    # So that a terminated run still stops the broker it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    steps = campaign.plan(chosen, contenders, ceiling, repetitions)

    def progress(number: int, step: Step, outcome: Outcome) -> None:
        print(f"[{number + 1}/{len(steps)}] {_line(step, outcome)}", file=sys.stderr, flush=True)

    outcomes: list[Outcome] = []
    try:
        for outcome in campaign.carry_out(steps, effort, progress):
            outcomes.append(outcome)  # noqa: PERF402  (keeps what there is when interrupted)
    except KeyboardInterrupt:
        print("interrupted: reporting what was measured", file=sys.stderr)
    rows = report.summarise(chosen, contenders, outcomes)
    print(report.preamble(contenders, effort, repetitions), end="\n\n")
    print(report.table(rows, contenders, outcomes))
    document = report.document(rows, contenders, outcomes, effort, repetitions)
    _write(options, document, rows)
    return 1 if any(outcome.error for outcome in outcomes) else 0


def _effort(options: argparse.Namespace) -> tuple[Effort, int]:
    effort = QUICK if options.quick else Effort()
    if options.seconds:
        effort = replace(effort, seconds=options.seconds)
    if options.in_flight:
        effort = replace(effort, in_flight=options.in_flight)
    if options.window:
        effort = replace(effort, window_bytes=options.window)
    return effort, options.repetitions or (1 if options.quick else 3)


def _contenders(options: argparse.Namespace) -> list[Broker]:
    found = []
    for name in filter(None, options.brokers.split(",")):
        if name not in KNOWN:
            raise BenchError(f"--brokers {name}: known are {', '.join(KNOWN)}")
        found.append(KNOWN[name]())
    found += [brokers.named(text) for text in options.broker]
    names = [broker.name for broker in found]
    if len(set(names)) < len(names):
        raise BenchError(f"two brokers have the same name: {', '.join(names)}")
    return found


def _line(step: Step, outcome: Outcome) -> str:
    where = f"{step.shape.name} {step.broker.name}"
    if outcome.measurement is None:
        return f"{where}: {outcome.error}"
    values = outcome.measurement.values
    figures = [
        f"{report.number(values[metric.key])} {metric.unit}"
        for metric in step.shape.metrics
        if metric.key in values
    ]
    lost = f", lost {outcome.measurement.lost:,}" if outcome.measurement.lost else ""
    return f"{where}: {', '.join(figures)}{lost}"


def _write(
    options: argparse.Namespace, document: dict[str, object], rows: list[report.Row]
) -> None:
    files = [options.json] if options.json else []
    plots = [options.plot] if options.plot else []
    if options.save:
        files.append(RESULTS / f"{date.today().isoformat()}-broker.json")
        plots.append(SAVED_PLOT)
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        print(f"written: {file}", file=sys.stderr)
    for file in plots:
        from bench.plot import draw  # noqa: PLC0415  (matplotlib takes a second to load)

        shape = ", ".join(f"{key} {value}" for key, value in report.machine().items())
        draw(rows, file, f"{date.today().isoformat()}; {shape}")
        print(f"written: {file}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
