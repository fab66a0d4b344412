"""`python -m headgate.experiments.live_onoff`: the ON/OFF experiment on a real broker.

A broker process, and clients of its own protocol over loopback that connect and disconnect. Each
subscriber has a topic and a persistent session, takes one message at a time (receive maximum 1) and
acknowledges it when its service is over: that is the server of the ON/OFF queue. The response is
from the publication to the end of the service. Time is scaled: with `--scale 10` the paper's 20 s
are 2 s, and all results are given in the paper's seconds.

Groups of clients differ in ζ, given by policy. In one more group the broker is told the threshold
and finds ζ by itself. Clients are independent, which gives the intervals.
"""

from __future__ import annotations

import heapq
import itertools
import math
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import click

from headgate.errors import HeadgateError
from headgate.experiments.report import Cell, Claim, Report, Table, Tell, silently
from headgate.model.inverse import largest_join
from headgate.model.onoff import OnOffQueue
from headgate.wire.codec import Decoder, encode
from headgate.wire.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Properties,
    Puback,
    Publish,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Version,
)

ON_S = OFF_S = 20.0
SERVICE_RATE = 8.0
THRESHOLD_S = 7.0
JOINS = (0.25, 0.5, 0.75, 1.0)
PATIENCE = 30.0


@dataclass(frozen=True)
class Experiment:
    """What is run, in the paper's seconds where nothing else is said."""

    arrival_rate: float = 1.0
    scale: float = 10.0
    """The paper's seconds in one of ours."""
    clients: int = 50
    """Of each group."""
    warmup_s: float = 800.0
    measured_s: float = 800.0
    rest_s: float = 200.0
    """Time in which what was published before may still arrive."""
    joins: tuple[float, ...] = JOINS
    by_threshold: bool = True
    seed: int = 1


@dataclass(frozen=True)
class Outcome:
    """One group."""

    join: float | None
    """None where the broker chose."""
    response_s: float
    response_half: float
    """Half-width of the 95 % interval; so `success_half`."""
    success: float
    success_half: float
    messages: int
    late_s: float
    """How late the clients did things, on average: the machine was too slow for this scale."""


class Timers:
    """What is to be done when."""

    def __init__(self) -> None:
        self.calls = 0
        self.late = 0.0
        """Seconds by which calls came too late, in sum."""
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (time.monotonic() + seconds, next(self._order), call))

    def run(self) -> float:
        """Do what is due; returns the seconds until the next."""
        while self._heap:
            left = self._heap[0][0] - time.monotonic()
            if left > 0:
                return left
            self.calls += 1
            self.late -= left
            heapq.heappop(self._heap)[2]()
        return 1.0


class Wire:
    """One connection. Sockets block on writing, which for these few bytes they never do."""

    def __init__(self, port: int, loop: Loop, take: Callable[[Packet], None]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.loop = loop
        self.take = take
        self.decoder = Decoder(Version.V5)
        loop.register(self)

    def send(self, packet: Packet) -> None:
        self.socket.sendall(encode(packet, Version.V5))

    def read(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise HeadgateError("the broker closed a connection")
        for packet in self.decoder.feed(data):
            self.take(packet)

    def close(self) -> None:
        self.send(Disconnect())
        self.loop.unregister(self)
        self.socket.close()


class Loop:
    """All clients in one thread."""

    def __init__(self) -> None:
        self.timers = Timers()
        self._poll = select.epoll()
        self._wires: dict[int, Wire] = {}

    def register(self, wire: Wire) -> None:
        self._wires[wire.socket.fileno()] = wire
        self._poll.register(wire.socket, select.EPOLLIN)

    def unregister(self, wire: Wire) -> None:
        del self._wires[wire.socket.fileno()]
        self._poll.unregister(wire.socket)

    def until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                return
            for number, _ in self._poll.poll(min(left, self.timers.run())):
                if number in self._wires:
                    self._wires[number].read()


@dataclass
class Commuter:
    """A subscriber that comes and goes."""

    name: str
    port: int
    loop: Loop
    rng: Random
    experiment: Experiment
    published: list[float] = field(default_factory=list)
    responses: dict[int, float] = field(default_factory=dict)
    subscribed: bool = False
    wire: Wire | None = None

    def begin(self) -> None:
        self.connect()
        assert self.wire is not None
        options = SubscriptionOptions(1)
        self.wire.send(Subscribe(1, [(self.name, options)]))

    def connect(self) -> None:
        self.wire = Wire(self.port, self.loop, self.take)
        properties = Properties(session_expiry=3600, receive_maximum=1)
        self.wire.send(Connect(self.name, Version.V5, False, 0, properties=properties))

    def live(self) -> None:
        """Come and go from now on, as in the steady state."""
        if self.rng.random() < OFF_S / (ON_S + OFF_S):
            self.toggle()
        else:
            self._after(ON_S, self.toggle)

    def toggle(self) -> None:
        if self.wire is None:
            self.connect()
            self._after(ON_S, self.toggle)
        else:
            self.wire.close()
            self.wire = None
            self._after(OFF_S, self.toggle)

    def _after(self, mean: float, call: Callable[[], None]) -> None:
        self.loop.timers.after(self.rng.expovariate(1 / mean) / self.experiment.scale, call)

    def take(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            # Service that is interrupted begins anew, which for an exponential one is the same.
            wire = self.wire
            number, identifier = int(packet.payload), packet.packet_id
            self._after(1 / SERVICE_RATE, lambda: self.serve(wire, number, identifier))
        elif isinstance(packet, Suback):
            self.subscribed = True
        elif not isinstance(packet, Connack) or packet.reason:
            raise HeadgateError(f"{self.name} was told {packet}")

    def serve(self, wire: Wire | None, number: int, identifier: int) -> None:
        if wire is not None and wire is self.wire:
            wire.send(Puback(identifier))
            elapsed = time.monotonic() - self.published[number]
            self.responses.setdefault(number, elapsed * self.experiment.scale)


class Device:
    """Publishes to every commuter, Poisson."""

    def __init__(self, port: int, loop: Loop, experiment: Experiment) -> None:
        self.wire = Wire(port, loop, lambda _: None)
        self.wire.send(Connect("device", Version.V5, True, 0))
        self.loop = loop
        self.experiment = experiment
        self._identifier = 0

    def serve(self, commuter: Commuter) -> None:
        """Publish, and again after a while."""
        self._identifier = self._identifier % 65535 + 1
        payload = str(len(commuter.published)).encode()
        commuter.published.append(time.monotonic())
        self.wire.send(Publish(commuter.name, payload, 1, packet_id=self._identifier))
        rate = self.experiment.arrival_rate * self.experiment.scale
        self.loop.timers.after(commuter.rng.expovariate(rate), lambda: self.serve(commuter))


def configuration(experiment: Experiment, folder: Path) -> str:
    """One application for each group. Nothing but the queue is to be measured: no disk."""
    lines = [
        'listeners: [{type: tcp, address: "127.0.0.1:0"}]',
        f"data_dir: {folder / 'data'}",
        "durability: none",
        "limits: {connections_per_address: 0}",
        "applications:",
    ]
    lines += [
        f'  group-{number}: {{clients: ["group-{number}-*"]}}'
        for number in range(len(experiment.joins))
    ]
    threshold = THRESHOLD_S / experiment.scale
    lines.append(f'  threshold: {{clients: ["threshold-*"], threshold_s: {threshold}}}')
    if experiment.joins:
        lines.append("policy:")
    lines += [
        f"  - {{application: group-{number}, join: {join}}}"
        for number, join in enumerate(experiment.joins)
    ]
    return "\n".join(lines) + "\n"


@contextmanager
def broker(experiment: Experiment) -> Iterator[int]:
    """A broker process; yields its port."""
    with tempfile.TemporaryDirectory(prefix="headgate-onoff-") as name:
        file = Path(name) / "headgate.yaml"
        file.write_text(configuration(experiment, Path(name)), encoding="utf-8")
        process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "headgate", "serve", "--config", str(file)],
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            ready = select.select([process.stdout], [], [], PATIENCE)[0]
            line = process.stdout.readline().decode() if ready else ""
            if "ready" not in line:
                raise HeadgateError(f"the broker did not start: {line!r}")
            yield int(line.partition("tcp://")[2].split()[0].rstrip(",").rpartition(":")[2])
        finally:
            process.terminate()
            try:
                process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def run(experiment: Experiment, tell: Tell = silently) -> list[Outcome]:
    """The whole experiment; groups run side by side."""
    rng = Random(experiment.seed)  # noqa: S311 - periods and sizes, not secrets
    groups: list[float | None] = list(experiment.joins)
    names = [f"group-{number}" for number in range(len(groups))]
    if experiment.by_threshold:
        groups.append(None)
        names.append("threshold")
    with broker(experiment) as port:
        loop = Loop()
        device = Device(port, loop, experiment)
        commuters = [
            [
                Commuter(f"{name}-{number}", port, loop, chance(rng), experiment)
                for number in range(experiment.clients)
            ]
            for name in names
        ]
        everybody = [commuter for group in commuters for commuter in group]
        for commuter in everybody:
            commuter.begin()
        loop.until(lambda: all(commuter.subscribed for commuter in everybody), PATIENCE)
        for commuter in everybody:
            commuter.live()
            device.serve(commuter)
        never: Callable[[], bool] = bool
        tell(f"warming up: {experiment.warmup_s / experiment.scale:g} s")
        loop.until(never, experiment.warmup_s / experiment.scale)
        first = [len(commuter.published) for commuter in everybody]
        tell(f"measuring: {experiment.measured_s / experiment.scale:g} s")
        loop.until(never, experiment.measured_s / experiment.scale)
        last = [len(commuter.published) for commuter in everybody]
        tell(f"waiting for what is on its way: {experiment.rest_s / experiment.scale:g} s")
        loop.until(never, experiment.rest_s / experiment.scale)
    windows = dict(zip([c.name for c in everybody], zip(first, last, strict=True), strict=True))
    late = experiment.scale * loop.timers.late / max(1, loop.timers.calls)
    return [
        outcome(join, group, windows, late) for join, group in zip(groups, commuters, strict=True)
    ]


def chance(rng: Random) -> Random:
    """A source of its own for each client, so that they are independent."""
    return Random(rng.getrandbits(64))  # noqa: S311


def outcome(
    join: float | None, group: list[Commuter], windows: dict[str, tuple[int, int]], late: float
) -> Outcome:
    """What a group experienced, by a ratio estimator over its clients."""
    totals, served, offered = [], [], []
    for commuter in group:
        first, last = windows[commuter.name]
        mine = [t for number, t in commuter.responses.items() if first <= number < last]
        totals.append(sum(mine))
        served.append(float(len(mine)))
        offered.append(float(last - first))
    response, response_half = ratio(totals, served)
    success, success_half = ratio(served, offered)
    return Outcome(join, response, response_half, success, success_half, int(sum(served)), late)


def ratio(above: list[float], below: list[float]) -> tuple[float, float]:
    """Σ above / Σ below, and half of its 95 % interval."""
    count, total = len(above), sum(below)
    value = sum(above) / total
    spread = sum((a - value * b) ** 2 for a, b in zip(above, below, strict=True))
    return value, 1.96 * math.sqrt(spread * count / (count - 1)) / total


def expected(experiment: Experiment, join: float | None) -> OnOffQueue:
    """The model's queue; where the broker chose ζ, with the one that exact figures would give."""
    rate = experiment.arrival_rate
    if join is None:
        answer = largest_join(rate, SERVICE_RATE, ON_S, OFF_S, THRESHOLD_S)
        join = float(getattr(answer, "value", 0.0))
    return OnOffQueue(rate, SERVICE_RATE, ON_S, OFF_S, join)


def report(experiment: Experiment, outcomes: list[Outcome]) -> Report:
    """Measured beside the closed form."""
    rows: list[list[Cell]] = []
    within = []
    for one in outcomes:
        queue = expected(experiment, one.join)
        response, success = float(queue.mean_response), float(queue.success_rate)
        rows.append(
            [
                f"{one.join:g}" if one.join is not None else f"the broker's, for {THRESHOLD_S:g} s",
                response,
                f"{one.response_s:.2f} ± {one.response_half:.2f}",
                f"{100 * success:.1f}",
                f"{100 * one.success:.1f} ± {100 * one.success_half:.1f}",
                one.messages,
            ]
        )
        if one.join is not None:
            within.append(
                abs(one.response_s - response) <= one.response_half + 0.05 * response
                and abs(one.success - success) <= one.success_half + 0.01
            )
    columns = ["ζ", "Eq. 28 (s)", "live (s)", "success (%)", "live (%)", "delivered"]
    title = (
        f"λ = {experiment.arrival_rate:g}/s, {experiment.clients} clients for each ζ, "
        f"{experiment.measured_s / (ON_S + OFF_S):g} cycles of each, time × {experiment.scale:g}; "
        f"95 % intervals; clients were {max(one.late_s for one in outcomes):.2g} s late on average"
    )
    claim = Claim(
        "The live broker agrees with Eq. 28 and with (1 + ζ) / 2.",
        all(within),
        f"{sum(within)} of {len(within)} given ζ are within their interval and 5 % of the "
        "response, 1 point of the success rate.",
    )
    return Report("onoff-live", "ON/OFF on the live broker", [Table(title, columns, rows)], [claim])


def reports(experiment: Experiment | None = None, tell: Tell = silently) -> Iterator[Report]:
    experiment = experiment or Experiment()
    try:
        outcomes = run(experiment, tell)
    except OSError as error:
        raise HeadgateError(f"a connection to the broker broke: {error}") from None
    yield report(experiment, outcomes)


@click.command()
@click.option("--rate", default=1.0, help="Messages per second (λ).", show_default=True)
@click.option("--scale", default=10.0, help="The paper's seconds in one.", show_default=True)
@click.option("--clients", default=50, help="Of each ζ.", show_default=True)
@click.option("--measured", default=800.0, help="The paper's seconds.", show_default=True)
@click.option("--warmup", default=800.0, help="The paper's seconds.", show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--markdown", is_flag=True, help="For the documentation.")
def main(
    rate: float,
    scale: float,
    clients: int,
    measured: float,
    warmup: float,
    seed: int,
    markdown: bool,
) -> None:
    """Run the ON/OFF experiment against a broker process."""
    experiment = Experiment(rate, scale, clients, warmup_s=warmup, measured_s=measured, seed=seed)
    shown = report(experiment, run(experiment))
    click.echo(shown.markdown() if markdown else shown.text())


if __name__ == "__main__":
    main()
