"""`python -m bench.planemqx.tables RESULT.json …`: Markdown tables of docs/planemqx.md.

Takes what `python -m bench planemqx --json FILE` measured, in any number of files, one document or
a list of them in each. `--plots DIR` draws Fig. 5, 6 and 7 from them all; `--save FILE` keeps all
of them in one.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.congestion.workload import CATEGORIES
from bench.network import MEGABIT
from bench.planemqx.contenders import Contender, Demands
from bench.planemqx.plot import draw
from headgate.experiments.planemqx import PROTOTYPE_PLAN_MS

Run = dict[str, Any]

THEIRS = {"AN": (32100, 30512), "RT": (33300, 33276), "TS": (28500, 28469), "ST": (30000, 29433)}
"""The authors' Table II: published, consumed."""


def responses(runs: Sequence[Run], demands: Demands) -> Iterator[str]:
    """A line per setting and category, contenders side by side."""
    shown = [run for run in runs if run["setting"]["demands"] == demands]
    yield "| Mbps | load | | Mosquitto | default | planned | authors | lost | kept of 4 |"
    yield "|---|---|---|---|---|---|---|---|---|"
    settings = sorted({(run["setting"]["load"], run["setting"]["rate"]) for run in shown})
    for load, rate in settings:
        for category in CATEGORIES:
            own = {
                run["contender"]: run
                for run in shown
                if (run["setting"]["load"], run["setting"]["rate"]) == (load, rate)
            }
            cells = [_cell(own.get(contender), category) for contender in Contender]
            pair = PROTOTYPE_PLAN_MS.get(round(rate / MEGABIT), {}).get(category)
            authors = f"{pair[0]} → {pair[1]}" if pair and load == 1 else ""
            lost = " / ".join(_lost(own.get(contender), category) for contender in Contender)
            kept = " / ".join(_kept(own.get(contender), category) for contender in Contender)
            where = f"| {rate / MEGABIT:g} | {load:g} " if category == CATEGORIES[0] else "| | "
            yield f"{where}| {category} | {' | '.join(cells)} | {authors} | {lost} | {kept} |"


def _cell(run: Run | None, category: str) -> str:
    if run is None:
        return ""
    times = run["found"]["categories"][category]["response"]
    return ", ".join(_number(times[key]) for key in ("mean", "p95", "p99"))


def _lost(run: Run | None, category: str) -> str:
    if run is None:
        return "–"
    found = run["found"]["categories"][category]
    text = f"{found['lost'] / max(1, found['published']):.1%}" if found["lost"] else "0"
    return f"{text} ({found['late']} wait)" if found["late"] else text


def _kept(run: Run | None, category: str) -> str:
    if run is None:
        return "–"
    own = [a for a in run["found"]["applications"].values() if a["category"] == category]
    return str(sum(a["met"] for a in own))


def drops(runs: Sequence[Run]) -> Iterator[str]:
    """Table II of every run in which a plan dropped something."""
    yield "| run | | published | delivered | dropped (%) | planned (%) | chance (%) | authors (%) |"
    yield "|---|---|---|---|---|---|---|---|"
    for run in runs:
        categories = run["found"]["categories"]
        if not any(found["expected"] for found in categories.values()):
            continue
        setting = run["setting"]
        title = f"{setting['rate'] / MEGABIT:g} Mbps × {setting['load']:g}, {setting['demands']}"
        for category, found in categories.items():
            settled = max(1, found["published"] - found["late"])
            offered = max(1, found["offered"])
            published, consumed = THEIRS[category]
            yield (
                f"| {title} | {category} | {found['published']} | {found['delivered']} "
                f"| {100 * found['lost'] / settled:.2f} | {100 * found['expected'] / offered:.2f} "
                f"| ± {100 * found['chance'] / offered:.2f} "
                f"| {100 * (1 - consumed / published):.2f} |"
            )
            title = ""


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def read(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """All documents of all files."""
    documents: list[dict[str, Any]] = []
    for path in paths:
        found = json.loads(path.read_text())
        documents += found if isinstance(found, list) else [found]
    return documents


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.planemqx.tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--plots", type=Path, metavar="DIR")
    parser.add_argument("--save", type=Path, metavar="FILE")
    options = parser.parse_args()
    documents = read(options.results)
    every = [run for document in documents for run in document["runs"]]
    runs = [run for run in every if run["counts"]]
    print(f"{len(runs)} of {len(every)} runs count\n")
    for demands in Demands:
        print(f"**{demands}: response (ms), mean, p95, p99**\n")
        print("\n".join(responses(runs, demands)), end="\n\n")
    print("\n".join(drops(runs)), end="\n\n")
    for document in documents:
        for verdict in document["verdicts"]:
            print(f"{'✓' if verdict['met'] else '✗'} {verdict['text']}")
    if options.plots:
        for file in draw(documents, options.plots):
            print(f"written: {file}", file=sys.stderr)
    if options.save:
        options.save.write_text(json.dumps(documents, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
