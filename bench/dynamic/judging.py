"""Second by second: which requirements were broken, by what the receivers measured.

A message belongs to the second in which it was published. In a second, an application's requirement
is broken if the mean response of its messages of that second is above what it asks for; messages
that had not come in the end count with the time for which they were waited for. Loss is judged over
the last `WINDOW` seconds, since a drop rate of 20 % takes sometimes a third of five messages: it is
broken where more is lost than the tolerated rate gives by chance. Who tolerates none is judged by
the second.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from bench.congestion.evaluating import sent_by
from bench.congestion.workload import Workload
from bench.dynamic.playing import Played, Presence
from bench.dynamic.scenario import Story
from bench.planemqx.evaluating import beyond_chance

WINDOW = 10


@dataclass(frozen=True)
class Second:
    """One application in one second."""

    mean_ms: float
    published: int
    lost: int
    slow: bool
    """The response asked for was not kept."""
    thinned: bool
    """More was lost than is tolerated."""

    @property
    def broken(self) -> bool:
        return self.slow or self.thinned


@dataclass(frozen=True)
class Judged:
    """All applications over the whole story."""

    seconds: dict[str, list[Second | None]]
    """By application; none where it was not there, or nothing was published for it."""
    categories: dict[str, str]
    weights: dict[str, float]

    def broken(self, category: str | None = None) -> int:
        """Seconds in violation, added up over the applications."""
        return sum(
            one is not None and one.broken
            for name, timeline in self.seconds.items()
            if category in (None, self.categories[name])
            for one in timeline
        )

    def broken_by_weight(self) -> float:
        """The same, each second with its application's weight."""
        return sum(
            self.weights[name] * (one is not None and one.broken)
            for name, timeline in self.seconds.items()
            for one in timeline
        )

    def judged(self) -> int:
        """All seconds of all applications."""
        return sum(one is not None for timeline in self.seconds.values() for one in timeline)

    def with_any(self) -> int:
        """Seconds in which anybody's requirement was broken."""
        return sum(
            any(one is not None and one.broken for one in moment)
            for moment in zip(*self.seconds.values(), strict=True)
        )

    def attainment(self) -> list[float]:
        """By second: the fraction of requirements that were kept."""
        shares = []
        for moment in zip(*self.seconds.values(), strict=True):
            there = [one for one in moment if one is not None]
            kept = sum(not one.broken for one in there)
            shares.append(kept / len(there) if there else math.nan)
        return shares


@dataclass
class Total:
    """One application in one second: what was published for it, and what became of it."""

    response: float = 0.0
    published: int = 0
    lost: int = 0

    @property
    def mean_ms(self) -> float:
        counted = self.published - self.lost
        return 1e3 * self.response / counted if counted else 0.0


def judge(story: Story, workload: Workload, played: Played) -> Judged:
    """What applications would say."""
    sent = sent_by(workload, played.published)
    length = math.ceil(story.seconds)
    categories = {flow.client: flow.category for flow in workload.subscriptions}
    sums: dict[str, list[Total]] = {}
    for presence in played.present:
        timeline = sums.setdefault(presence.client, [Total() for _ in range(length)])
        _add(timeline, presence, sent[presence.flow.device], played)
    return judged(story, sums, categories)


def judged(story: Story, totals: Mapping[str, list[Total]], categories: dict[str, str]) -> Judged:
    """Second by second, the most important applications first."""
    return Judged(
        {
            name: _judged(timeline, story, categories[name])
            for name, timeline in sorted(totals.items(), key=lambda item: _order(item, categories))
        },
        categories,
        {name: story.asked[category].weight for name, category in categories.items()},
    )


def _order(item: tuple[str, object], categories: Mapping[str, str]) -> tuple[int, str]:
    ranks = ("EM", "RT", "ST", "TS", "AN")
    return ranks.index(categories[item[0]]), item[0]


def _add(timeline: list[Total], presence: Presence, times: list[int], played: Played) -> None:
    flow = presence.flow
    numbers = range(bisect_left(times, presence.begin), bisect_left(times, presence.end))
    for number in numbers:
        second = timeline[
            min(len(timeline) - 1, (times[number] - played.published.start) // 1_000_000_000)
        ]
        second.published += 1
        received = flow.received.get(number)
        if received is not None:
            second.response += (received - times[number]) / 1e9
        elif flow.lost(number):
            second.lost += 1
        else:
            second.response += (played.until - times[number]) / 1e9


def _judged(timeline: list[Total], story: Story, category: str) -> list[Second | None]:
    asked = story.asked[category]
    found: list[Second | None] = []
    for number, second in enumerate(timeline):
        if not second.published:
            found.append(None)
            continue
        recent = timeline[max(0, number - WINDOW + 1) : number + 1] if asked.loss else [second]
        count = sum(one.published for one in recent)
        lost = sum(one.lost for one in recent)
        found.append(
            Second(
                second.mean_ms,
                second.published,
                second.lost,
                second.mean_ms > asked.mean_ms,
                beyond_chance(lost, count, asked.loss),
            )
        )
    return found


def reasons(played: Played) -> Counter[str]:
    """How often the controller did what."""
    return Counter(str(record.event) for record in played.decisions)
