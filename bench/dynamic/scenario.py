"""Ten minutes in which the load rises, the link halves, applications join, and an emergency comes.

Times are those of ten minutes. `Story.compressed` makes them shorter, and with them the response
times that applications ask for: what may take 400 ms in ten minutes may take 100 ms in two and a
half. Links, message sizes and rates stay as they are.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.congestion.workload import Device, Subscription, Workload
from bench.network import MEGABIT
from headgate.contract import Requirement

STEP = 0.01
"""Seconds at which the load is looked at."""


@dataclass(frozen=True)
class Guest:
    """An application that is not always there."""

    name: str
    category: str
    topics: tuple[int, ...]
    """Numbers, as in `topic5`."""
    comes: float
    goes: float


@dataclass(frozen=True)
class Asked:
    """Of each application of a category."""

    mean_ms: float
    loss: float
    weight: float


@dataclass(frozen=True)
class Story:
    """What happens, and what is asked for meanwhile."""

    seconds: float
    loads: tuple[tuple[float, float], ...]
    """When, and how many times the paper's load; between them it changes evenly."""
    links: tuple[tuple[float, float], ...]
    """When the link gets which rate, in bits per second."""
    guests: tuple[Guest, ...]
    asked: dict[str, Asked]

    def until(self, moment: float) -> "Story":
        """Only its beginning."""
        return replace(
            self,
            seconds=moment,
            loads=(
                *((t, load) for t, load in self.loads if t < moment),
                (moment, self.load(moment)),
            ),
            links=tuple((t, rate) for t, rate in self.links if t < moment),
            guests=tuple(guest for guest in self.guests if guest.comes < moment),
        )

    def compressed(self, factor: float) -> "Story":
        """The same, `factor` times as fast."""
        return replace(
            self,
            seconds=self.seconds / factor,
            loads=tuple((moment / factor, load) for moment, load in self.loads),
            links=tuple((moment / factor, rate) for moment, rate in self.links),
            guests=tuple(
                replace(guest, comes=guest.comes / factor, goes=guest.goes / factor)
                for guest in self.guests
            ),
            asked={
                name: replace(asked, mean_ms=round(asked.mean_ms / factor, 1))
                for name, asked in self.asked.items()
            },
        )

    def load(self, moment: float) -> float:
        """How many times the paper's."""
        times, loads = zip(*self.loads, strict=True)
        return float(np.interp(moment, times, loads))

    def rate(self, moment: float) -> float:
        """Of the link."""
        return [rate for begin, rate in self.links if begin <= moment][-1]

    def requirement(self, category: str) -> Requirement:
        """What an application of a category asks for."""
        asked = self.asked[category]
        return Requirement(mean_ms=asked.mean_ms, loss=asked.loss)

    def workload(self, base: Workload) -> Workload:
        """The paper's applications and the guests, and what they ask for."""
        numbers = {device.topic: number for number, device in enumerate(base.devices)}
        guests = [
            Subscription(guest.name, numbers[f"topic{topic}"], guest.category)
            for guest in self.guests
            for topic in guest.topics
        ]
        flows = (*base.subscriptions, *guests)
        return replace(
            base,
            subscriptions=flows,
            requirements={flow.client: self.requirement(flow.category) for flow in flows},
        )

    def moments(self, devices: Sequence[Device], seed: int) -> Iterator[tuple[float, int]]:
        """When each device publishes: at equal distances of work, which shrink as the load grows.

        A device's k-th message is due when the load so far amounts to its phase and k periods.
        """
        grid = np.arange(0.0, self.seconds + STEP, STEP)
        times, loads = zip(*self.loads, strict=True)
        work = np.concatenate(([0.0], np.cumsum(np.interp(grid, times, loads) * STEP)))[:-1]
        rng = random.Random(seed)
        due: list[tuple[float, int]] = []
        for number, device in enumerate(devices):
            first = rng.random()
            count = int(work[-1] * device.rate - first) + 1
            marks = (first + np.arange(max(0, count))) / device.rate
            due += [(float(moment), number) for moment in np.interp(marks, work, grid)]
        yield from sorted(due)


EVERY_TOPIC = tuple(range(1, 31))

STORY = Story(
    seconds=600,
    loads=(
        *((0, 1.0), (60, 1.0), (180, 2.0), (240, 2.0), (300, 1.0)),
        *((440, 1.0), (460, 1.4), (540, 1.4), (560, 1.0), (600, 1.0)),
    ),
    links=((0, 16 * MEGABIT), (320, 8 * MEGABIT), (420, 16 * MEGABIT)),
    guests=(
        Guest("app17", "RT", (2, 4, 12, 27, 28), 360, 540),
        Guest("app18", "TS", (10, 12, 18), 360, 540),
        Guest("brigade", "EM", EVERY_TOPIC, 470, 540),
    ),
    asked={
        "EM": Asked(250, 0.0, 10),
        "RT": Asked(400, 0.02, 5),
        "ST": Asked(2000, 0.2, 2),
        "TS": Asked(4000, 0.0, 2),
        "AN": Asked(10_000, 0.5, 1),
    },
)
"""Response times are those of the authors' data, and so is what may be lost, but for AN, which
gives up half here instead of a tenth: otherwise no plan at all would carry it through."""
