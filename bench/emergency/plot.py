"""Latency of urgent, critical and normal messages over the number of publishers."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from bench.emergency.contenders import BASELINE
from bench.emergency.experiment import Outcome
from bench.report import machine

_COLOURS = {BASELINE: "#9b9a97", "types": "#0b6e99", "prefixes": "#6940a5"}
_STYLES = {"urgent": "o-", "critical": "s--", "normal": "^:"}


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    """A panel for each situation; means, on a logarithmic scale."""
    import matplotlib as mpl  # noqa: PLC0415  (an optional dependency, needed here alone)

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "bench"  # the same figures give the same file
    import matplotlib.pyplot as plt  # noqa: PLC0415

    situations = list(dict.fromkeys(outcome.situation for outcome in outcomes))
    size = (max(6.0, 2.9 * len(situations)), 4.2)
    figure, grid = plt.subplots(1, len(situations), figsize=size, squeeze=False, sharey=True)
    for axes, situation in zip(grid[0], situations, strict=True):
        own = [outcome for outcome in outcomes if outcome.situation == situation]
        for broker in dict.fromkeys(outcome.broker for outcome in own):
            runs = sorted((o for o in own if o.broker == broker), key=lambda o: o.publishers)
            for kind, style in _STYLES.items():
                axes.plot(
                    [run.publishers for run in runs],
                    [run.latency[kind].mean for run in runs],
                    style,
                    color=_COLOURS.get(broker, "#448361"),
                    ms=4,
                    lw=1.2,
                    label=f"{broker}, {kind}",
                )
        axes.set_yscale("log")
        axes.set_title(situation, fontsize=9)
        axes.set_xlabel("publishers", fontsize=8)
        axes.grid(axis="y", color="#eee", lw=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=8)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    grid[0][0].set_ylabel("mean latency, ms", fontsize=8)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=3, frameon=False, fontsize=7)
    about = ", ".join(f"{key} {value}" for key, value in machine().items())
    figure.text(0.01, 0.004, f"{date.today().isoformat()}; {about}", fontsize=5.5, color="#666")
    figure.tight_layout(rect=(0, 0.02, 1, 0.86))
    figure.savefig(path, dpi=150)
    plt.close(figure)
