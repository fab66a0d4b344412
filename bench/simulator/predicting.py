"""How long one prediction of the network model takes, from 80 to 100,000 subscriptions."""

from __future__ import annotations

import statistics
import time

import numpy as np

from headgate.contract import LinkSpec
from headgate.experiments.planemqx import PLAN
from headgate.experiments.scenarios import load
from headgate.model import Client, Connectivity, Model, Scenario, Settings, Shape, Topic


def large(flows: int, *, topics: int, clients: int, links: int, away: int = 0) -> Scenario:
    """Random subscriptions of `clients` behind `links`, each loaded to about 80 %."""
    rng = np.random.default_rng(1)
    each = flows // clients
    published = tuple(
        Topic(
            name=f"t{number}",
            rate=float(rng.uniform(0.01, 1)),
            size=int(rng.integers(50, 2000)),
            sizes=Shape.EXPONENTIAL if number % 2 else Shape.CONSTANT,
        )
        for number in range(topics)
    )
    mobile = Connectivity(on=60.0, off=20.0, drain=500.0)
    load_bps = sum(topic.mean_rate * topic.size * 8 for topic in published) * flows / topics / links
    return Scenario(
        topics=published,
        clients=tuple(
            Client(
                name=f"l{number % links}-{number}",
                subscriptions=tuple(f"t{t}" for t in rng.choice(topics, each, replace=False)),
                connectivity=mobile if number < away else None,
            )
            for number in range(clients)
        ),
        links=tuple(
            LinkSpec(name=f"l{number}", clients=(f"l{number}-*",), rate=int(load_bps / 0.8))
            for number in range(links)
        ),
    )


def predictions(turns: int) -> dict[str, float]:
    """Seconds of CPU for one prediction, by scenario: the median."""
    planemqx = Model(load("planemqx"))
    settings = planemqx.table.settings(PLAN)
    results = {
        "80 subscriptions (PlanEMQX), settings as arrays": _median(planemqx, settings, 100 * turns),
        "80 subscriptions (PlanEMQX), policy as rules": _median(planemqx, PLAN, 100 * turns),
    }
    rng = np.random.default_rng(2)
    for name, scenario in {
        "100,000 subscriptions": large(100_000, topics=10_000, clients=10_000, links=10),
        "100,000, half of the 10,000 clients come and go": large(
            100_000, topics=10_000, clients=10_000, links=10, away=5_000
        ),
        "100,000 of 100,000 clients that all come and go": large(
            100_000, topics=10_000, clients=100_000, links=10, away=100_000
        ),
    }.items():
        model = Model(scenario)
        flows = len(model.table)
        varied = Settings.default(flows)
        varied.priority[:] = rng.integers(0, 8, flows)
        varied.drop[:] = rng.uniform(0, 0.1, flows)
        varied.join[:] = rng.uniform(0, 1, flows) if flows == len(scenario.clients) else 0.5
        results[name] = _median(model, varied, 2 * turns)
    return results


def _median(model: Model, policy: object, times: int) -> float:
    model.predict(policy)  # type: ignore[arg-type]
    taken = []
    for _ in range(times):
        started = time.process_time()
        model.predict(policy)  # type: ignore[arg-type]
        taken.append(time.process_time() - started)
    return statistics.median(taken)
