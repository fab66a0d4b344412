"""Records per second beside what is written by hand, and how long micro-batches take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

BARS = (
    ("by_hand_per_s", "by hand", "#999999"),
    ("observe_per_s", "observe", "#0b6e99"),
    ("by_hand_stream_per_s", "by hand, as a stream", "#cccccc"),
    ("stream_per_s", "observe, as a stream", "#6940a5"),
)


def draw(result: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415  (an optional dependency, needed here alone)

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    parts = result["parts"]
    batches = {name: one for name, one in parts.items() if name.startswith("observe")}
    steps = {name: one for name, one in parts.items() if name.startswith("latency")}
    points = {name: one for name, one in parts.items() if name.startswith("sweep")}
    figure, (left, right, last) = plt.subplots(1, 3, figsize=(10, 3), width_ratios=(4, 2, 1))
    for index, (key, label, colour) in enumerate(BARS):
        places = [place + (index - 1.5) * 0.21 for place in range(len(batches))]
        heights = [one.get(key, 0.0) / 1e3 for one in batches.values()]
        left.bar(places, heights, 0.2, color=colour, label=label)
    left.set_xticks(range(len(batches)), [name.removeprefix("observe-") for name in batches])
    left.set_ylabel("thousand records per second")
    left.legend(frameon=False, fontsize=7)
    for place, one in enumerate(steps.values()):
        right.bar(place - 0.15, one["p50_s"], 0.28, color="#0b6e99", label="median"[place * 6 :])
        right.bar(place + 0.15, one["p95_s"], 0.28, color="#d9730d", label="p95"[place * 6 :])
    right.set_xticks(range(len(steps)), [f"{one['rate']:,}/s" for one in steps.values()])
    right.set_ylabel("micro-batch, seconds")
    if steps:
        right.legend(frameon=False, fontsize=7)
    last.bar(range(len(points)), [one["per_s"] for one in points.values()], 0.5, color="#0b6e99")
    cores = [name.removeprefix("sweep-") for name in points]
    last.set_xticks(range(len(points)), [f"{one} core{'s' * (one != '1')}" for one in cores])
    last.set_ylabel("points per second")
    for axes in (left, right, last):
        axes.grid(axis="y", color="#eee", lw=0.6)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    about = ", ".join(f"{key} {value}" for key, value in result["machine"].items())
    figure.text(0.01, 0.01, f"{result['date']}; {about}", fontsize=6, color="#666")
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    figure.savefig(path, dpi=110)
    plt.close(figure)
