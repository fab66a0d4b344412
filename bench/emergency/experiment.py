"""One run: a broker, a number of publishers, a situation."""

import contextlib
import tempfile
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bench.brokers import Broker
from bench.emergency import background, crowd
from bench.emergency.background import Noise
from bench.emergency.crowd import MESSAGES, PAYLOAD, Crowd, Form, Kind
from bench.figures import Times
from bench.network import Line, Namespace, a_core_for, favour, hurry, on_wire
from bench.receivers import Receipts, Subscriber, receiving
from bench.usage import Usage, Used

LINK = Line(10e6)
_PAUSE = 0.05
_DRAIN = 60.0
_SILENCE = 2.0


class Situation(StrEnum):
    """What goes on besides."""

    QUIET = "quiet"
    """Nothing, as in the paper."""
    CPU = "cpu"
    """Other publishers keep the broker busy, for another subscriber."""
    LINK = "link"
    """Another subscriber behind the same link gets one and a half times what the link carries."""
    OVERFLOW = "overflow"
    """The same, and queues are as short as those of the paper's broker: messages are lost."""


SLOW = (Situation.LINK, Situation.OVERFLOW)
"""Where the subscribers are behind the link."""

_FLOOD = Noise(publishers=10, size=1000, rate=1.5 * LINK.rate / 8 / on_wire(1012))
_NOISE = {
    Situation.CPU: Noise(publishers=100, size=64),
    Situation.LINK: _FLOOD,
    Situation.OVERFLOW: _FLOOD,
}


@dataclass(frozen=True)
class Outcome:
    """What one broker did with one number of publishers in one situation."""

    broker: str
    situation: str
    publishers: int
    latency: dict[str, Times]
    """Of urgent, critical and normal messages."""
    lost: dict[str, int]
    sent: dict[str, int]
    unacknowledged: int
    used: Used
    noise: int
    """Bytes of background traffic that its subscriber got."""

    @property
    def conditions(self) -> tuple[str, int]:
        """What outcomes must share to be compared."""
        return self.situation, self.publishers

    @property
    def title(self) -> str:
        """For a sentence."""
        return f"{self.broker}, {self.situation}, {self.publishers} publishers"


def run(
    broker: Broker,
    form: Form,
    situation: Situation,
    publishers: int,
    rounds: int,
    place: Namespace | None,
    seed: int,
) -> Outcome:
    """`rounds` with an urgent message in turn with as many with a critical one."""
    behind = place if situation in SLOW else None
    if behind is not None:
        behind.shape(LINK)
    prefix = behind.inside([]) if behind is not None else []
    noise = _NOISE.get(situation)
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(broker.running())
        target.find_processes()
        if target.pid is not None:
            favour(target.pid)
            stack.enter_context(a_core_for(target.pid))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        host = target.address[0] if behind is None else behind.near
        address = (host, target.address[1])
        # Granted QoS 2, so that critical messages can be made sure of.
        alarm = Subscriber("app-alarm", [crowd.TOPIC], qos=2, payload=PAYLOAD.size)
        receivers = stack.enter_context(receiving(address, [alarm], directory, prefix))
        hurry(process=receivers.pid)  # a receipt must not wait for the crowd and its noise
        helpers = [receivers.target]
        sink = None
        if noise is not None:
            (directory / "sink").mkdir()
            taker = Subscriber("app-other", [background.FILTER], sink=True)
            sink = stack.enter_context(receiving(address, [taker], directory / "sink", prefix))
            favour(sink.pid)
        people = Crowd(target.address, publishers, form, seed)
        stack.callback(people.close)
        with contextlib.ExitStack() as busy:
            if noise is not None:
                helpers.append(busy.enter_context(background.running(target.address, noise)))
                time.sleep(1.0)
            usage = Usage(target, helpers)
            for number in range(2 * rounds):
                people.round(Kind.CRITICAL if number % 2 else Kind.URGENT, target.pid)
                time.sleep(_PAUSE)
            used = usage.stop()
        receipts = receivers.finish(_DRAIN, _SILENCE)
        noisy = sink.finish(0.1, 0.1).sunk if sink is not None else 0
    return _outcome(broker, situation, publishers, people, receipts, used, noisy)


def _outcome(
    broker: Broker,
    situation: Situation,
    publishers: int,
    people: Crowd,
    receipts: Receipts,
    used: Used,
    noise: int,
) -> Outcome:
    received: dict[tuple[int, int], int] = {}
    for position, moment in enumerate(receipts.time):
        received.setdefault(PAYLOAD.unpack(receipts.head(position)[:4]), moment)
    classes = (*map(str, Kind), "normal")
    latencies: dict[str, list[float]] = {name: [] for name in classes}
    sent, lost = dict.fromkeys(classes, 0), dict.fromkeys(classes, 0)
    for number, done in enumerate(people.rounds):
        for message, moment in enumerate(done.sent):
            for publisher in range(publishers):
                name = str(done.kind) if publisher == done.special else "normal"
                sent[name] += 1
                arrived = received.get((publisher, number * MESSAGES + message))
                if arrived is None:
                    lost[name] += 1
                else:
                    latencies[name].append((arrived - moment) / 1e9)
    return Outcome(
        broker.name,
        str(situation),
        publishers,
        {name: Times.of(values) for name, values in latencies.items()},
        lost,
        sent,
        sum(done.unacknowledged for done in people.rounds),
        used,
        noise,
    )
