"""How long one prediction of the network model takes, from 80 to 100,000 subscriptions.

    python -m bench.simulator.predicting            # about a minute, most of it to make scenarios

CPU time of one core, which other programs on the machine disturb less than they disturb the clock.
The goal is 1 ms for 80 subscriptions and 100 ms for 100,000.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

import numpy as np

from bench.report import machine
from headgate.contract import LinkSpec, PolicyRule
from headgate.experiments.planemqx import PLAN
from headgate.experiments.scenarios import load
from headgate.model import Client, Connectivity, Model, Scenario, Settings, Shape, Topic

RESULTS = Path(__file__).parents[1] / "results"
FLOWS = 100_000
MOBILE = Connectivity(on=60.0, off=20.0, drain=500.0)


@dataclass(frozen=True)
class Crowd:
    """Random subscriptions of `clients` behind `links`, each link loaded to about 80 %."""

    name: str
    clients: int = 10_000
    links: int = 10
    topics: int = 10_000
    levels: int = 8
    away: int = 0
    """So many of the clients come and go."""
    alike: bool = True
    """They do so with the same periods and drain rate."""
    own_join: bool = False
    """Every flow has a join probability of its own."""

    def scenario(self) -> Scenario:
        rng = np.random.default_rng(1)
        published = tuple(
            Topic(
                name=f"t{number}",
                rate=float(rng.uniform(0.01, 1)),
                size=int(rng.integers(50, 2000)),
                sizes=Shape.EXPONENTIAL if number % 2 else Shape.CONSTANT,
            )
            for number in range(self.topics)
        )
        each = FLOWS // self.clients
        clients = tuple(
            Client(
                name=f"c{number}",
                subscriptions=tuple(f"t{t}" for t in rng.choice(self.topics, each, replace=False)),
                connectivity=self._connectivity(rng) if number < self.away else None,
            )
            for number in range(self.clients)
        )
        offered = sum(topic.mean_rate * topic.size * 8 for topic in published)
        rate = int(offered * FLOWS / self.topics / self.links / 0.8)
        links = tuple(
            LinkSpec(
                name=f"l{first}",
                clients=tuple(c.name for c in clients[first :: self.links]),
                rate=rate,
            )
            for first in range(self.links)
        )
        return Scenario(topics=published, clients=clients, links=links)

    def _connectivity(self, rng: np.random.Generator) -> Connectivity:
        if self.alike:
            return MOBILE
        on, off, drain = rng.uniform((20, 5, 50), (200, 100, 1000))
        return Connectivity(on=float(on), off=float(off), drain=float(drain))

    def settings(self) -> Settings:
        rng = np.random.default_rng(2)
        settings = Settings.default(FLOWS)
        settings.priority[:] = rng.integers(0, self.levels, FLOWS)
        settings.drop[:] = rng.uniform(0, 0.1, FLOWS)
        settings.join[:] = rng.uniform(0, 1, FLOWS) if self.own_join else 0.5
        return settings


EVERYBODY = 100_000
CROWDS = (
    Crowd("10,000 clients, 10 links, 8 levels"),
    Crowd("the same with 10,000 links", links=10_000),
    Crowd("the same with 16 levels", levels=16),
    Crowd("100,000 clients, one topic", clients=EVERYBODY, topics=1),
    Crowd("10,000 clients, half come and go", away=5_000),
    Crowd("10,000 clients that all come and go, ten flows each", away=10_000, alike=False),
    Crowd(
        "100,000 clients that all come and go, each with its own ζ",
        clients=EVERYBODY,
        away=EVERYBODY,
        own_join=True,
    ),
    Crowd(
        "the same, each with its own periods and drain rate",
        clients=EVERYBODY,
        away=EVERYBODY,
        own_join=True,
        alike=False,
    ),
)


def predictions(turns: int, tell: Callable[[str], None] = lambda _: None) -> dict[str, float]:
    """Seconds of CPU for one prediction, by scenario: the median."""
    planemqx = Model(load("planemqx"))
    settings = planemqx.table.settings(PLAN)
    results = {
        "80 subscriptions (PlanEMQX), settings as arrays": _median(planemqx, settings, 100 * turns),
        "80 subscriptions (PlanEMQX), policy as rules": _median(planemqx, PLAN, 100 * turns),
    }
    for crowd in CROWDS:
        tell(crowd.name)
        results[crowd.name] = _median(Model(crowd.scenario()), crowd.settings(), 2 * turns)
    return results


def _median(model: Model, policy: Settings | Sequence[PolicyRule], times: int) -> float:
    model.predict(policy)
    taken = []
    for _ in range(times):
        started = time.process_time()
        model.predict(policy)
        taken.append(time.process_time() - started)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.simulator.predicting",
        description="How long one prediction of the network model takes, in CPU time.",
    )
    parser.add_argument("--turns", type=int, default=5, help="of two predictions each")
    parser.add_argument("--json", type=Path, help="keep the figures in this file")
    parser.add_argument("--save", action="store_true", help="keep them in bench/results")
    options = parser.parse_args()
    results = predictions(options.turns, lambda name: print(name, file=sys.stderr))
    for name, seconds in results.items():
        print(f"{name:60}{1000 * seconds:9.2f} ms")
    files = [options.json] if options.json else []
    if options.save:
        files.append(RESULTS / f"{date.today()}-prediction.json")
    for file in files:
        document = {
            "date": str(date.today()),
            "machine": machine(),
            "versions": {name: version(name) for name in ("headgate", "numpy", "scipy")},
            "turns": options.turns,
            "prediction_s": results,
        }
        file.write_text(json.dumps(document, indent=1) + "\n")
        print(f"written: {file}", file=sys.stderr)


if __name__ == "__main__":
    main()
