"""The story on a live broker: devices publish, the link changes, guests come and go."""

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.brokers import Broker
from bench.congestion import devices
from bench.congestion.devices import Published
from bench.congestion.evaluating import Flow, flows_of
from bench.congestion.workload import Workload
from bench.dynamic.contenders import tell
from bench.dynamic.scenario import Guest, Story
from bench.network import Line, Namespace
from bench.receivers import Receipts, Subscriber, receiving
from bench.target import Target
from bench.usage import Usage, Used
from headgate.control.history import History, Record

DRAIN = 20.0
SILENCE = 2.0
TAIL = 1.0
"""Seconds before a guest goes of which nothing is asked: what is under way then cannot arrive."""


@dataclass(frozen=True)
class Presence:
    """One flow, and the time in which its messages count (monotonic nanoseconds)."""

    client: str
    flow: Flow
    begin: int
    end: int


@dataclass(frozen=True)
class Played:
    """What happened."""

    published: Published
    present: list[Presence]
    until: int
    """When the last of the receivers stopped waiting."""
    decisions: list[Record]
    offset: float
    """What wall-clock time is ahead of the monotonic clock, in seconds."""
    used: Used


@dataclass
class _Visit:
    """A guest's process, seen from the thread that waits for its times."""

    guests: Sequence[Guest]
    receipts: Receipts | None = None
    begin: int = 0
    end: int = 0


def play(
    broker: Broker, story: Story, workload: Workload, line: Line, place: Namespace, seed: int
) -> Played:
    """All of it, from the first message until what is under way has arrived."""
    place.shape(replace(line, rate=story.rate(0.0)))
    moments = list(story.moments(workload.devices, seed))
    guests = {guest.name for guest in story.guests}
    residents = [name for name in workload.clients if name not in guests]
    visits = [_Visit(together) for together in _together(story.guests)]
    over = threading.Event()
    with (
        broker.running() as target,
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        _threads(over) as begin,
    ):
        near = (place.near, target.address[1])
        subscribers = [Subscriber(name, workload.filters(name)) for name in residents]
        with receiving(near, subscribers, Path(name), place.inside([])) as applications:
            target.find_processes()
            usage = Usage(target, [applications.target])
            offset = time.time() - time.monotonic()
            started = time.monotonic()
            for moment, rate in story.links[1:]:
                begin(_changing, started + moment, over, target, place, replace(line, rate=rate))
            for number, visit in enumerate(visits):
                folder = Path(name) / str(number)
                folder.mkdir()
                begin(_visiting, started, over, visit, workload, near, folder, place)
            published = devices.publish(target.address, workload.devices, moments)
            used = usage.stop()
            receipts = applications.finish(DRAIN, SILENCE)
            until = time.monotonic_ns()
        decisions = [] if target.directory is None else list(History(target.directory / "data"))
    last = published.start + int(story.seconds * 1e9)
    present = _present(workload, published, receipts, residents, (published.start, last))
    for visit in visits:
        if visit.receipts is not None:
            names = [guest.name for guest in visit.guests]
            span = visit.begin, visit.end - int(TAIL * 1e9)
            present += _present(workload, published, visit.receipts, names, span)
    return Played(published, present, until, decisions, offset, used)


def _together(guests: Sequence[Guest]) -> list[list[Guest]]:
    """Those who come and go at the same time."""
    found: dict[tuple[float, float], list[Guest]] = {}
    for guest in guests:
        found.setdefault((guest.comes, guest.goes), []).append(guest)
    return list(found.values())


@contextlib.contextmanager
def _threads(over: threading.Event) -> Iterator[Callable[..., None]]:
    """Starts threads that are gone when the block ends, whatever happens in it."""
    running: list[threading.Thread] = []

    def begin(work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        running.append(thread)
        thread.start()

    try:
        yield begin
    finally:
        over.set()
        for thread in running:
            thread.join()


def _changing(
    moment: float, over: threading.Event, target: Target, place: Namespace, line: Line
) -> None:
    if not over.wait(moment - time.monotonic()):
        place.change(line)
        tell(target, line.rate)


def _visiting(
    started: float,
    over: threading.Event,
    visit: _Visit,
    workload: Workload,
    near: tuple[str, int],
    folder: Path,
    place: Namespace,
) -> None:
    guest = visit.guests[0]
    if over.wait(started + guest.comes - time.monotonic()):
        return
    subscribers = [Subscriber(g.name, workload.filters(g.name)) for g in visit.guests]
    with receiving(near, subscribers, folder, place.inside([])) as process:
        visit.begin = time.monotonic_ns()
        over.wait(started + guest.goes - time.monotonic())
        visit.end = time.monotonic_ns()
        visit.receipts = process.finish(0.0, 0.0)


def _present(
    workload: Workload,
    published: Published,
    receipts: Receipts,
    names: Sequence[str],
    span: tuple[int, int],
) -> list[Presence]:
    own = tuple(flow for flow in workload.subscriptions if flow.client in names)
    flows = flows_of(replace(workload, subscriptions=own), published, receipts)
    return [Presence(s.client, flow, *span) for s, flow in zip(own, flows, strict=True)]
