"""`python -m bench planner`: how long planning takes, by number of subscriptions and by engine.

The paper's workload (80 subscriptions) with each engine, and sites of 50 applications in ten kinds
of requirement, on links of about a thousand subscriptions, with the default planner: at 85 % of the
load that a link carries, and at 102 %, where something has to be dropped. Time of the whole:
scenario to policy, with expectations before and after.
"""

import argparse
import json
import resource
import sys
import time
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from random import Random
from statistics import median

from bench.brokers import REPOSITORY
from bench.report import aligned, machine
from headgate.contract import Application, LinkSpec, Requirement
from headgate.control.planning import plan
from headgate.experiments.scenarios import load
from headgate.model import Client, Scenario, Topic

TOPICS = 200
KINDS = 10
PER_CLIENT = 5
PER_LINK = 1000


GOALS = {("exact", 80): 0.2, ("enhsp", 80): 2.0, ("exact", 10_000): 5.0, ("exact", 100_000): 60.0}
"""Seconds, by engine and subscriptions."""


@dataclass(frozen=True)
class Measured:
    """One size with one engine."""

    subscriptions: int
    links: int
    engine: str
    verdict: str
    dropped: float
    """Messages per second, by weight: what the plan costs."""
    rules: int
    seconds: list[float]
    """Wall time of each repetition."""
    cpu: list[float]
    """CPU time of each, with that of engines' processes."""
    load: float | None = None
    """Of a site's links."""

    @property
    def goal(self) -> float | None:
        return GOALS.get((self.engine, self.subscriptions))


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("planner", help="how long planning takes, by size and engine")
    parser.add_argument("--sizes", type=int, nargs="*", default=[1000, 10_000, 100_000])
    parser.add_argument(
        "--loads", type=float, nargs="+", default=[0.85, 1.02], help="of the sites' links"
    )
    parser.add_argument(
        "--engines", nargs="+", default=["exact", "enhsp", "lpg"], help="for the paper's workload"
    )
    parser.add_argument("--repetitions", type=int, default=5, help="of the paper's workload")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure")
    parser.add_argument("--save", action="store_true", help="keep the result in bench/results")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    load("planemqx")
    plan(site(50))  # what is imported and compiled once is no part of planning
    rows = [measure(load("planemqx"), engine, options.repetitions) for engine in options.engines]
    for size in options.sizes:
        for utilisation in options.loads:
            scenario = site(size, utilisation=utilisation)
            rows.append(measure(scenario, "exact", 3 if size <= 10_000 else 1, utilisation))
            print(f"{size:,}: {rows[-1].seconds[-1]:.2f} s", file=sys.stderr, flush=True)
    header = ["subscriptions", "links", "load", "engine", "verdict", "drops/s", "wall s", "CPU s"]
    shown = [[*header, "goal"]]
    for row in rows:
        goal = "" if row.goal is None else f"{row.goal:g} s"
        if row.goal is not None:
            goal += " ✓" if max(row.seconds) < row.goal else " ✗"
        shown.append(
            [
                f"{row.subscriptions:,}",
                str(row.links),
                "paper's" if row.load is None else f"{row.load:g}",
                row.engine,
                row.verdict,
                f"{row.dropped:.1f}",
                f"{median(row.seconds):.2f} (most {max(row.seconds):.2f})",
                f"{median(row.cpu):.2f}",
                goal,
            ]
        )
    print(aligned(shown, 5))
    print("\nMetric-FF, as PlanEMQX reports it (§V-B): a few seconds")
    document = {
        "date": date.today().isoformat(),
        "machine": machine(),
        "runs": [asdict(row) for row in rows],
    }
    files = [options.json] if options.json else []
    if options.save:
        files.append(REPOSITORY / "bench" / "results" / f"{document['date']}-planner.json")
    for file in files:
        file.write_text(json.dumps(document, indent=1) + "\n")
        print(f"written: {file}", file=sys.stderr)
    return 0


def measure(
    scenario: Scenario, engine: str, repetitions: int, load: float | None = None
) -> Measured:
    """Scenario to policy, with what is expected before and after."""
    seconds, cpu = [], []
    for _ in range(max(1, repetitions)):
        wall, used = time.perf_counter(), _cpu()
        made = plan(scenario, seconds=60, engine=engine)
        seconds.append(time.perf_counter() - wall)
        cpu.append(_cpu() - used)
    return Measured(
        sum(len(client.subscriptions) for client in scenario.clients),
        len(scenario.links),
        engine,
        str(made.verdict),
        made.cost,
        len(made.policy.rules),
        seconds,
        cpu,
        load,
    )


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def site(subscriptions: int, seed: int = 1, utilisation: float = 0.85) -> Scenario:
    """A site of this many subscriptions; above 1, something has to be dropped."""
    rng = Random(seed)
    topics = tuple(
        Topic(name=f"t{n}", rate=rng.uniform(0.5, 5), size=rng.choice([100, 400, 1000, 2000]))
        for n in range(TOPICS)
    )
    kinds = [
        Requirement(mean_ms=50.0 * 2**n, loss=rng.choice([0.0, 0.05, 0.2])) for n in range(KINDS)
    ]
    applications = tuple(
        Application(name=f"a{n}", category=f"c{n % KINDS}", requirement=kinds[n % KINDS])
        for n in range(50)
    )
    bits = {topic.name: (topic.rate or 0) * topic.size * 8 for topic in topics}
    names = list(bits)
    clients: list[Client] = []
    links: list[LinkSpec] = []
    for number in range(max(1, subscriptions // PER_LINK)):
        load = 0.0
        for one in range(min(subscriptions, PER_LINK) // PER_CLIENT):
            chosen = rng.sample(names, PER_CLIENT)
            load += sum(bits[name] for name in chosen)
            clients.append(
                Client(
                    name=f"l{number}-{one}",
                    subscriptions=tuple(chosen),
                    application=f"a{rng.randrange(50)}",
                )
            )
        links.append(
            LinkSpec(name=f"l{number}", clients=(f"l{number}-*",), rate=round(load / utilisation))
        )
    return Scenario(
        topics=topics, clients=tuple(clients), applications=applications, links=tuple(links)
    )
