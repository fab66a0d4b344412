"""From what was sent and received to what the paper's tables and figures show."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from bench.congestion.evaluating import Conditions, Flow, flows_of, sent_by
from bench.congestion.measuring import Observation
from bench.congestion.workload import CATEGORIES, Workload
from bench.figures import Times
from headgate.contract import Requirement, Snapshot
from headgate.control.history import Event

QUARTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
CHANCE = 2.0
"""Standard deviations that a loss may be above what was decided before it is called broken."""


@dataclass(frozen=True)
class Category:
    """All messages of a category that were published in the measured time."""

    response: Times
    box: tuple[float, ...]
    """Milliseconds at `QUARTILES`."""
    published: int
    delivered: int
    lost: int
    late: int
    """Had not come when the drain was over."""
    offered: int
    """The broker's own account of the same time, by its snapshots."""
    expected: float
    """Messages to be dropped of these, by the drop rates in force when they came."""
    chance: float
    """Standard deviation of that number."""
    levels: tuple[int, ...]
    """Priorities in force at the end."""
    drop: float
    """Mean drop rate in force at the end."""


@dataclass(frozen=True)
class Application:
    """How one application fared."""

    category: str
    asked_ms: float
    tolerated: float
    mean_ms: float
    """Messages that had not come count with the time for which they were waited for."""
    loss: float
    met: bool
    flows: int
    flows_met: int
    """Flows whose own mean is within what is asked."""
    promised: float | None
    """Response over what is asked as the plan in force expects it; none if nobody planned."""


@dataclass(frozen=True)
class Found:
    """Everything about one run."""

    categories: dict[str, Category]
    applications: dict[str, Application]
    topics: dict[str, dict[str, float]]
    """Mean response of topics that several categories share, by topic and category (Fig. 7)."""
    decisions: list[dict[str, Any]] = field(default_factory=list)
    """The controller's: seconds since the first message, what, why, steps."""


def evaluate(workload: Workload, seen: Observation, conditions: Conditions, offset: float) -> Found:
    """`offset` is what wall-clock time is ahead of the monotonic clock."""
    begin = seen.published.start + int(conditions.warm_up * 1e9)
    end = begin + int(conditions.seconds * 1e9)
    flows = flows_of(workload, seen.published, seen.receipts)
    sent = sent_by(workload, seen.published)
    waited = max([*seen.receipts.time, end])
    windows = [_window(flow, sent[flow.device], (begin, end), waited) for flow in flows]
    snapshots = [Snapshot.from_json(payload) for payload in seen.published.snapshots]
    first = seen.published.start / 1e9 + offset
    within = [s for s in snapshots if begin / 1e9 + offset < s.time - s.interval / 2]
    within = [s for s in within if s.time - s.interval / 2 < end / 1e9 + offset]
    promised = _promised(seen, end / 1e9 + offset)
    return Found(
        {name: _category(name, workload, windows, within) for name in CATEGORIES},
        {name: _application(name, workload, windows, promised) for name in workload.clients},
        _topics(workload, windows),
        [
            {
                "at": round(record.time - first, 2),
                "event": str(record.event),
                "why": record.why,
                "steps": record.steps,
                "conflicts": record.conflicts,
                "seconds": record.seconds,
            }
            for record in seen.decisions
        ],
    )


@dataclass(frozen=True)
class _Window:
    """One flow in the measured time."""

    responses: list[float]
    waited: list[float]
    """Of those that had not come."""
    published: int
    lost: int


def _window(flow: Flow, times: Sequence[int], span: tuple[int, int], until: int) -> _Window:
    responses, waiting, lost = [], [], 0
    numbers = range(bisect_left(times, span[0]), bisect_left(times, span[1]))
    for number in numbers:
        received = flow.received.get(number)
        if received is not None:
            responses.append((received - times[number]) / 1e9)
        elif flow.lost(number):
            lost += 1
        else:
            waiting.append((until - times[number]) / 1e9)
    return _Window(responses, waiting, len(numbers), lost)


def _category(
    name: str, workload: Workload, windows: Sequence[_Window], snapshots: Sequence[Snapshot]
) -> Category:
    own = [
        window
        for flow, window in zip(workload.subscriptions, windows, strict=True)
        if flow.category == name
    ]
    responses = sorted(value for window in own for value in window.responses)
    box = tuple(
        1e3 * responses[min(len(responses) - 1, int(q * len(responses)))] if responses else math.nan
        for q in QUARTILES
    )
    offered, expected, variance = 0, 0.0, 0.0
    for snapshot in snapshots:
        for flow in snapshot.flows:
            if flow.category == name:
                offered += flow.offered
                expected += flow.offered * flow.drop
                variance += flow.offered * flow.drop * (1 - flow.drop)
    last = [f for f in snapshots[-1].flows if f.category == name] if snapshots else []
    return Category(
        Times.of(responses),
        box,
        sum(window.published for window in own),
        len(responses),
        sum(window.lost for window in own),
        sum(len(window.waited) for window in own),
        offered,
        expected,
        math.sqrt(variance),
        tuple(sorted({flow.priority for flow in last})),
        fmean(flow.drop for flow in last) if last else 0.0,
    )


def _application(
    name: str, workload: Workload, windows: Sequence[_Window], promised: dict[str, float]
) -> Application:
    own = [
        (flow.category, window)
        for flow, window in zip(workload.subscriptions, windows, strict=True)
        if flow.client == name
    ]
    requirement = workload.requirements[name] or Requirement()
    asked = requirement.mean_ms if requirement.mean_ms is not None else math.inf
    tolerated = requirement.loss if requirement.loss is not None else 0.0
    means = [1e3 * _mean(window) for _, window in own if window.published]
    everything = _Window(
        [value for _, window in own for value in window.responses],
        [value for _, window in own for value in window.waited],
        sum(window.published for _, window in own),
        sum(window.lost for _, window in own),
    )
    mean = 1e3 * _mean(everything)
    count = everything.published
    return Application(
        own[0][0],
        asked,
        tolerated,
        mean,
        everything.lost / max(1, count),
        mean <= asked and not beyond_chance(everything.lost, count, tolerated),
        len(means),
        sum(value <= asked for value in means),
        promised.get(name),
    )


def beyond_chance(lost: int, count: int, tolerated: float) -> bool:
    """Are that many lost messages more than a drop rate of `tolerated` gives by chance?"""
    spread = math.sqrt(count * tolerated * (1 - tolerated))
    return lost > count * tolerated + CHANCE * spread


def _mean(window: _Window) -> float:
    values = [*window.responses, *window.waited]
    return math.fsum(values) / len(values) if values else math.nan


def _topics(workload: Workload, windows: Sequence[_Window]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, list[float]]] = {}
    for flow, window in zip(workload.subscriptions, windows, strict=True):
        topic = workload.devices[flow.device].topic
        found.setdefault(topic, {}).setdefault(flow.category, []).extend(window.responses)
    return {
        topic: {name: 1e3 * fmean(values) for name, values in by_category.items() if values}
        for topic, by_category in found.items()
        if len(by_category) > 1
    }


def _promised(seen: Observation, until: float) -> dict[str, float]:
    """By the last plan that was made while devices published."""
    for record in reversed([record for record in seen.decisions if record.time < until]):
        if record.event in (Event.APPLIED, Event.KEPT) and record.predicted:
            return record.predicted
    return {}


def failures(found: Found) -> Iterator[tuple[str, Application]]:
    """Applications whose requirement the plan holds to be kept, and it was not."""
    for name, application in found.applications.items():
        if application.promised is not None and application.promised <= 1 and not application.met:
            yield name, application
