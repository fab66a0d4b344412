"""One measurement: a broker, a link, a load."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import Broker
from bench.congestion import devices, evaluating
from bench.congestion.contenders import Plan
from bench.congestion.devices import Published
from bench.congestion.evaluating import Conditions, Experience
from bench.congestion.workload import Workload, schedule
from bench.figures import Times
from bench.network import Line, Namespace, spoken
from bench.receivers import Receipts, Subscriber, receiving
from bench.usage import Usage, Used
from headgate.control.history import History, Record


@dataclass(frozen=True)
class Result:
    """What came of it."""

    broker: str
    rate: float
    load: float
    arrivals: str
    experiences: dict[str, Experience]
    """By category."""
    driver_late: Times
    utilisation: float
    """Bytes that passed the link while devices published, over what it could carry."""
    frames_lost: int
    """By the link's own queue."""
    link_backlog: int
    """Bytes in that queue when the last message was published."""
    used: Used
    seconds: float = 0.0
    """Measured time."""

    @property
    def conditions(self) -> tuple[float, float, str]:
        """What results must share to be compared."""
        return self.rate, self.load, self.arrivals

    @property
    def title(self) -> str:
        """For a sentence."""
        where = f"{spoken(self.rate)}, load {self.load:g}, {self.arrivals}"
        return f"{self.broker}, {where}"


@dataclass(frozen=True)
class Observation:
    """What happened, before anybody asks what it means."""

    published: Published
    receipts: Receipts
    utilisation: float
    frames_lost: int
    link_backlog: int
    used: Used
    decisions: list[Record]
    """Of the broker's controller, if it had one."""


def measure(
    broker: Broker,
    workload: Workload,
    line: Line,
    load: float,
    conditions: Conditions,
    place: Namespace,
    plan: Plan | None,
) -> Result:
    """Start a broker, let devices publish, and see what arrives. `plan` if it follows one."""
    seen = observe(broker, workload, line, load, conditions, place)
    return Result(
        broker.name,
        line.rate,
        load,
        str(conditions.arrivals),
        evaluating.experiences(workload, seen.published, seen.receipts, conditions, line, plan),
        Times.of([late / 1e9 for late in seen.published.late]),
        seen.utilisation,
        seen.frames_lost,
        seen.link_backlog,
        seen.used,
        conditions.seconds,
    )


def observe(
    broker: Broker,
    workload: Workload,
    line: Line,
    load: float,
    conditions: Conditions,
    place: Namespace,
) -> Observation:
    """Start a broker behind a link and let devices publish."""
    place.shape(line)
    total = conditions.warm_up + conditions.seconds
    moments = list(schedule(workload.devices, conditions.arrivals, load, total, conditions.seed))
    subscribers = [Subscriber(name, workload.filters(name)) for name in workload.clients]
    with broker.running() as target, tempfile.TemporaryDirectory(prefix="bench-") as directory:
        target.find_processes()
        near = (place.near, target.address[1])
        with receiving(near, subscribers, Path(directory), place.inside([])) as applications:
            before = place.statistics()
            usage = Usage(target, [applications.target])
            published = devices.publish(target.address, workload.devices, moments)
            used = usage.stop()
            after = place.statistics()
            receipts = applications.finish(conditions.drain, conditions.silence)
            drops = place.statistics()["drops"] - before["drops"]
        decisions = [] if target.directory is None else list(History(target.directory / "data"))
    return Observation(
        published,
        receipts,
        (after["bytes"] - before["bytes"]) * 8 / line.rate / total,
        drops,
        after["backlog"],
        used,
        decisions,
    )
