"""PlanEMQX's Fig. 5, 6 and 7 as measured here, beside what the authors measured."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.congestion.workload import CATEGORIES
from bench.network import MEGABIT
from bench.planemqx.contenders import Contender, Demands
from headgate.experiments.planemqx import PROTOTYPE_PLAN_MS

SHOWN_AT = 11
"""Mbit/s of Fig. 6 and 7: the authors' are of a run at this rate."""
TOPIC_5_MS = {"RT": 14.67, "ST": 15.75, "AN": 27.12}
"""The authors' topic5 under their plan (§V-C)."""
WORST_MS = {"RT": (22.7, 18.5)}
"""The authors' largest response times, default and planned (§V-C)."""

_COLOURS = {
    Contender.MOSQUITTO: "#9b9a97",
    Contender.DEFAULT: "#d9730d",
    Contender.PLANNED: "#0b6e99",
}
_OF_CATEGORY = {"RT": "#0b6e99", "ST": "#448361", "TS": "#d9730d", "AN": "#9b9a97"}
_NAMES = ("planemqx-fig5.png", "planemqx-fig6.png", "planemqx-fig7.png")

Runs = Sequence[dict[str, Any]]


def draw(documents: Sequence[dict[str, Any]], folder: Path) -> Iterator[Path]:
    """From documents of results, those of the paper's requirements that count; one file each."""
    import matplotlib as mpl  # noqa: PLC0415  (an optional dependency, needed here alone)

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    runs = [run for document in documents for run in document["runs"] if run["counts"]]
    runs = [run for run in runs if run["setting"]["demands"] == Demands.PAPER]
    about = ", ".join(f"{key} {value}" for key, value in documents[0]["machine"].items())
    note = f"{documents[0]['date']}; {about}; 1 Mbit/s = 2^20 bit/s"
    for name, panels, fill in zip(_NAMES, (4, 4, 2), (_fig5, _fig6, _fig7), strict=True):
        figure, axes = plt.subplots(1, panels, figsize=(3.0 * panels + 1.5 * (panels == 2), 3.4))
        fill(axes, runs)
        for each in axes:
            each.grid(axis="y", color="#eee", lw=0.6)
            each.set_axisbelow(True)
            each.tick_params(labelsize=8)
            for side in ("top", "right"):
                each.spines[side].set_visible(False)
        figure.text(0.01, 0.006, note, fontsize=5.5, color="#666")
        figure.tight_layout(rect=(0, 0.03, 1, 1))
        figure.savefig(folder / name, dpi=150)
        plt.close(figure)
        yield folder / name


def at(runs: Runs, contender: Contender, rate: float, load: float = 1.0) -> Runs:
    """Runs of one contender in one setting."""
    return [
        run
        for run in runs
        if run["contender"] == contender
        and round(run["setting"]["rate"] / MEGABIT, 3) == rate
        and run["setting"]["load"] == load
    ]


def _mean(runs: Runs, category: str) -> float:
    """Over runs; each has as many messages as the other."""
    means = [run["found"]["categories"][category]["response"]["mean"] for run in runs]
    return sum(means) / len(means) if means else math.nan


def _fig5(axes: Any, runs: Runs) -> None:
    """Mean response by category, over the link's rate."""
    rates = sorted({run["setting"]["rate"] / MEGABIT for run in runs})
    for panel, category in zip(axes, CATEGORIES, strict=True):
        for contender, colour in _COLOURS.items():
            shown = [(r, _mean(at(runs, contender, r), category)) for r in rates]
            points = [(rate, mean) for rate, mean in shown if not math.isnan(mean)]
            if points:
                panel.plot(*zip(*points, strict=True), "o-", color=colour, ms=4, label=contender)
        for position, contender in enumerate((Contender.DEFAULT, Contender.PLANNED)):
            theirs = [means[category][position] for means in PROTOTYPE_PLAN_MS.values()]
            label = f"authors, {contender}"
            style = {"color": _COLOURS[contender], "ms": 5, "lw": 0.8, "label": label}
            panel.plot(list(PROTOTYPE_PLAN_MS), theirs, "x--", **style)
        panel.set_title(category, fontsize=9)
        panel.set_xlabel("link, Mbit/s", fontsize=8)
        panel.set_yscale("log")
    axes[0].set_ylabel("mean response, ms", fontsize=8)
    axes[-1].legend(fontsize=6.5, frameon=False)


def _fig6(axes: Any, runs: Runs) -> None:
    """Box plots: 5, 25, 50, 75 and 95 %, and the largest."""
    for panel, category in zip(axes, CATEGORIES, strict=True):
        for position, contender in enumerate(Contender):
            found = at(runs, contender, SHOWN_AT)
            if not found:
                continue
            own = found[0]["found"]["categories"][category]
            low, first, middle, third, high = own["box"]
            box = {"whislo": low, "q1": first, "med": middle, "q3": third, "whishi": high}
            drawn = panel.bxp(
                [{**box, "fliers": [own["response"]["most"]], "label": str(contender)}],
                positions=[position],
                widths=0.5,
                patch_artist=True,
                flierprops={"marker": ".", "ms": 4, "markeredgecolor": _COLOURS[contender]},
                medianprops={"color": "black"},
            )
            drawn["boxes"][0].set_facecolor(_COLOURS[contender])
        for position, most in enumerate(WORST_MS.get(category, ())):
            label = "authors' largest" if not position else None
            panel.plot(position + 1, most, "x", color="black", ms=6, label=label)
        panel.set_xticks(range(len(Contender)), [str(c) for c in Contender], fontsize=7)
        panel.set_title(f"{category}, {SHOWN_AT} Mbit/s", fontsize=9)
        if category in WORST_MS:
            panel.legend(fontsize=6.5, frameon=False)
    axes[0].set_ylabel("response, ms", fontsize=8)


def _fig7(axes: Any, runs: Runs) -> None:
    """Mean response of topics that several categories share."""
    axes[1].sharey(axes[0])
    for panel, contender in zip(axes, (Contender.DEFAULT, Contender.PLANNED), strict=True):
        found = at(runs, contender, SHOWN_AT)
        panel.set_title(f"{contender}, {SHOWN_AT} Mbit/s", fontsize=9)
        if not found:
            continue
        topics = found[0]["found"]["topics"]
        names = sorted(topics, key=lambda topic: int(topic.removeprefix("topic")))
        for category in CATEGORIES:
            points = [
                (x, topics[t][category]) for x, t in enumerate(names) if category in topics[t]
            ]
            style = {"color": _OF_CATEGORY[category], "ms": 4, "label": category}
            panel.plot(*zip(*points, strict=True), "o", **style)
        if contender is Contender.PLANNED and "topic5" in names:
            for number, (category, value) in enumerate(TOPIC_5_MS.items()):
                label = "authors' topic5" if not number else None
                place = names.index("topic5")
                style = {"color": _OF_CATEGORY[category], "ms": 6, "label": label}
                panel.plot(place, value, "x", **style)
        panel.set_xticks(range(len(names)), [name[5:] for name in names], fontsize=6)
        panel.set_xlabel("topic", fontsize=8)
        panel.set_yscale("log")
        panel.legend(fontsize=6.5, frameon=False, ncols=2)
    axes[0].set_ylabel("mean response, ms", fontsize=8)
