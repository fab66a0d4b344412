"""`python -m bench memory`: what the broker's memory takes, and what `limits.memory` counts for it.

The core alone, in a fresh process for each kind of thing, with texts of usual lengths: how much
more memory the process has when there are 10,000 of them, and how much more is counted. A limit
keeps its promise where what is counted is no less than what is taken.
"""

import gc
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random

from bench.core import EverybodyMayDoEverything
from headgate import is_compiled
from headgate.config import defaults
from headgate.core.access import Peer
from headgate.core.broker import Broker
from headgate.core.channel import Channel
from headgate.core.journal import NoJournal
from headgate.wire.codec import encode
from headgate.wire.packets import (
    Connect,
    Packet,
    Properties,
    Publish,
    Subscribe,
    SubscriptionOptions,
    Version,
    Will,
)

COUNT = 10_000
PAYLOAD = 64


class Bench:
    """A broker's core to which things happen."""

    def __init__(self) -> None:
        gate = EverybodyMayDoEverything()
        self.broker = Broker(defaults(), gate, NoJournal(), Random(1))

    def connect(self, name: str, expiry: int = 0, will: Will | None = None) -> Channel:
        """A client, whose session stays for `expiry` seconds."""
        channel = self.broker.open(Peer("127.0.0.1"), 1.0)
        properties = Properties(session_expiry=expiry)
        self.tell(channel, Connect(name, will=will, properties=properties))
        return channel

    def tell(self, channel: Channel, packet: Packet) -> None:
        """Let a client say something, and throw away what it is answered."""
        channel.receive(encode(packet, Version.V5), 1.0)
        channel.outlet.pieces.clear()
        channel.outlet.size = 0
        channel.outlet.clear = True
        self.broker.board.clear()
        channel.outlet.listed = False

    def leave(self, channel: Channel) -> None:
        """The connection ends."""
        self.broker.lost(channel, 1.0)


Step = Callable[[int], None]


def sessions(bench: Bench) -> Step:
    return lambda number: bench.leave(bench.connect(f"sensor-gateway-{number:06}", 3600))


def wills(bench: Bench) -> Step:
    def one(number: int) -> None:
        will = Will(f"gateways/{number:06}/status", b"x" * PAYLOAD)
        bench.connect(f"sensor-gateway-{number:06}", 3600, will)

    return one


def connected(bench: Bench) -> Step:
    def one(number: int) -> None:
        bench.connect(f"sensor-gateway-{number:06}", 3600)

    return one


def subscriptions(bench: Bench) -> Step:
    client = bench.connect("application", 3600)

    def one(number: int) -> None:
        asked = (f"site/{number % 100}/sensor/{number:06}/#", SubscriptionOptions(1))
        bench.tell(client, Subscribe(1, [asked]))

    return one


def scattered(bench: Bench) -> Step:
    clients = [bench.connect(f"application-{number}", 3600) for number in range(100)]

    def one(number: int) -> None:
        asked = (f"site/{number % 100}/sensor/{number:06}", SubscriptionOptions(1))
        bench.tell(clients[number % 100], Subscribe(1, [asked]))

    return one


def retained(bench: Bench) -> Step:
    client = bench.connect("device")

    def one(number: int) -> None:
        topic = f"site/{number % 100}/sensor/{number:06}/state"
        bench.tell(client, Publish(topic, bytes(PAYLOAD), retain=True))

    return one


def queued(bench: Bench) -> Step:
    for number in range(10):
        reader = bench.connect(f"application-{number}", 3600)
        bench.tell(reader, Subscribe(1, [(f"site/{number}/#", SubscriptionOptions(1))]))
        bench.leave(reader)
    client = bench.connect("device")

    def one(number: int) -> None:
        topic = f"site/{number % 10}/sensor/{number:06}/state"
        bench.tell(client, Publish(topic, bytes(PAYLOAD), 1, packet_id=1 + number % 60_000))

    return one


def in_flight(bench: Bench) -> Step:
    for number in range(COUNT // 100):
        reader = bench.connect(f"application-{number}", 3600)
        bench.tell(reader, Subscribe(1, [(f"site/{number}/#", SubscriptionOptions(1))]))
    client = bench.connect("device")

    def one(number: int) -> None:
        topic = f"site/{number % (COUNT // 100)}/sensor/{number:06}/state"
        bench.tell(client, Publish(topic, bytes(PAYLOAD), 1, packet_id=1 + number % 60_000))
        for session in bench.broker.sessions.values():
            outlet = session.outlet
            if outlet is not None and outlet.pieces:
                outlet.pieces.clear()
                outlet.marks.clear()
                outlet.size = 0
                outlet.listed = False

    return one


KINDS: dict[str, Callable[[Bench], Step]] = {
    "session of a client that is away": sessions,
    "connected client": connected,
    "connected client with a will": wills,
    "subscription, all of one client": subscriptions,
    "subscription, of 100 clients": scattered,
    "retained message": retained,
    "queued message": queued,
    "message in flight": in_flight,
}


def measured(kind: str) -> tuple[float, float]:
    """Bytes taken and bytes counted, for each of the things of a kind."""
    bench = Bench()
    step = KINDS[kind](bench)
    for number in range(100):
        step(number)
    gc.collect()
    before, counted = resident(), accounted(bench.broker)
    for number in range(100, COUNT + 100):
        step(number)
    gc.collect()
    return (resident() - before) / COUNT, (accounted(bench.broker) - counted) / COUNT


def resident() -> int:
    """Bytes that this process has in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def accounted(broker: Broker) -> int:
    """Bytes that count, those that are free included."""
    pool = broker.pool
    return pool.size + pool.unacknowledged + pool.retained + pool.standing


def main() -> int:
    """Print the table."""
    print(f"{COUNT:,} of each, payloads of {PAYLOAD} B", "" if is_compiled() else "(uncompiled)")
    print(f"{'':36}{'bytes taken':>12}{'counted':>12}")
    for kind in KINDS:
        # Each in a process of its own: what one gave back would hide what the next one takes.
        with ProcessPoolExecutor(1, get_context("spawn")) as alone:
            taken, counted = alone.submit(measured, kind).result()
        print(f"{kind:36}{taken:12,.0f}{counted:12,.0f}", flush=True)
    return 0
