"""Measure the simulator on one core, in CPU time, and say how far ahead it is.

    python -m bench.simulator            # two to three minutes
    python -m bench.simulator --save     # and keep the result in bench/results
    python -m bench.simulator --quick    # a few seconds, noisy

`python -m bench.simulator.predicting` measures the model.

Contenders (`pip install 'headgate[bench]'`) run the same models in the same process, in turns.
Every run must agree with theory within 10 %: a fast wrong simulation does not count. Compilation is
not measured; it happens once per machine and is cached.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from bench.report import machine
from bench.simulator import contenders
from bench.simulator.models import MODELS, Queues
from headgate.experiments.planemqx import PLAN
from headgate.experiments.scenarios import load
from headgate.model.simulation import simulate
from headgate.model.simulation.of_scenario import simulate_scenario

CONTENDERS: dict[str, contenders.Run] = {
    "headgate": contenders.headgate,
    "simpy": contenders.simpy,
    "ciw": contenders.ciw,
}
RESULTS = Path(__file__).parents[1] / "results"
MESSAGES = {"headgate": 4_000_000, "simpy": 100_000, "ciw": 30_000}


@dataclass(frozen=True)
class Speed:
    """One contender on one model: the median of its turns."""

    model: str
    contender: str
    messages_per_s: float
    lowest: float
    highest: float
    mean_response: float
    expected: float


def race(model: Queues, turns: int, scale: float) -> list[Speed]:
    """All contenders on one model, in turns, so that a noisy machine disturbs them alike."""
    speeds: dict[str, list[float]] = {name: [] for name in CONTENDERS if _there(name)}
    responses: dict[str, list[float]] = {name: [] for name in speeds}
    for name in speeds:
        CONTENDERS[name](model, 1000.0, 0)  # compiles, imports
    for turn in range(turns):
        for name, values in speeds.items():
            seconds = scale * MESSAGES[name] / model.rate
            started = time.process_time()
            delivered, response = CONTENDERS[name](model, seconds, turn)
            values.append(delivered / (time.process_time() - started))
            responses[name].append(response)
    return [
        Speed(
            model.name,
            name,
            statistics.median(values),
            min(values),
            max(values),
            statistics.mean(responses[name]),
            model.mean_response,
        )
        for name, values in speeds.items()
    ]


def kernel_events(turns: int, scale: float) -> dict[str, float]:
    """Events per second and core of the kernel, on the models and on PlanEMQX's workload."""
    results = {}
    for model in MODELS:
        network = contenders.network_of(model)
        seconds = scale * MESSAGES["headgate"] / model.rate
        results[model.name] = _median_rate(
            turns, lambda n=network, s=seconds: simulate(n, horizon=s, workers=1).events
        )
    scenario = load("planemqx")
    results["PlanEMQX: 30 topics, 80 flows, 4 priorities, drops"] = _median_rate(
        turns,
        lambda: (
            simulate_scenario(
                scenario, PLAN, duration=10_000 * scale, workers=1, replications=1
            ).measurement.events
        ),
    )
    return results


def _median_rate(turns: int, run: Callable[[], int]) -> float:
    run()
    rates = []
    for _ in range(turns):
        started = time.process_time()
        events = run()
        rates.append(events / (time.process_time() - started))
    return statistics.median(rates)


def _there(name: str) -> bool:
    return name == "headgate" or find_spec(name) is not None


def _document(speeds: list[Speed], events: dict[str, float], turns: int) -> dict[str, object]:
    packages = ("numba", "numpy", *(name for name in CONTENDERS if _there(name)))
    return {
        "date": str(date.today()),
        "machine": machine(),
        "versions": {name: version(name) for name in packages},
        "turns": turns,
        "speeds": [asdict(speed) for speed in speeds],
        "events_per_s": events,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.simulator", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter and noisier")
    parser.add_argument("--turns", type=int, default=5, help="of each contender on each model")
    parser.add_argument("--json", type=Path, help="keep the figures in this file")
    parser.add_argument("--save", action="store_true", help="keep them in bench/results")
    options = parser.parse_args()
    turns, scale = (3, 0.1) if options.quick else (options.turns, 1.0)
    missing = [name for name in CONTENDERS if not _there(name)]
    if missing:
        print(f"not installed, left out: {', '.join(missing)}", file=sys.stderr)
    speeds = [speed for model in MODELS for speed in race(model, turns, scale)]
    events = kernel_events(turns, scale)
    print(
        f"{'model':26}{'contender':>10}{'messages/s':>14}{'range':>24}{'slower':>9}{'mean':>8}{'theory':>8}"
    )
    wrong = False
    for speed in speeds:
        ours = next(s for s in speeds if s.model == speed.model and s.contender == "headgate")
        print(
            f"{speed.model:26}{speed.contender:>10}{speed.messages_per_s:14,.0f}"
            f"{f'{speed.lowest:,.0f}..{speed.highest:,.0f}':>24}"
            f"{ours.messages_per_s / speed.messages_per_s:8.0f}×"
            f"{speed.mean_response:8.2f}{speed.expected:8.2f}"
        )
        wrong |= not options.quick and abs(speed.mean_response / speed.expected - 1) > 0.1
    print("\nkernel, events per second and core")
    for name, rate in events.items():
        print(f"  {name:52}{rate / 1e6:6.1f} M")
    files = [options.json] if options.json else []
    if options.save:
        files.append(RESULTS / f"{date.today()}-simulator.json")
    for file in files:
        file.write_text(json.dumps(_document(speeds, events, turns), indent=1) + "\n")
        print(f"written: {file}", file=sys.stderr)
    if wrong:
        print("a contender is more than 10 % away from theory", file=sys.stderr)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
