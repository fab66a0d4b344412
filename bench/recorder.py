"""`python -m bench recorder`: what recording costs the broker, and what capturing does.

Of each shape: nothing recorded, 1 of 100, all. The cost is told three times: as throughput, for
which driver, broker and encoder share the cores; as CPU time of the broker's process for a message,
which is what recording takes from the loop; and as that of the encoder for a record.
"""

import argparse
import contextlib
import json
import re
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench import campaign, configured, report, shapes
from bench.brokers import REPOSITORY, BenchError, Broker
from bench.campaign import Outcome, Step
from bench.pipelined import Pattern, run_pattern
from bench.shapes import Metric, Shape
from bench.target import Effort, Target, children, cpu_of

RECORDED = (
    "1to1-64-q0",
    "1to10-64-q0",
    "1to1-64-q1",
    "1to10-64-q1",
    "mixed-1to1",
    "mixed-1to10",
)
MODES: dict[str, dict[str, Any]] = {
    "off": {},
    "1 of 100": {"messages": 0.01},
    "all": {"messages": 1.0},
}
GOALS = {"1 of 100": (0.98, 1.02), "all": (0.9, 1.1)}
"""Throughput at least, CPU time of the broker at most, beside nothing recorded."""

CAPTURED = ("1to1-64-q1", "1to1-64-q1-lasting")
CAPTURES: dict[str, dict[str, Any]] = {
    "off": {},
    "best effort": {"messages": 0, "captures": [{"topics": "#"}]},
    "guaranteed": {"messages": 0, "captures": [{"topics": "#", "capture": "guaranteed"}]},
}

LASTING = Shape(
    "1to1-64-q1-lasting",
    "1 → 1, 64 B, QoS 1, a session that lasts",
    partial(run_pattern, pattern=Pattern(1, 1), payload=64, qos=1, lasting=True),
    (Metric("rate", "msg/s"),),
)

WARM_UP = 0.5
START_LIMIT = 30.0

RESULTS = REPOSITORY / "bench" / "results"


def register(commands: Any) -> None:
    parser = commands.add_parser("recorder", help="what recording and capturing cost the broker")
    parser.add_argument("--only", default="", metavar="SHAPE,…")
    parser.add_argument("--captures", action="store_true", help="captured messages, not records")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N")
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S")
    parser.add_argument(
        "--save", action="store_true", help="add the result to today's in bench/results"
    )
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class Told:
    """What a broker said of its records before it ended."""

    written: int
    lost: int
    encoder: float
    """Seconds of the encoder's CPU time since it was ready."""


@dataclass(frozen=True)
class Recording(Broker):
    """A broker whose encoder is awaited, and which is asked in the end how it went."""

    port: int = 0
    records: bool = False
    told: list[Told] = field(default_factory=list)

    @contextlib.contextmanager
    def running(self) -> Iterator[Target]:
        with super().running() as target:
            assert target.pid is not None
            assert target.directory is not None
            encoders = self._await_encoder(target.pid, target.directory) if self.records else []
            before = sum(map(cpu_of, encoders))
            yield target
            url = f"http://127.0.0.1:{self.port}/metrics"
            with urllib.request.urlopen(url, timeout=30) as page:
                text = page.read().decode()
            written, lost = (
                int(found[1])
                for name in ("records_total", "records_lost_total")
                if (found := re.search(rf"^headgate_{name} (\d+)", text, re.M))
            )
            self.told.append(Told(written, lost, sum(map(cpu_of, encoders)) - before))

    def _await_encoder(self, pid: int, directory: Path) -> list[int]:
        """Its start, mostly imports, is no cost of recording: until it wrote something."""
        limit = time.monotonic() + START_LIMIT
        while not list(directory.glob("records/connections/*/*")):
            if time.monotonic() > limit:
                raise BenchError("the encoder of the records does not begin.")
            time.sleep(0.02)
        return children(pid)


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
    cpu_lowest: float
    cpu_highest: float
    written: int
    lost: int
    encoder: float
    """Microseconds of the encoder for a record."""


def run(options: argparse.Namespace) -> int:
    """Measure the modes one beside the other, and print the table."""
    names = [name for name in options.only.split(",") if name]
    wanted = names or list(CAPTURED if options.captures else RECORDED)
    modes = CAPTURES if options.captures else MODES
    chosen = shapes.select([name for name in wanted if name != LASTING.name])
    if LASTING.name in wanted:
        chosen.append(LASTING)
    return compare(chosen, modes, options)


def compare(
    chosen: Sequence[Shape], modes: Mapping[str, dict[str, Any]], options: argparse.Namespace
) -> int:
    brokers = [recording(mode, settings) for mode, settings in modes.items()]
    steps = campaign.plan(chosen, brokers, None, options.repetitions)
    told: dict[tuple[str, str], list[Told]] = {}

    def progress(number: int, step: Step, outcome: Outcome) -> None:
        print(f"[{number + 1}/{len(steps)}] {step.shape.name} {step.broker.name}", file=sys.stderr)
        if outcome.error:
            print(f"  {outcome.error}", file=sys.stderr)
        elif isinstance(step.broker, Recording):
            told.setdefault((step.shape.name, step.broker.name), []).append(step.broker.told[-1])

    effort = Effort(seconds=options.seconds, warm_up=WARM_UP)
    outcomes = list(campaign.carry_out(steps, effort, progress))
    costs = [
        cost(outcomes, shape.name, mode, told.get((shape.name, mode), []))
        for shape in chosen
        for mode in modes
    ]
    print("| | " + " | ".join(modes) + " |")
    print("|---" * (1 + len(modes)) + "|")
    for shape in chosen:
        own = [one for one in costs if one.shape == shape.name]
        print(f"| {shape.title} | " + " | ".join(map(cell, own)) + " |")
    if options.save:
        save(costs, "captures" if options.captures else "costs", options)
    return 1 if any(outcome.error for outcome in outcomes) else 0


def recording(name: str, settings: Mapping[str, Any]) -> Recording:
    """A broker with a page of metrics, which records into its own directory."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])

    def command(service: int, directory: Path) -> list[str]:
        config: dict[str, Any] = {"metrics": {"address": f"127.0.0.1:{port}"}}
        if settings:
            # The size of segments is that of production, the age makes several in a run.
            common = {"folder": str(directory / "records"), "segment_age": 1}
            config["recorder"] = {**common, **settings}
        broker = configured.headgate(name, ["127.0.0.1"], config)
        assert broker.command is not None
        return broker.command(service, directory)

    version = configured.headgate(name, ["127.0.0.1"], {}).version
    return Recording(name, version, command, port=port, records=bool(settings))


def cost(outcomes: Sequence[Outcome], shape: str, mode: str, told: Sequence[Told]) -> Cost:
    rates, cpus = values(outcomes, shape, mode, "rate"), values(outcomes, shape, mode, "cpu")
    ratios = beside(rates, values(outcomes, shape, "off", "rate"))
    cpu_ratios = beside(cpus, values(outcomes, shape, "off", "cpu"))
    written = sum(one.written for one in told)
    return Cost(
        shape,
        mode,
        median(rates.values()) if rates else 0.0,
        median(ratios),
        min(ratios),
        max(ratios),
        median(cpus.values()) if cpus else 0.0,
        median(cpu_ratios),
        min(cpu_ratios),
        max(cpu_ratios),
        written,
        sum(one.lost for one in told),
        sum(one.encoder for one in told) / written * 1e6 if written else 0.0,
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
    if one.mode == "off":
        return f"{one.rate:,.0f}/s, {one.cpu:.3g} s/M"
    marks = ("", "")
    if one.mode in GOALS:
        least, most = GOALS[one.mode]
        marks = (" ✓" if one.ratio >= least else " ✗", " ✓" if one.cpu_ratio <= most else " ✗")
    text = (
        f"{one.ratio:.2f} × ({one.lowest:.2f}–{one.highest:.2f}){marks[0]}, "
        f"CPU {one.cpu_ratio:.2f} × ({one.cpu_lowest:.2f}–{one.cpu_highest:.2f}){marks[1]}"
    )
    if one.mode in GOALS:
        text += f", {one.written:,} records at {one.encoder:.2f} µs, {one.lost:,} lost"
    return text


def save(costs: Sequence[Cost], part: str, options: Any) -> None:
    """Add to what was measured today. Of shapes that were measured again, both results stay."""
    file = Path(RESULTS / f"{date.today().isoformat()}-recorder.json")
    document: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    shapes_now = {one.shape for one in costs}
    before = document.get(part, [])
    kept = [one for one in before if one["shape"] not in shapes_now]
    replaced = [one for one in before if one["shape"] in shapes_now]
    mine = [
        {**vars(one), "repetitions": options.repetitions, "seconds": options.seconds}
        for one in costs
    ]
    document |= {
        "date": date.today().isoformat(),
        "machine": report.machine(),
        "goals": GOALS,
        part: [*kept, *mine],
    }
    if replaced:
        document.setdefault("earlier", {}).setdefault(part, []).extend(replaced)
    file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    print(f"written: {file}", file=sys.stderr)
