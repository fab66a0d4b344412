"""Medians, ratios and verdicts, as data, as a table and as JSON."""

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from bench.brokers import MOSQUITTO_SETTINGS, Broker
from bench.campaign import Outcome
from bench.shapes import INDEPENDENCE, Metric, Shape
from bench.target import Effort, Measurement

BASELINE = "mosquitto"
CEILING = "relay"
DISTURBED = 0.2  # of a core, used by neither the driver nor the broker


@dataclass(frozen=True)
class Cell:
    """One broker's figure in one row."""

    median: float | None
    ratio: float | None = None  # to the baseline; above 1 is better, whatever the unit
    ratio_low: float | None = None  # lowest and highest ratio of one repetition
    ratio_high: float | None = None
    met: bool | None = None
    lost: int = 0
    unacknowledged: int = 0
    driver_bound: bool = False
    error: str = ""


@dataclass(frozen=True)
class Row:
    """One metric of one shape."""

    shape: str
    title: str
    unit: str
    goal: float | None
    cells: dict[str, Cell]
    ceiling: float | None


def summarise(
    shapes: Sequence[Shape], brokers: Sequence[Broker], outcomes: Sequence[Outcome]
) -> list[Row]:
    """One row per metric, in the catalogue's order."""
    names = [broker.name for broker in brokers]
    rows = []
    for shape in shapes:
        own = [outcome for outcome in outcomes if outcome.shape == shape.name]
        for metric in shape.metrics:
            ceiling = _values(own, CEILING, metric)
            rows.append(
                Row(
                    shape.name,
                    f"{shape.title}: {metric.label}" if metric.label else shape.title,
                    metric.unit,
                    metric.goal,
                    {name: _cell(own, name, metric) for name in names},
                    statistics.median(ceiling.values()) if ceiling else None,
                )
            )
    return rows


def _values(outcomes: Sequence[Outcome], broker: str, metric: Metric) -> dict[int, float]:
    return {
        outcome.repetition: outcome.measurement.values[metric.key]
        for outcome in outcomes
        if outcome.broker == broker
        and outcome.measurement is not None
        and metric.key in outcome.measurement.values
    }


def _cell(outcomes: Sequence[Outcome], broker: str, metric: Metric) -> Cell:
    own = [outcome for outcome in outcomes if outcome.broker == broker]
    errors = [outcome.error for outcome in own if outcome.error]
    values = _values(outcomes, broker, metric)
    if errors or not values:
        return Cell(None, error=errors[0] if errors else "not measurable here")
    measured = [outcome.measurement for outcome in own if outcome.measurement is not None]
    lost = max((m.lost for m in measured), key=abs)
    unacknowledged = max(m.unacknowledged for m in measured)
    median = statistics.median(values.values())
    ratio = low = high = met = None
    base = {} if broker == BASELINE else _sound_baseline(outcomes, metric)
    if base and (min(values.values()) > 0 or not metric.lower_is_better):
        ratio = _ratio(median, statistics.median(base.values()), metric)
        paired = [_ratio(values[i], base[i], metric) for i in values.keys() & base.keys()]
        low, high = min(paired, default=ratio), max(paired, default=ratio)
        if metric.goal is not None:
            # A broker that loses messages has not met a goal, however fast it was.
            met = ratio >= metric.goal and not lost and not unacknowledged
    bound = all(_driver_bound(m) for m in measured)
    return Cell(median, ratio, low, high, met, lost, unacknowledged, bound)


def _sound_baseline(outcomes: Sequence[Outcome], metric: Metric) -> dict[int, float]:
    """The baseline's figures, or none: a baseline that lost messages flatters its rivals."""
    for outcome in outcomes:
        if outcome.broker == BASELINE and (
            outcome.measurement is None
            or outcome.measurement.lost
            or outcome.measurement.unacknowledged
            or outcome.measurement.values.get(metric.key, 0) <= 0
        ):
            return {}
    return _values(outcomes, BASELINE, metric)


def _ratio(value: float, base: float, metric: Metric) -> float:
    numerator, denominator = (base, value) if metric.lower_is_better else (value, base)
    return numerator / denominator


def _driver_bound(measurement: Measurement) -> bool:
    """The driver never waited, and the broker had time to spare."""
    return (
        measurement.driver_busy is not None
        and measurement.broker_busy is not None
        and measurement.driver_busy > 0.97
        and measurement.broker_busy < 0.9
    )


def independence(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Rate among 100,000 other subscriptions over the rate among none, for each broker.

    The median over repetitions: the two stand close together within one, not across.
    """
    rates = {
        (outcome.broker, outcome.repetition, outcome.shape): outcome.measurement.values["rate"]
        for outcome in outcomes
        if outcome.measurement is not None and outcome.shape in ("routing-0", "routing-100k")
    }
    shares: dict[str, list[float]] = {}
    for (broker, repetition, shape), rate in rates.items():
        crowded = rates.get((broker, repetition, "routing-100k"))
        if shape == "routing-0" and rate and crowded is not None:
            shares.setdefault(broker, []).append(crowded / rate)
    return {broker: statistics.median(values) for broker, values in shares.items()}


# -- text --------------------------------------------------------------------------------


def table(rows: Sequence[Row], brokers: Sequence[Broker], outcomes: Sequence[Outcome]) -> str:
    """What `python -m bench broker` prints."""
    names = [broker.name for broker in brokers]
    compared = [name for name in names if name != BASELINE] if BASELINE in names else []
    header = ["shape", "unit", *names]
    header += [f"{name}/{BASELINE} (range)" for name in compared]
    header += ["goal", "bare relay"]
    lines = [header]
    for row in rows:
        line = [row.title, row.unit, *(_figure(row.cells[name]) for name in names)]
        line += [_verdict(row.cells[name]) for name in compared]
        line += [f"≥ {row.goal:g}" if row.goal else "", number(row.ceiling)]
        lines.append(line)
    remarks = [*_remarks(rows, compared, outcomes), *_disturbance(outcomes)]
    return "\n".join([aligned(lines, words=2), "", *remarks])


def aligned(lines: Sequence[Sequence[str]], words: int) -> str:
    """A table with its header underlined; the first `words` columns are words, the rest figures."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = []
    for position, line in enumerate(lines):
        cells = [
            cell.ljust(width) if i < words else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text.append("  ".join(cells).rstrip())
        if position == 0:
            text.append("  ".join("-" * width for width in widths))
    return "\n".join(text)


def _figure(cell: Cell) -> str:
    if cell.median is None:
        return "–"
    marks = ("≥ " if cell.driver_bound else "") + number(cell.median)
    return marks + ("!" if cell.lost or cell.unacknowledged else "")


def _verdict(cell: Cell) -> str:
    if cell.ratio is None:
        return "–"
    mark = {True: " ✓", False: " ✗", None: "  "}[cell.met]
    return f"{cell.ratio:.2f} ({cell.ratio_low:.2f}–{cell.ratio_high:.2f}){mark}"


def number(value: float | None) -> str:
    """Three or more significant digits, thousands separated."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _remarks(
    rows: Sequence[Row], compared: Sequence[str], outcomes: Sequence[Outcome]
) -> list[str]:
    remarks = []
    for name in compared:
        judged = [row for row in rows if row.cells[name].met is not None]
        if judged:
            met = sum(bool(row.cells[name].met) for row in judged)
            remarks.append(f"{name}: {met} of {len(judged)} goals met")
    for name, share in independence(outcomes).items():
        mark = "✓" if share >= INDEPENDENCE else "✗"
        remarks.append(
            f"{name}: among 100,000 other subscriptions {share:.2f} of its rate without them "
            f"(goal ≥ {INDEPENDENCE:g}) {mark}"
        )
    failures: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for name, cell in row.cells.items():
            if cell.error:
                failures.setdefault((name, cell.error), []).append(row.title)
            if cell.lost:
                kind = "lost" if cell.lost > 0 else "delivered twice"
                remarks.append(f"{row.title}, {name}: {abs(cell.lost):,} messages {kind}")
            if cell.unacknowledged:
                remarks.append(f"{row.title}, {name}: {cell.unacknowledged:,} not acknowledged")
    for (name, error), titles in failures.items():
        more = f" and {len(titles) - 1} more" if len(titles) > 1 else ""
        remarks.append(f"{name}, {titles[0]}{more}: {error}")
    return remarks


def _disturbance(outcomes: Sequence[Outcome]) -> list[str]:
    watched = [
        outcome.measurement.others_busy
        for outcome in outcomes
        if outcome.measurement is not None and outcome.measurement.others_busy is not None
    ]
    disturbed = sum(share > DISTURBED for share in watched)
    if not disturbed:
        return []
    return [
        f"other work used more than {DISTURBED:g} of a core during {disturbed} of {len(watched)} "
        "measurements: trust ratios only, and those with a wide range little"
    ]


def preamble(brokers: Sequence[Broker], effort: Effort, repetitions: int) -> str:
    """The conditions, so that nobody must guess them."""
    lines = [", ".join(f"{key} {value}" for key, value in machine().items())]
    lines += [f"{broker.name}: {broker.version}" for broker in brokers]
    if any(broker.name == BASELINE for broker in brokers):
        lines.append(f"{BASELINE} settings: {'; '.join(MOSQUITTO_SETTINGS)}")
    lines.append(
        f"medians of {repetitions} repetitions, {effort.seconds:g} s each after warm-up, a fresh "
        f"broker every time, brokers in turn; ratios: above 1 is better; rates are deliveries; "
        f"bare relay: the driver with no broker at work, its ceiling is at least this"
    )
    return "\n".join(lines)


# -- JSON --------------------------------------------------------------------------------


def machine() -> dict[str, str]:
    """The shape of the machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cores": str(os.cpu_count()),
        "processor": model,
        "memory": f"{memory:.1f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def document(
    rows: Sequence[Row],
    brokers: Sequence[Broker],
    outcomes: Sequence[Outcome],
    effort: Effort,
    repetitions: int,
) -> dict[str, Any]:
    """Everything, raw figures included."""
    return {
        "date": date.today().isoformat(),
        "machine": machine(),
        "brokers": {broker.name: broker.version for broker in brokers},
        "mosquitto_settings": list(MOSQUITTO_SETTINGS),
        "repetitions": repetitions,
        "effort": asdict(effort),
        "independence": independence(outcomes),
        "summary": [asdict(row) for row in rows],
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }
