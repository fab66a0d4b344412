"""`python -m bench recorder`: what recording costs the broker, off, all, and 1 of 100."""

import argparse
import contextlib
import json
import re
import socket
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench import campaign, configured, report, shapes
from bench.brokers import REPOSITORY, Broker
from bench.campaign import Outcome, Step
from bench.shapes import Shape
from bench.target import Effort, Target

SHAPES = ("1to1-64-q0", "mixed-1to1", "1to1-64-q1")
MODES = {"off": None, "1 of 100": 0.01, "all": 1.0}
GOALS = {"1 of 100": 0.98, "all": 0.9}

WARM_UP = 2.0
"""Seconds: the encoder's start, mostly imports, is no cost of recording."""

RESULTS = REPOSITORY / "bench" / "results"


def register(commands: Any) -> None:
    parser = commands.add_parser("recorder", help="what recording costs the broker")
    parser.add_argument("--only", default=",".join(SHAPES), metavar="SHAPE,…")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N")
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S")
    parser.add_argument("--save", action="store_true", help="keep the result in bench/results")
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class Recording(Broker):
    """A broker that is asked, before it ends, how many records it wrote and lost."""

    port: int = 0
    told: list[tuple[int, int]] = field(default_factory=list)

    @contextlib.contextmanager
    def running(self) -> Iterator[Target]:
        with super().running() as target:
            yield target
            url = f"http://127.0.0.1:{self.port}/metrics"
            with urllib.request.urlopen(url, timeout=30) as page:
                text = page.read().decode()
            written, lost = (
                int(found[1])
                for name in ("records_total", "records_lost_total")
                if (found := re.search(rf"^headgate_{name} (\d+)", text, re.M))
            )
            self.told.append((written, lost))


@dataclass(frozen=True)
class Cost:
    """One shape in one mode."""

    shape: str
    mode: str
    rate: float
    ratio: float
    """Beside nothing recorded: the median over repetitions, each with its own neighbour."""
    lowest: float
    highest: float
    cpu: float
    """Seconds of the broker's process for a million messages, without the encoder's."""
    cpu_ratio: float


def run(options: argparse.Namespace) -> int:
    """Measure the modes one beside the other, and print the table."""
    chosen = shapes.select([name for name in options.only.split(",") if name])
    with TemporaryDirectory(prefix="headgate-bench-") as folder:
        return compare(chosen, folder, options)


def compare(chosen: Sequence[Shape], folder: str, options: argparse.Namespace) -> int:
    # The size of segments is that of production, the age makes several in a run.
    common = {"folder": folder, "segment_age": 1}
    brokers = [
        recording(mode, {} if share is None else {"recorder": {**common, "messages": share}})
        for mode, share in MODES.items()
    ]
    steps = campaign.plan(chosen, brokers, None, options.repetitions)

    def progress(number: int, step: Step, outcome: Outcome) -> None:
        print(f"[{number + 1}/{len(steps)}] {step.shape.name} {step.broker.name}", file=sys.stderr)

    effort = Effort(seconds=options.seconds, warm_up=WARM_UP)
    outcomes = list(campaign.carry_out(steps, effort, progress))
    costs = [cost(outcomes, shape.name, mode) for shape in chosen for mode in MODES]
    print("| | " + " | ".join(MODES) + " |")
    print("|---" * (1 + len(MODES)) + "|")
    for shape in chosen:
        own = [one for one in costs if one.shape == shape.name]
        print(f"| {shape.title} | " + " | ".join(map(cell, own)) + " |")
    told = {
        broker.name: [sum(column) for column in zip(*broker.told, strict=True)]
        for broker in brokers
    }
    for mode, (written, lost) in told.items():
        print(f"{mode}: {written:,} records written, {lost:,} lost")
    if options.save:
        save(costs, told, options)
    return 1 if any(outcome.error for outcome in outcomes) else 0


def recording(name: str, settings: Mapping[str, Any]) -> Recording:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    metrics = {"metrics": {"address": f"127.0.0.1:{port}"}}
    plain = configured.headgate(name, ["127.0.0.1"], {**settings, **metrics})
    return Recording(plain.name, plain.version, plain.command, port=port)


def cost(outcomes: Sequence[Outcome], shape: str, mode: str) -> Cost:
    rates, cpus = values(outcomes, shape, mode, "rate"), values(outcomes, shape, mode, "cpu")
    ratios = beside(rates, values(outcomes, shape, "off", "rate"))
    cpu_ratios = beside(cpus, values(outcomes, shape, "off", "cpu"))
    return Cost(
        shape,
        mode,
        median(rates.values()) if rates else 0.0,
        median(ratios),
        min(ratios),
        max(ratios),
        median(cpus.values()) if cpus else 0.0,
        median(cpu_ratios),
    )


def values(outcomes: Sequence[Outcome], shape: str, broker: str, key: str) -> dict[int, float]:
    """By repetition."""
    return {
        outcome.repetition: outcome.measurement.values[key]
        for outcome in outcomes
        if outcome.shape == shape and outcome.broker == broker and outcome.measurement is not None
        if key in outcome.measurement.values
    }


def beside(some: Mapping[int, float], base: Mapping[int, float]) -> list[float]:
    """Ratios within each repetition; a list of one 0 if there is none."""
    return [value / base[key] for key, value in some.items() if base.get(key)] or [0.0]


def cell(one: Cost) -> str:
    if one.mode not in GOALS:
        return f"{one.rate:,.0f}/s, {one.cpu:.3g} s/M"
    mark = "✓" if one.ratio >= GOALS[one.mode] else "✗"
    spread = f"{one.lowest:.2f}–{one.highest:.2f}"
    return f"{one.ratio:.2f} × ({spread}) {mark}, CPU {one.cpu_ratio:.2f} ×"


def save(costs: Sequence[Cost], told: Mapping[str, Sequence[int]], options: Any) -> None:
    file = Path(RESULTS / f"{date.today().isoformat()}-recorder.json")
    document = {
        "date": date.today().isoformat(),
        "machine": report.machine(),
        "repetitions": options.repetitions,
        "seconds": options.seconds,
        "goals": GOALS,
        "costs": [vars(one) for one in costs],
        "records": {mode: {"written": w, "lost": lost} for mode, (w, lost) in told.items()},
    }
    file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    print(f"written: {file}", file=sys.stderr)
