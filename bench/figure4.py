"""`python -m bench.figure4 RESULT.json …`: PlanEMQX Fig. 4 by model, simulator and live broker.

Takes what `python -m bench congestion --brokers unplanned,strict --loads 1 --json FILE` measured,
in any number of files, and prints a Markdown table; `--plot FILE` draws it.

Which runs count is fixed before they are made. A run counts if the driver itself was in time: where
1 % of the messages were sent later than `IN_TIME_MS`, the machine stood still, and the response
times are the machine's. A run that does not count is made again with the same phases, twice at
most; of the runs that count for one cell and one seed, the first is taken. Files are given in the
order in which they were made.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.network import MEGABIT
from headgate.experiments import planemqx
from headgate.experiments.planemqx import EDICT_MS, PROTOTYPE_MS, RATES
from headgate.experiments.report import Report, Table
from headgate.model.scenario import ArrivalProcess
from headgate.model.simulation.of_scenario import simulate_scenario

IN_TIME_MS = 5.0
HEADERS = 165
"""Bytes per message, on average: 8.43 Mbit/s on the wire for 7.91 of payload, 413 messages/s."""


def overall(run: dict[str, Any], what: str) -> float:
    """Mean over all messages of a run, in milliseconds."""
    categories = run["experiences"].values()
    counts = [c["published"] - c["lost"] - c["late"] for c in categories]
    means = [c[what]["mean"] for c in categories]
    return float(sum(c * m for c, m in zip(counts, means, strict=True)) / sum(counts))


def cell(runs: Sequence[dict[str, Any]], what: str) -> str:
    """One number per run that counts."""
    return ", ".join(f"{overall(run, what):.1f}" for run in runs) or "–"


def simulated(rate: int) -> float:
    """Periodic devices with random phases, first come, first served, headers included."""
    scenario = planemqx.scenario(rate * MEGABIT, arrivals=ArrivalProcess.PERIODIC, overhead=HEADERS)
    found = simulate_scenario(scenario, (), duration=10.0, warmup=2.0, replications=40, seed=1)
    return 1000 * found.everything().mean.value


def report(documents: Sequence[dict[str, Any]]) -> Report:
    """The table and the plot."""
    rows: list[list[str | float | int | None]] = []
    counting: dict[tuple[int, str], dict[int, dict[str, Any]]] = {}
    total = late = 0
    expected = {}
    for document in documents:
        for one in document["model"]:
            expected[round(one["rate"] / MEGABIT)] = one["by_arrival"]
        for run in document["results"]:
            total += 1
            if run["driver_late"]["p99"] >= IN_TIME_MS:
                late += 1
                continue
            cell_of = round(run["rate"] / MEGABIT), run["broker"]
            counting.setdefault(cell_of, {}).setdefault(document["conditions"]["seed"], run)
    kept = {of: [by_seed[seed] for seed in sorted(by_seed)] for of, by_seed in counting.items()}
    for rate, edict, prototype in zip(RATES, EDICT_MS, PROTOTYPE_MS, strict=True):
        plain, planned = (kept.get((rate, name), []) for name in ("unplanned", "strict"))
        rows.append(
            [
                rate,
                expected.get(rate),
                simulated(rate),
                cell(plain, "response"),
                cell(plain, "ideal"),
                cell(planned, "response"),
                cell(planned, "ideal"),
                edict,
                prototype,
            ]
        )
    counted = sum(map(len, kept.values()))
    columns = [
        *("Mbps", "model, Poisson", "simulated, periodic", "live, no plan", "ideal queue"),
        *("live, plan", "ideal queue", "authors' simulator", "authors' prototype"),
    ]
    title = (
        "Mean response (ms); live: one number for each of the devices' phases; "
        f"{counted} of {total} runs are shown, {late} did not count"
    )

    def draw(axes: Any) -> None:
        for column, style in ((1, "C0-"), (2, "C1-"), (7, "C4x--"), (8, "C5x--")):
            points = [(row[0], row[column]) for row in rows if row[column] is not None]
            axes.plot(*zip(*points, strict=True), style, label=columns[column])
        for name, style, label in (("unplanned", "C2o", "no plan"), ("strict", "C3s", "plan")):
            found = [
                (r, statistics.median(overall(run, "response") for run in kept[r, name]))
                for r in RATES
                if (r, name) in kept
            ]
            axes.plot(*zip(*found, strict=True), style, label=f"live, {label}")
        axes.set(xlabel="link (2^20 bit/s)", ylabel="mean response (ms)", yscale="log")
        axes.legend(fontsize="small")

    return Report(
        "planemqx-live-fig4", "PlanEMQX Fig. 4 live", [Table(title, columns, rows)], (), draw
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.figure4", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    documents: list[dict[str, Any]] = []
    for path in options.results:
        read = json.loads(path.read_text())
        documents += read if isinstance(read, list) else [read]
    shown = report(documents)
    print(shown.tables[0].markdown())
    if options.plot:
        shown.plot(options.plot)


if __name__ == "__main__":
    main()
