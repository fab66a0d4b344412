"""The story, the fraction of requirements kept, and who was in violation when."""

from pathlib import Path
from typing import Any

import msgspec

from bench.dynamic.contenders import Planning
from bench.dynamic.scenario import Story
from bench.network import MEGABIT

_COLOURS = {
    Planning.MOSQUITTO: "#9b9a97",
    Planning.OFF: "#d9730d",
    Planning.REACTIVE: "#448361",
    Planning.PROACTIVE: "#0b6e99",
}


def draw(document: dict[str, Any], path: Path) -> None:
    """One column; time runs to the right."""
    import matplotlib as mpl  # noqa: PLC0415  (an optional dependency, needed here alone)

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    from bench.dynamic.command import offered  # noqa: PLC0415  (it draws with this file)

    story = msgspec.convert(document["story"], Story)
    runs = document["runs"]
    heights = [1.3, 1.5, *([1.7] * len(runs))]
    figure, grid = plt.subplots(
        len(heights), 1, figsize=(9, sum(heights) + 0.8), sharex=True, height_ratios=heights
    )
    seconds = range(round(story.seconds))
    world, kept, *rasters = grid
    world.plot(seconds, [offered(story, s) for s in seconds], color="#0b6e99", label="offered")
    links = [story.rate(s) / MEGABIT for s in seconds]
    world.step(seconds, links, color="black", lw=1, where="post", label="link")
    world.set_ylabel("Mbit/s", fontsize=8)
    world.legend(fontsize=7, frameon=False, ncols=2, loc="lower left")
    for guest in story.guests:
        colour = "#e03e3e" if guest.category == "EM" else "#888888"
        world.axvspan(guest.comes, guest.goes, color=colour, alpha=0.12, lw=0)
    for run in runs:
        colour = _COLOURS[Planning(run["planning"])]
        label = f"{run['planning']}: {run['broken']:,} s in violation"
        kept.plot([100 * share for share in run["attainment"]], color=colour, lw=1.2, label=label)
    kept.set_ylabel("kept, %", fontsize=8)
    kept.set_ylim(0, 104)
    kept.legend(fontsize=7, frameon=False, loc="lower left")
    for axes, run in zip(rasters, runs, strict=True):
        _raster(axes, run)
    rasters[-1].set_xlabel(f"s (ten minutes, {document['compress']:g} times as fast)", fontsize=8)
    for axes in grid:
        axes.tick_params(labelsize=7)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    about = ", ".join(f"{key} {value}" for key, value in document["machine"].items())
    figure.text(0.01, 0.003, f"{document['date']}; {about}", fontsize=5.5, color="#666")
    figure.tight_layout(rect=(0, 0.01, 1, 1))
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _raster(axes: Any, run: dict[str, Any]) -> None:
    """A line for each application; ticks above are changes of policy."""
    names = list(run["applications"])
    for row, name in enumerate(names):
        about = run["applications"][name]
        there = [(s, 1) for s, mean in enumerate(about["mean_ms"]) if mean is not None]
        axes.broken_barh(there, (row + 0.1, 0.8), color="#e6efe9", lw=0)
        for key, colour in (("slow", "#e03e3e"), ("thinned", "#6940a5")):
            axes.broken_barh(
                [(s, 1) for s, broken in enumerate(about[key]) if broken],
                (row + 0.1, 0.8),
                color=colour,
                lw=0,
            )
    changes = [d["at"] for d in run["decisions"] if d["event"] in ("applied", "rolled back")]
    axes.plot(changes, [-0.6] * len(changes), "|", color="black", ms=5)
    axes.set_ylim(len(names) + 0.2, -1.2)
    categories = [run["applications"][name]["category"] for name in names]
    ticks = [row for row, c in enumerate(categories) if not row or c != categories[row - 1]]
    axes.set_yticks([row + 0.5 for row in ticks], [categories[row] for row in ticks])
    axes.set_ylabel(run["planning"], fontsize=8)
