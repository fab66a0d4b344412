"""What `python -m bench planemqx` prints and keeps."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import date
from typing import Any

from bench.brokers import MOSQUITTO_SETTINGS
from bench.congestion.evaluating import Conditions
from bench.congestion.report import finite
from bench.congestion.workload import CATEGORIES, Workload
from bench.network import MEGABIT, Line, congestion_control
from bench.planemqx.contenders import Contender, Demands
from bench.planemqx.evaluating import failures
from bench.planemqx.measuring import IN_TIME_MS, Run, Setting
from bench.report import DISTURBED, aligned, machine

GOAL = 0.5
"""RT's mean at 10 Mbit/s has to be this fraction of the default's at most."""

_HEADER = (
    *("link", "load", "asked", "broker", "", "mean", "p50", "p95", "p99", "most"),
    *("lost", "waiting", "asked ms", "met", "flows met", "priority", "drop"),
)
_DROPS = ("setting", "", "published", "delivered", "dropped", "planned", "chance", "off by")
_WORDS = 5


def preamble(workload: Workload, line: Line, conditions: Conditions, runs: Sequence[Run]) -> str:
    """The conditions, so that nobody must guess them."""
    versions = {run.contender: run.version for run in runs}
    return "\n".join(
        (
            ", ".join(f"{key} {value}" for key, value in machine().items()),
            *(f"{name}: {version}" for name, version in versions.items()),
            f"link: tc tbf, 1 Mbit/s = 2^20 bit/s, burst {line.burst} B, queue of "
            f"{line.limit_ms:g} ms, {congestion_control(line)}; load 1.0 needs "
            f"{workload.offered() / MEGABIT:.2f} Mbit/s on it with all headers",
            f"{conditions.seconds:g} s each after {conditions.warm_up:g} s that do not count; "
            "response: publisher's stamp to subscriber's receipt, in ms",
            "met: applications of the category whose mean and loss are within what they ask; "
            "flows met: flows whose own mean is",
        )
    )


def counted(runs: Sequence[Run]) -> list[Run]:
    """Those that say something."""
    return [run for run in runs if run.counts]


def table(runs: Sequence[Run]) -> str:
    """One line per category of each run that counts."""
    lines: list[list[str]] = [list(_HEADER)]
    for run in counted(runs):
        for number, category in enumerate(CATEGORIES):
            found = run.found.categories[category]
            own = [a for a in run.found.applications.values() if a.category == category]
            times = found.response
            setting = run.setting
            titles = [f"{setting.rate / MEGABIT:g}", f"{setting.load:g}", str(setting.demands)]
            figures = [times.mean, times.p50, times.p95, times.p99, times.most]
            decided = run.contender == Contender.PLANNED
            lines.append(
                [
                    *([*titles, run.contender] if not number else ["", "", "", ""]),
                    category,
                    *map(_number, figures),
                    f"{found.lost / max(1, found.published):.2%}" if found.lost else "",
                    f"{found.late:,}" if found.late else "",
                    _number(min(a.asked_ms for a in own)),
                    f"{sum(a.met for a in own)}/{len(own)}",
                    f"{sum(a.flows_met for a in own)}/{sum(a.flows for a in own)}",
                    ",".join(map(str, found.levels)) if decided else "",
                    f"{found.drop:.2%}" if decided and found.drop else "",
                ]
            )
    return aligned(lines, _WORDS)


def drops(runs: Sequence[Run]) -> str:
    """Table II: where a plan dropped something."""
    lines = [list(_DROPS)]
    for run in counted(runs):
        if run.contender != Contender.PLANNED:
            continue
        if not any(c.expected for c in run.found.categories.values()):
            continue
        for category in CATEGORIES:
            found = run.found.categories[category]
            settled = found.published - found.late
            share = found.lost / max(1, settled)
            planned = found.expected / max(1, found.offered)
            spread = found.chance / max(1, found.offered)
            lines.append(
                [
                    str(run.setting) if category == CATEGORIES[0] else "",
                    category,
                    f"{found.published:,}",
                    f"{found.delivered:,}",
                    f"{share:.3%}",
                    f"{planned:.3%}",
                    f"± {spread:.3%}",
                    f"{100 * (share - planned):+.3f} points",
                ]
            )
    return aligned(lines, 2) if len(lines) > 1 else ""


def remarks(runs: Sequence[Run]) -> str:
    """Goals, promises that were not kept, and what to mistrust."""
    marks = {True: "✓", False: "✗"}
    lines = [f"{marks[met]} {text}" for text, met in verdicts(runs)]
    lines += [
        f"did not count: {run.title}: 1 % of the messages were sent more than "
        f"{IN_TIME_MS:g} ms late ({run.driver_late.p99:.0f} ms)"
        for run in runs
        if not run.counts
    ]
    lines += [
        f"{run.title}: the link's queue lost {run.frames_lost:,} frames"
        for run in counted(runs)
        if run.frames_lost
    ]
    disturbed = sum(run.used.others > DISTURBED for run in runs)
    if disturbed:
        lines.append(
            f"other work used more than {DISTURBED:g} of a core during {disturbed} of "
            f"{len(runs)} runs; driver and brokers went before it (SCHED_RR)"
        )
    return "\n".join(lines)


def verdicts(runs: Sequence[Run]) -> Iterator[tuple[str, bool]]:
    """A sentence and whether it is as it should be."""
    shown = counted(runs)
    for run in shown:
        if run.contender != Contender.PLANNED:
            continue
        other = _same(shown, run, Contender.DEFAULT)
        if other is not None and run.setting.demands is Demands.PAPER:
            ours, theirs = (r.found.categories["RT"].response.mean for r in (run, other))
            text = f"{run.setting}: RT mean {ours:.1f} ms, {1 - ours / theirs:.0%} below default"
            judged = run.setting.rate == 10 * MEGABIT and run.setting.load == 1
            if judged:
                text += f" (goal {1 - GOAL:.0%})"
            yield text, ours <= GOAL * theirs if judged else ours < theirs
        promised = [a for a in run.found.applications.values() if (a.promised or math.inf) <= 1]
        kept = sum(a.met for a in run.found.applications.values())
        enough = kept >= len(promised)  # others may be kept than those, if they weigh as much
        broken = {} if enough else dict(failures(run.found))
        text = f"{run.setting}: {kept} of {len(run.found.applications)} requirements kept, "
        text += f"{len(promised)} are satisfiable together by the last plan"
        if broken:
            text += ": " + ", ".join(
                f"{name} ({a.category}) {a.mean_ms:.4g} of {a.asked_ms:.4g} ms, "
                f"lost {a.loss:.2%} of {a.tolerated:.0%}"
                for name, a in broken.items()
            )
        yield text, enough


def _same(runs: Sequence[Run], of: Run, contender: Contender) -> Run | None:
    for run in runs:
        if (run.contender, run.setting, run.seed) == (contender, of.setting, of.seed):
            return run
    return None


def document(runs: Sequence[Run], line: Line, conditions: Conditions) -> dict[str, Any]:
    """Everything, as JSON takes it."""
    found: dict[str, Any] = {
        "date": date.today().isoformat(),
        "machine": machine(),
        "mosquitto_settings": list(MOSQUITTO_SETTINGS),
        "link": {**asdict(line), "congestion_control": congestion_control(line)},
        "conditions": asdict(conditions),
        "verdicts": [{"text": text, "met": met} for text, met in verdicts(runs)],
        "runs": [{**asdict(run), "counts": run.counts} for run in runs],
    }
    shown: dict[str, Any] = finite(found)
    return shown


def settings(rates: Sequence[tuple[float, float]], demands: Sequence[Demands]) -> list[Setting]:
    """Every pair of rate and load with every set of demands."""
    return [Setting(MEGABIT * rate, load, asked) for asked in demands for rate, load in rates]


def _number(value: float) -> str:
    if not math.isfinite(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
