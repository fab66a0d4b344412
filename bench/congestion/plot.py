"""Response times by category, load and broker; and RT over the link's rate if there are several."""

import math
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from bench.congestion.contenders import BASELINE
from bench.congestion.measuring import Result
from bench.congestion.workload import CATEGORIES
from bench.network import spoken
from bench.report import machine

_COLOURS = {BASELINE: "#9b9a97", "strict": "#0b6e99", "strict-min": "#448361", "auto": "#6940a5"}
_IDEAL = "#d9730d"
COLUMNS = 4


def _rates_of(results: Sequence[Result], panel: tuple[float, str]) -> set[float]:
    return {result.rate for result in results if (result.load, result.arrivals) == panel}


def draw(results: Sequence[Result], path: Path) -> None:
    """A panel for each load and kind of arrivals, and one over the rates where there are many."""
    import matplotlib as mpl  # noqa: PLC0415  (an optional dependency, needed here alone)

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "bench"  # the same figures give the same file
    import matplotlib.pyplot as plt  # noqa: PLC0415

    panels = list(dict.fromkeys((result.load, result.arrivals) for result in results))
    several = [panel for panel in panels if len(_rates_of(results, panel)) > 1]
    shown = min({result.rate for result in results}, key=lambda rate: abs(rate - 10e6))
    columns = min(COLUMNS, len(panels) + len(several))
    rows = math.ceil((len(panels) + len(several)) / columns)
    size = (max(6.0, 3.1 * columns), 1.0 + 3.0 * rows)
    figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, sharey=True)
    places = iter(grid.flat)
    for load, arrivals in panels:
        axes = next(places)
        own = [r for r in results if (r.load, r.arrivals) == (load, arrivals)]
        _categories(axes, [r for r in own if r.rate == shown])
        axes.set_title(f"load {load:g}, {arrivals}, {spoken(shown)}", fontsize=9)
    for load, arrivals in several:
        axes = next(places)
        _rates(axes, [r for r in results if (r.load, r.arrivals) == (load, arrivals)])
        axes.set_title(f"load {load:g}, {arrivals}: RT by rate", fontsize=9)
    for axes in places:
        axes.set_axis_off()
    for row in grid:
        row[0].set_ylabel("response, ms", fontsize=8)
    for axes in grid.flat:
        axes.grid(axis="y", which="major", color="#eee", lw=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=8)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=2 * columns, frameon=False, fontsize=8)
    about = ", ".join(f"{key} {value}" for key, value in machine().items())
    note = f"{date.today().isoformat()}; {about}"
    figure.text(0.01, 0.004, note, fontsize=5.5, color="#666")
    figure.tight_layout(rect=(0, 0.02, 1, 0.95))
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _categories(axes: Any, results: Sequence[Result]) -> None:
    """From the mean (tick) to the 99th percentile (dot)."""
    axes.set_yscale("log")
    for index, result in enumerate(results):
        colour = _COLOURS.get(result.broker, "#6940a5")
        offset = (index - (len(results) - 1) / 2) * 0.22
        for position, category in enumerate(CATEGORIES):
            experience = result.experiences[category]
            place = position + offset
            times = experience.response
            axes.plot([place] * 2, [times.mean, times.p99], color=colour, lw=1.4)
            axes.plot(place, times.mean, "_", color=colour, ms=7, mew=1.6)
            label = f"{result.broker}: mean to p99" if position == 0 else None
            axes.plot(place, times.p99, "o", color=colour, ms=4.5, label=label)
            if experience.ideal is not None and result.broker == "strict":
                label = "ideal queue: mean, p99" if position == 0 else None
                ideal = [experience.ideal.mean, experience.ideal.p99]
                axes.plot([place + 0.1] * 2, ideal, "x", color=_IDEAL, ms=5, label=label)
    axes.set_xticks(range(len(CATEGORIES)), CATEGORIES)


def _rates(axes: Any, results: Sequence[Result]) -> None:
    axes.set_yscale("log")
    for broker in dict.fromkeys(result.broker for result in results):
        own = sorted((r for r in results if r.broker == broker), key=lambda r: r.rate)
        colour = _COLOURS.get(broker, "#6940a5")
        x = [result.rate / 1e6 for result in own]
        axes.plot(x, [r.experiences["RT"].response.p99 for r in own], "o-", color=colour, ms=4)
        axes.plot(x, [r.experiences["RT"].response.mean for r in own], "_:", color=colour, ms=6)
        if broker == "strict":
            best = [r.experiences["RT"].ideal for r in own]
            axes.plot(x, [one.p99 if one else math.nan for one in best], "x", color=_IDEAL, ms=5)
            axes.plot(x, [one.mean if one else math.nan for one in best], "x", color=_IDEAL, ms=5)
    axes.set_xlabel("link, Mbit/s; mean dotted, p99 solid", fontsize=8)
