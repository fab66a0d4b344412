"""Ratios to Mosquitto at a glance."""

from collections.abc import Sequence
from pathlib import Path

from bench.report import BASELINE, Row

_COLOURS = ("#0b6e99", "#d9730d", "#6940a5", "#448361")


def draw(rows: Sequence[Row], path: Path, footer: str) -> None:
    """One line per metric: the median ratio, its range, and the goal as a bar."""
    import matplotlib as mpl  # noqa: PLC0415  (an optional dependency, needed here alone)

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "bench"  # the same figures give the same file
    import matplotlib.pyplot as plt  # noqa: PLC0415

    names = [name for name in (rows[0].cells if rows else {}) if name != BASELINE]
    figure, axes = plt.subplots(figsize=(9, 1.4 + 0.24 * max(1, len(rows))))
    for position, row in enumerate(rows):
        if row.goal:
            axes.plot([row.goal] * 2, [position - 0.4, position + 0.4], color="#444", lw=1.6)
        for index, name in enumerate(names):
            cell = row.cells[name]
            height = position + (index - (len(names) - 1) / 2) * 0.3
            colour = _COLOURS[index % len(_COLOURS)]
            if not cell.ratio or cell.ratio_low is None or cell.ratio_high is None or cell.lost:
                # At the edge, with no figure: what failed must not vanish from the picture.
                edge = axes.get_yaxis_transform()
                axes.plot(0.005, height, "x", ms=5, color=colour, transform=edge, clip_on=False)
                continue
            axes.plot([cell.ratio_low, cell.ratio_high], [height] * 2, color=colour, lw=1.4)
            face = "white" if cell.met is False else colour
            axes.plot(cell.ratio, height, "o", ms=5, mec=colour, mfc=face)
    axes.axvline(1, color="#999", lw=0.8, zorder=0)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda x, _: f"{x:g}×"))
    axes.set_yticks(range(len(rows)), [row.title for row in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="x", which="both", color="#eee", lw=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel(f"ratio to {BASELINE}, more is better (line: range over repetitions)")
    for index, name in enumerate(names):
        axes.plot([], [], "o", color=_COLOURS[index % len(_COLOURS)], label=name)
    axes.plot([], [], "|", color="#444", ms=9, mew=1.6, label="goal")
    axes.plot([], [], "o", mec="#444", mfc="white", label="goal missed")
    axes.plot([], [], "x", color="#444", label="lost messages, or no ratio")
    axes.legend(
        loc="lower center",
        bbox_to_anchor=(0.3, 1),
        ncols=len(names) + 3,
        frameon=False,
        fontsize=8,
    )
    figure.text(0.01, 0.004, footer, fontsize=6.5, color="#666")
    figure.tight_layout(rect=(0, 0.01, 1, 1))
    # The date is left out, so that the same figures give the same file.
    figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else {})
    plt.close(figure)
