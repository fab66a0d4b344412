"""What `python -m bench congestion` prints and keeps."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from typing import Any

from bench.brokers import MOSQUITTO_SETTINGS
from bench.congestion import judging
from bench.congestion.contenders import BASELINE, Plan
from bench.congestion.evaluating import Conditions
from bench.congestion.ideal import Expected
from bench.congestion.measuring import Result
from bench.congestion.workload import CATEGORIES, Workload
from bench.network import MEGABIT, Line, congestion_control, spoken
from bench.report import DISTURBED, aligned, machine

_HEADER = (
    *("link", "load", "arrivals", "broker", "", "mean", "p50", "p95", "p99", "lost", "in broker"),
    *("ideal mean", "p99", "of ideal mean", "p99", "× below Mosquitto's p99"),
)
_WORDS = 5


def preamble(
    workload: Workload, line: Line, conditions: Conditions, versions: Mapping[str, str]
) -> str:
    """The conditions, so that nobody must guess them."""
    offered = workload.offered()
    return "\n".join(
        (
            ", ".join(f"{key} {value}" for key, value in machine().items()),
            *(f"{name}: {version}" for name, version in versions.items()),
            f"mosquitto settings: {'; '.join(MOSQUITTO_SETTINGS)}",
            "link: tc tbf, 1 Mbit/s = 10^6 bit/s, 1 Mibit/s = 2^20 bit/s, "
            f"burst {line.burst} B, queue of {line.limit_ms:g} ms, {congestion_control(line)}; "
            f"load 1.0 needs {offered / 1e6:.2f} Mbit/s ({offered / MEGABIT:.2f} Mibit/s) on it "
            "with all headers",
            f"{conditions.seconds:g} s each after {conditions.warm_up:g} s that do not count; "
            f"response: publisher's stamp to subscriber's receipt, in ms, of every message that "
            "was published in that time; lost: never came though later ones of its flow did",
            "ideal: the same messages through a non-preemptive priority queue at the link's rate",
        )
    )


def table(results: Sequence[Result]) -> str:
    """One line per category of each measurement."""
    lines: list[list[str]] = [list(_HEADER)]
    for result in results:
        base = judging.baseline(results, result)
        for number, category in enumerate(CATEGORIES):
            experience = result.experiences[category]
            response, ideal = experience.response, experience.ideal
            titles = [spoken(result.rate), f"{result.load:g}", result.arrivals]
            titles = [*titles, result.broker] if not number else ["", "", "", ""]
            figures = [response.mean, response.p50, response.p95, response.p99]
            mean, p99 = judging.near(experience)
            ahead = judging.lead(result, base, category) if result.broker != BASELINE else math.nan
            lines.append(
                [
                    *titles,
                    category,
                    *map(_number, figures),
                    f"{experience.loss:.2%}" if experience.lost else "",
                    _number(experience.broker_mean),
                    _number(ideal.mean if ideal else math.nan),
                    _number(ideal.p99 if ideal else math.nan),
                    _number(mean),
                    _number(p99),
                    _number(ahead),
                ]
            )
    return aligned(lines, _WORDS)


def _number(value: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def remarks(
    results: Sequence[Result],
    plan: Plan,
    expected: dict[tuple[float, float], Expected],
) -> str:
    """Goals, what the model expects, and what to mistrust."""
    marks = {True: "✓", False: "✗", None: "·"}
    lines = [
        f"{marks[verdict.met]} {verdict.goal}: {verdict.found}"
        for verdict in judging.verdicts(results, plan)
    ]
    for (rate, load), model in expected.items():
        shown = ", ".join(f"{name} {_ms(value)}" for name, value in model.by_priority.items())
        lines.append(
            f"model, {spoken(rate)}, load {load:g}, Poisson arrivals, mean: {shown}; "
            f"first come, first served: {_ms(model.by_arrival)}"
        )
    late = max((result.driver_late.p99 for result in results), default=0.0)
    lines.append(f"driver: 99 % of the messages were sent less than {late:.2f} ms late")
    for result in results:
        if waiting := sum(e.late for e in result.experiences.values()):
            lines.append(f"{result.title}: {waiting:,} messages had not come when the drain ended")
        if result.frames_lost:
            lines.append(f"{result.title}: the link's queue lost {result.frames_lost:,} frames")
    disturbed = sum(result.used.others > DISTURBED for result in results)
    if disturbed:
        lines.append(
            f"other work used more than {DISTURBED:g} of a core during {disturbed} of "
            f"{len(results)} measurements; driver and brokers went before it (SCHED_RR)"
        )
    return "\n".join(lines)


def _ms(value: float) -> str:
    return f"{value:.1f} ms" if math.isfinite(value) else "without end"


def document(
    results: Sequence[Result],
    line: Line,
    conditions: Conditions,
    plan: Plan,
    expected: dict[tuple[float, float], Expected],
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """Everything, as JSON takes it."""
    found = {
        "date": date.today().isoformat(),
        "machine": machine(),
        "brokers": dict(versions),
        "mosquitto_settings": list(MOSQUITTO_SETTINGS),
        "link": {**asdict(line), "congestion_control": congestion_control(line)},
        "conditions": asdict(conditions),
        "plan": plan.rules,
        "verdicts": [asdict(verdict) for verdict in judging.verdicts(results, plan)],
        "model": [
            {"rate": rate, "load": load, **asdict(model)}
            for (rate, load), model in expected.items()
        ],
        "results": [asdict(result) for result in results],
    }
    return {key: finite(value) for key, value in found.items()}


def finite(value: Any) -> Any:
    """JSON knows neither infinity nor what is not a number."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    if isinstance(value, float):
        return round(value, 4) if math.isfinite(value) else None
    return value
