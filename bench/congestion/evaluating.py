"""From what was sent and what was received to what each category experienced."""

import math
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise

from bench.congestion.contenders import Plan
from bench.congestion.devices import STAMP, Published
from bench.congestion.ideal import Copy, replay
from bench.congestion.workload import CATEGORIES, Arrivals, Workload
from bench.figures import Times
from bench.network import Line
from bench.receivers import Receipts
from headgate.contract import Snapshot


@dataclass(frozen=True)
class Conditions:
    """How long, and when devices publish."""

    seconds: float = 20.0
    warm_up: float = 5.0
    arrivals: Arrivals = Arrivals.PERIODIC
    seed: int = 1
    silence: float = 3.0

    @property
    def drain(self) -> float:
        """How long what waits may take to arrive afterwards: at twice a link's rate, as long."""
        return 10 + self.warm_up + self.seconds


@dataclass
class Experience:
    """What one category experienced. Only messages published in the measured time count."""

    response: Times
    published: int
    """Copies that the category should have got."""
    lost: int
    """Copies that never came although later ones of their flow did."""
    late: int
    """Copies that had not come when the drain was over."""
    demand: float
    """Fraction of the link's rate that its messages asked for."""
    share: float
    """Fraction of it that they got while devices published."""
    silence: float
    """Longest time in seconds, while devices published, in which the category got nothing."""
    ideal: Times | None = None
    broker_mean: float = math.nan
    """The broker's own account: arrival to hand-over to the kernel, in milliseconds."""
    dropped: dict[str, int] = field(default_factory=dict)
    """The same: copies dropped since the start, by reason."""
    offered: int = 0

    @property
    def loss(self) -> float:
        """Fraction lost of all that did not still wait."""
        return self.lost / max(1, self.published - self.late)


@dataclass
class Flow:
    """The messages of one device as one application saw them."""

    category: str
    device: int
    received: dict[int, int] = field(default_factory=dict)
    """Number of the message → when."""
    last: int = -1
    """Of those that came; of all, if no more are to come."""

    def lost(self, number: int) -> bool:
        """It never came, and is not merely late."""
        return number <= self.last and number not in self.received


def experiences(
    workload: Workload,
    published: Published,
    receipts: Receipts,
    conditions: Conditions,
    line: Line,
    plan: Plan | None,
) -> dict[str, Experience]:
    """By category; with the ideal queue's figures and the broker's own account under a plan."""
    begin = published.start + int(conditions.warm_up * 1e9)
    end = begin + int(conditions.seconds * 1e9)
    flows = flows_of(workload, published, receipts)
    sent = sent_by(workload, published)
    capacity = line.rate / 8 * conditions.seconds
    found = {}
    for category in CATEGORIES:
        own = [flow for flow in flows if flow.category == category]
        responses: list[float] = []
        arrivals: list[int] = []
        count = lost = late = asked = got = 0
        for flow in own:
            times = sent[flow.device]
            size = workload.devices[flow.device].wire_size
            for number in range(bisect_left(times, begin), bisect_left(times, end)):
                count += 1
                asked += size
                received = flow.received.get(number)
                if received is not None:
                    responses.append((received - times[number]) / 1e9)
                elif flow.lost(number):
                    lost += 1
                else:
                    late += 1
            in_time = [moment for moment in flow.received.values() if begin <= moment < end]
            got += size * len(in_time)
            arrivals += in_time
        found[category] = Experience(
            Times.of(responses),
            count,
            lost,
            late,
            asked / capacity,
            got / capacity,
            max(b - a for a, b in pairwise([begin, *sorted(arrivals), end])) / 1e9,
        )
    if plan is not None:
        _add_ideal(found, workload, published, flows, (begin, end), line, plan)
        _add_account(found, published)
    return found


def flows_of(workload: Workload, published: Published, receipts: Receipts) -> list[Flow]:
    """What each flow received, in the order of the workload's subscriptions."""
    flows = [Flow(s.category, s.device) for s in workload.subscriptions]
    known = {
        (s.client, workload.devices[s.device].topic): flow
        for s, flow in zip(workload.subscriptions, flows, strict=True)
    }
    by_number = [known[client, topic] for client, topic in receipts.flows]
    for position, (number, moment) in enumerate(zip(receipts.flow, receipts.time, strict=True)):
        flow = by_number[number]
        message = STAMP.unpack(receipts.head(position))[1]
        flow.received[message] = moment
        flow.last = max(flow.last, message)
    for flow in flows:
        if receipts.complete:
            flow.last = len(published.time)
    return flows


def sent_by(workload: Workload, published: Published) -> list[list[int]]:
    """When each device published, message by message."""
    sent: list[list[int]] = [[] for _ in workload.devices]
    for device, moment in zip(published.device, published.time, strict=True):
        sent[device].append(moment)
    return sent


def _add_ideal(
    found: dict[str, Experience],
    workload: Workload,
    published: Published,
    flows: list[Flow],
    window: tuple[int, int],
    line: Line,
    plan: Plan,
) -> None:
    """The same messages, without those that the broker dropped, through the ideal queue."""
    numbers = [0] * len(workload.devices)
    copies: list[Copy] = []
    subscribed = [
        [index for index, flow in enumerate(flows) if flow.device == device]
        for device in range(len(workload.devices))
    ]
    for device, moment in zip(published.device, published.time, strict=True):
        number = numbers[device]
        numbers[device] += 1
        arrived = (moment - published.start) / 1e9
        size = workload.devices[device].wire_size
        copies += [
            Copy(index, arrived, plan.level(flows[index].category), size)
            for index in subscribed[device]
            if not flows[index].lost(number)
        ]
    responses = replay(copies, line.rate / 8, line.burst)
    by_category: dict[str, list[float]] = {category: [] for category in CATEGORIES}
    begin, end = ((moment - published.start) / 1e9 for moment in window)
    for copy, response in zip(copies, responses, strict=True):
        if begin <= copy.arrived < end:
            by_category[flows[copy.flow].category].append(response)
    for category, experience in found.items():
        experience.ideal = Times.of(by_category[category])


def _add_account(found: dict[str, Experience], published: Published) -> None:
    totals = dict.fromkeys(found, 0.0)
    delivered = dict.fromkeys(found, 0)
    for payload in published.snapshots:
        for flow in Snapshot.from_json(payload).flows:
            experience = found.get(flow.category)
            if experience is None:
                continue
            totals[flow.category] += flow.mean_ms * flow.delivered
            delivered[flow.category] += flow.delivered
            experience.offered += flow.offered
            for reason, count in flow.dropped.items():
                experience.dropped[reason] = experience.dropped.get(reason, 0) + count
    for category, experience in found.items():
        if count := delivered[category]:
            experience.broker_mean = totals[category] / count
