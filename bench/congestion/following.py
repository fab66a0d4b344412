"""A link whose rate changes under way: what brokers make of it, and how soon `auto` follows."""

import math
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.brokers import Broker
from bench.congestion import devices, evaluating
from bench.congestion.devices import Published
from bench.congestion.evaluating import Conditions, Experience
from bench.congestion.workload import CATEGORIES, Workload, schedule
from bench.network import Line, Namespace, spoken
from bench.receivers import Subscriber, receiving
from bench.report import aligned
from headgate.contract import Snapshot

RATES = (1.0, 0.5, 1.0)
"""Of the link, one after the other, as fractions."""
SETTLING = 5.0
"""Seconds after each change that are not counted among the response times."""
NEAR = 0.15
"""The pace follows the link when it is this near to it."""

_FIGURES = [f"{category} {figure}" for category in CATEGORIES for figure in ("mean", "p99")]
_HEADER = ["link", "broker", "paced at", "after", *_FIGURES]
_WORDS = 2


@dataclass(frozen=True)
class Stage:
    """One broker while the link had one rate."""

    broker: str
    rate: float
    experiences: dict[str, Experience]
    """By category, of what was published when `SETTLING` was over."""
    pace: float
    """Mean pace from then on, as a fraction of the link's rate; not a number if there was none."""
    followed: float
    """Seconds from the change until the pace was near the link's rate and stayed there."""


def measure(
    broker: Broker,
    workload: Workload,
    line: Line,
    load: float,
    conditions: Conditions,
    place: Namespace,
) -> list[Stage]:
    """Let devices publish while the link becomes slower and faster again."""
    place.shape(line)
    each = conditions.seconds
    total = each * len(RATES)
    moments = list(schedule(workload.devices, conditions.arrivals, load, total, conditions.seed))
    subscribers = [Subscriber(name, workload.filters(name)) for name in workload.clients]
    lines = [replace(line, rate=line.rate * fraction) for fraction in RATES]
    with broker.running() as target, tempfile.TemporaryDirectory(prefix="bench-") as directory:
        near = (place.near, target.address[1])
        with receiving(near, subscribers, Path(directory), place.inside([])) as applications:
            changes = [
                threading.Timer(number * each, place.change, [lines[number]])
                for number in range(1, len(lines))
            ]
            for change in changes:
                change.start()
            offset = time.time() - time.monotonic()
            published = devices.publish(target.address, workload.devices, moments)
            receipts = applications.finish(total, conditions.silence)
    stages = []
    for number, path in enumerate(lines):
        part = replace(conditions, warm_up=number * each + SETTLING, seconds=each - SETTLING)
        found = evaluating.experiences(workload, published, receipts, part, path, None)
        paces = _paces(published, offset, number * each, each)
        late = [rate for moment, rate in paces if moment >= SETTLING]
        pace = sum(late) / len(late) / path.rate if late else math.nan
        stages.append(
            Stage(broker.name, path.rate, found, pace or math.nan, _followed(paces, path.rate))
        )
    return stages


def _paces(
    published: Published, offset: float, begin: float, seconds: float
) -> list[tuple[float, float]]:
    """Seconds since `begin`, and the pace then, as the broker's snapshots tell."""
    start = published.start / 1e9 + offset + begin
    found = []
    for payload in published.snapshots:
        snapshot = Snapshot.from_json(payload)
        moment = snapshot.time - start
        if 0.0 <= moment < seconds and snapshot.links:
            found.append((moment, snapshot.links[0].rate))
    return found


def _followed(paces: Sequence[tuple[float, float]], rate: float) -> float:
    followed = math.nan
    for moment, pace in paces:
        if abs(pace / rate - 1) > NEAR:
            followed = math.nan
        elif math.isnan(followed):
            followed = moment
    return followed


def table(stages: Sequence[Stage]) -> str:
    """A line per broker and rate."""
    lines = [_HEADER]
    for stage in stages:
        figures = [
            figure
            for category in CATEGORIES
            for figure in (
                stage.experiences[category].response.mean,
                stage.experiences[category].response.p99,
            )
        ]
        lines.append(
            [
                spoken(stage.rate),
                stage.broker,
                "" if math.isnan(stage.pace) else f"{stage.pace:.0%}",
                "" if math.isnan(stage.followed) else f"{stage.followed:.1f} s",
                *("" if math.isnan(value) else f"{value:,.1f}" for value in figures),
            ]
        )
    return aligned(lines, _WORDS)
