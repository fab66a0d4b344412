"""`python -m bench policy`: for how long a new policy for 10,000 flows holds up everything else.

A policy applies between two messages: settling every flow and keeping the policy happen in one
piece, in the broker's only thread. Reading it and finding each flow's rules happen before, in
slices. Three figures for each kind of policy: in the core alone, the CPU time of the longest turn
and of all turns that the command takes, and, in a running broker, the longest round trip of a
message while policies are applied, beside the longest without one. The goal is 50 ms for the
longest turn. On a machine with other work the CPU times are the ones to trust.
"""

import gc
import json
import socket
import time
from collections.abc import Callable
from functools import partial
from random import Random
from statistics import median
from typing import Any, NamedTuple, TypeVar

from bench import configured
from bench.core import EverybodyMayDoEverything
from headgate import is_compiled
from headgate.config import Configuration
from headgate.contract import Application
from headgate.core.access import Peer
from headgate.core.broker import Broker
from headgate.core.channel import Channel
from headgate.core.journal import NoJournal
from headgate.wire.codec import Decoder, encode
from headgate.wire.packets import (
    Connack,
    Connect,
    Packet,
    Puback,
    Publish,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Version,
)

CLIENTS = 1000
FLOWS_EACH = 10
APPLICATIONS = 20
REPETITIONS = 7
GOAL = 0.050
SOON = 0.01
"""Seconds within which a command's next turn comes."""

P = TypeVar("P", bound=Packet)


def client_id(number: int) -> str:
    return f"app{number % APPLICATIONS}-{number}"


def topic_filter(number: int, index: int) -> str:
    return f"site/{number}/sensor/{index}/#"


def applications() -> list[dict[str, Any]]:
    return [
        {
            "name": f"app{number}",
            "clients": [f"app{number}-*"],
            "category": f"C{number % 5}",
            "requirement": {"loss": 0.5},
        }
        for number in range(APPLICATIONS)
    ]


def policies(version: int) -> dict[str, list[dict[str, Any]]]:
    """Kinds of policies; each version sets other priorities, so that every flow is moved."""
    everyone = [(number, index) for number in range(CLIENTS) for index in range(FLOWS_EACH)]
    return {
        "one rule": [{"priority": version % 16}],
        "5 categories": [
            {"category": f"C{number}", "priority": (number + version) % 16, "drop": 0.01}
            for number in range(5)
        ],
        "20 applications": [
            {"application": f"app{number}", "priority": (number + version) % 16}
            for number in range(APPLICATIONS)
        ],
        "1,000 topics": [
            {"topic": f"site/{number}/#", "priority": (number + version) % 16}
            for number in range(CLIENTS)
        ],
        "10,000 exact flows": [
            {
                "flow": {"client": client_id(number), "filter": topic_filter(number, index)},
                "priority": (index + version) % 16,
                "drop": 0.01,
                "lifetime": 2.0,
            }
            for number, index in everyone
        ],
    }


def command(version: int, rules: list[dict[str, Any]]) -> Publish:
    payload = json.dumps({"version": version, "rules": rules}).encode()
    return Publish("$CONTROL/headgate/policy", payload, 1, packet_id=1 + version % 60_000)


# In the core alone


def opened(broker: Broker, name: str) -> Channel:
    channel = broker.open(Peer("127.0.0.1"), 1.0)
    channel.receive(encode(Connect(name), Version.V5), 1.0)
    return channel


class Turns(NamedTuple):
    """CPU seconds that a command takes, from its bytes to its answer."""

    longest: float
    all: float


def populated() -> Broker:
    """A broker with all clients and their flows."""
    known = tuple(
        Application(name=one["name"], clients=tuple(one["clients"]), category=one["category"])
        for one in applications()
    )
    gate = EverybodyMayDoEverything()
    broker = Broker(Configuration(applications=known), gate, NoJournal(), Random(1))
    for number in range(CLIENTS):
        filters = [
            (topic_filter(number, index), SubscriptionOptions(1)) for index in range(FLOWS_EACH)
        ]
        channel = opened(broker, client_id(number))
        channel.receive(encode(Subscribe(1, filters), Version.V5), 1.0)
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)  # as the server does
    return broker


def core() -> dict[str, Turns]:
    """What a command of each kind takes: the median of several."""
    broker = populated()
    admin = opened(broker, "admin")
    spent: dict[str, list[list[float]]] = {kind: [] for kind in policies(0)}
    version = 0
    now = 2.0
    for _ in range(REPETITIONS):
        for kind, times in spent.items():
            version += 1
            data = encode(command(version, policies(version)[kind]), Version.V5)
            turns = [cpu_of(partial(admin.receive, data, now))]
            while broker.enforcer.policy.version != version or broker.timers.due < now + SOON:
                now = broker.timers.due
                turns.append(cpu_of(partial(broker.timers.run, now)))
            times.append(turns)
            admin.outlet.take()
    return {
        kind: Turns(median(map(max, times)), median(map(sum, times)))
        for kind, times in spent.items()
    }


def cpu_of(call: Callable[[], None]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


# In a running broker


class Connection:
    """A blocking client."""

    def __init__(self, address: tuple[str, int], name: str) -> None:
        self.socket = socket.create_connection(address, timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.decoder = Decoder(Version.V5)
        self.send(Connect(name))
        self.expect(Connack)

    def send(self, packet: Packet) -> None:
        self.socket.sendall(encode(packet, Version.V5))

    def expect(self, kind: type[P]) -> P:
        while True:
            packet = self.decoder.next_packet()
            if isinstance(packet, kind):
                return packet
            if packet is None:
                self.decoder.receive(self.socket.recv(65536))


def live() -> dict[str, float]:
    """The longest round trip of a message, in seconds, while commands of each kind are obeyed."""
    settings = {"auth": {"local_roles": ["admin"]}, "durability": "os", "sys_interval": 0}
    settings["applications"] = {one.pop("name"): one for one in applications()}
    with configured.headgate("headgate", ["127.0.0.1"], settings).running() as target:
        subscribers = [subscriber(target.address, number) for number in range(CLIENTS)]
        echo, admin = Connection(target.address, "echo"), Connection(target.address, "admin")
        echo.send(Subscribe(1, [("echo", SubscriptionOptions(0))]))
        echo.expect(Suback)
        longest = {"no policy": max(round_trip(echo) for _ in range(2000))}
        version = 0
        for kind in policies(0):
            times = []
            for _ in range(REPETITIONS):
                version += 1
                request = command(version, policies(version)[kind])
                times.append(during(echo, partial(admin.send, request)))
                assert admin.expect(Puback).reason == 0
            longest[kind] = median(times)
        for connection in subscribers:
            connection.socket.close()
    return longest


def subscriber(address: tuple[str, int], number: int) -> Connection:
    connection = Connection(address, client_id(number))
    filters = [(topic_filter(number, index), SubscriptionOptions(1)) for index in range(FLOWS_EACH)]
    connection.send(Subscribe(1, filters))
    connection.expect(Suback)
    return connection


def round_trip(echo: Connection) -> float:
    start = time.perf_counter()
    echo.send(Publish("echo", b"x"))
    echo.expect(Publish)
    return time.perf_counter() - start


def during(echo: Connection, disturb: Callable[[], None]) -> float:
    """The longest round trip in the quarter of a second after a disturbance."""
    for _ in range(20):
        round_trip(echo)
    disturb()
    end = time.perf_counter() + 0.25
    longest = 0.0
    while time.perf_counter() < end:
        longest = max(longest, round_trip(echo))
    return longest


def main() -> int:
    print(f"{CLIENTS * FLOWS_EACH:,} flows, {'compiled' if is_compiled() else 'not compiled'}; ms")
    cpu = core()
    longest = live()
    quiet = longest.pop("no policy")
    print(f"{'policy':20}{'longest turn':>14}{'all turns':>12}{'longest round trip':>22}")
    print(f"{'none':20}{'':26}{quiet * 1e3:22.1f}")
    for kind, turns in cpu.items():
        mark = "✓" if turns.longest < GOAL else "✗"
        print(
            f"{kind:20}{turns.longest * 1e3:14.1f}{turns.all * 1e3:12.1f}"
            f"{longest[kind] * 1e3:22.1f} {mark}"
        )
    return 0 if max(turns.longest for turns in cpu.values()) < GOAL else 1
