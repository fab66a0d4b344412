"""`python -m bench planner`: how long planning takes, by number of subscriptions.

Sites of 50 applications in ten kinds of requirement, on links of about a thousand subscriptions, at
85 % of the load that a link carries. CPU time of the whole: scenario to policy, with expectations
before and after.
"""

from __future__ import annotations

import argparse
import json
import time
from random import Random

from headgate.contract import Application, LinkSpec, Requirement
from headgate.control.planning import plan
from headgate.experiments.scenarios import load
from headgate.model import Client, Scenario, Topic

TOPICS = 200
KINDS = 10
PER_CLIENT = 5
PER_LINK = 1000


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("planner", help="how long planning takes, by size")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--engine", default="exact", help="for the paper's workload: exact, enhsp")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    rows = [measure("planemqx (80)", load("planemqx"), options.engine)]
    rows += [measure(f"{size}", site(size), "exact") for size in options.sizes]
    if options.json:
        print(json.dumps(rows, indent=1))
        return 0
    print(f"{'subscriptions':<16}{'links':>7}{'wall s':>9}{'CPU s':>9}  verdict")
    for row in rows:
        print(
            f"{row['name']:<16}{row['links']:>7}{row['seconds']:>9.2f}{row['cpu']:>9.2f}"
            f"  {row['verdict']} ({row['engine']})"
        )
    return 0


def measure(name: str, scenario: Scenario, engine: str) -> dict[str, object]:
    wall, cpu = time.perf_counter(), time.process_time()
    made = plan(scenario, seconds=60, engine=engine)
    return {
        "name": name,
        "links": len(scenario.links),
        "seconds": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "verdict": str(made.verdict),
        "engine": engine,
        "rules": len(made.policy.rules),
    }


def site(subscriptions: int, seed: int = 1) -> Scenario:
    """A site of this many subscriptions."""
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
            LinkSpec(name=f"l{number}", clients=(f"l{number}-*",), rate=round(load / 0.85))
        )
    return Scenario(
        topics=topics, clients=tuple(clients), applications=applications, links=tuple(links)
    )
