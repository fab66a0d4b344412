"""`python -m bench recorder`: what recording costs the broker, off, all, and 1 of 100."""

import argparse
import sys
from collections.abc import Sequence
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench import campaign, configured, shapes
from bench.campaign import Outcome, Step
from bench.shapes import Shape
from bench.target import Effort

SHAPES = ("1to1-64-q0", "mixed-1to1", "1to1-64-q1")
MODES = {"off": None, "1 of 100": 0.01, "all": 1.0}


def register(commands: Any) -> None:
    parser = commands.add_parser("recorder", help="what recording costs the broker")
    parser.add_argument("--only", default=",".join(SHAPES), metavar="SHAPE,…")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N")
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure the modes one beside the other, and print the table."""
    chosen = shapes.select([name for name in options.only.split(",") if name])
    with TemporaryDirectory(prefix="headgate-bench-") as folder:
        return compare(chosen, folder, options)


def compare(chosen: Sequence[Shape], folder: str, options: argparse.Namespace) -> int:
    # The size of segments is that of production, the age makes several in a run.
    common = {"folder": folder, "segment_age": 1}
    brokers = [
        configured.headgate(
            mode,
            ["127.0.0.1"],
            {} if share is None else {"recorder": {**common, "messages": share}},
        )
        for mode, share in MODES.items()
    ]
    steps = campaign.plan(chosen, brokers, None, options.repetitions)

    def progress(number: int, step: Step, outcome: Outcome) -> None:
        print(f"[{number + 1}/{len(steps)}] {step.shape.name} {step.broker.name}", file=sys.stderr)

    effort = Effort(seconds=options.seconds)
    outcomes = list(campaign.carry_out(steps, effort, progress))
    print("| | " + " | ".join(f"{mode}, {unit}" for unit in ("/s", "CPU") for mode in MODES) + " |")
    print("|---" * (1 + 2 * len(MODES)) + "|")
    for shape in chosen:
        rates = [value(outcomes, shape.name, mode, "rate") for mode in MODES]
        costs = [value(outcomes, shape.name, mode, "cpu") for mode in MODES]
        cells = [
            *(f"{rate:,.0f} ({rate / rates[0]:.2f} ×)" for rate in rates),
            *(f"{cost:.3g} s/M ({cost / costs[0]:.2f} ×)" if costs[0] else "" for cost in costs),
        ]
        print(f"| {shape.name} | " + " | ".join(cells) + " |")
    return 1 if any(outcome.error for outcome in outcomes) else 0


def value(outcomes: Sequence[Outcome], shape: str, broker: str, key: str) -> float:
    """The median over the repetitions; 0 if there is none."""
    found = [
        outcome.measurement.values[key]
        for outcome in outcomes
        if outcome.shape == shape and outcome.broker == broker and outcome.measurement is not None
        if key in outcome.measurement.values
    ]
    return median(found) if found else 0.0
