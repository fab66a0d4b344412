"""`python -m bench core`: what a delivery costs the core alone, without sockets or the kernel.

The broker's core takes bytes and gives bytes, so that its cost can be measured in CPU time, apart
from everything else. This is how the compiled modules are compared with the plain ones
(docs/decisions/0002-cython.md).
"""

import time
from collections.abc import Callable
from random import Random

from headgate import is_compiled
from headgate.config import defaults
from headgate.core.access import Exchange, Identity, Login, Peer, Verdict
from headgate.core.accounting import settle
from headgate.core.broker import Broker
from headgate.core.channel import Channel
from headgate.core.journal import NoJournal
from headgate.wire.codec import Decoder, encode
from headgate.wire.packets import (
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    SubscriptionOptions,
    Version,
)

TOPIC = "bench/core"
PAYLOAD = bytes(64)


class EverybodyMayDoEverything:
    """A gatekeeper that costs nothing."""

    def authenticate(self, login: Login, answer: Callable[[Verdict], None]) -> None:
        answer(Verdict(Identity()))

    def exchange(self, method: str, login: Login) -> Exchange | None:
        return None

    def may_publish(self, identity: Identity, client_id: str, topic: str) -> bool:
        return True

    def may_subscribe(self, identity: Identity, client_id: str, topic_filter: str) -> bool:
        return True

    def may_receive(self, identity: Identity, client_id: str, topic: str) -> bool:
        return True

    def may_receive_all(self, identity: Identity, client_id: str, topic_filter: str) -> bool:
        return True

    def may_claim(
        self, identity: Identity, client_id: str, what: str, topic: str | None = None
    ) -> bool:
        return True


class Bench:
    """One publisher, some subscribers, and the CPU time spent in the core between them."""

    def __init__(self, version: Version, qos: int, subscribers: int) -> None:
        self.version = version
        self.qos = qos
        self.broker = Broker(defaults(), EverybodyMayDoEverything(), NoJournal(), Random(1))
        self.seconds = 0.0
        self.publisher = self._connect("publisher")
        self.subscribers = [self._connect(f"subscriber-{n}") for n in range(subscribers)]
        for subscriber in self.subscribers:
            self._give(subscriber, Subscribe(1, [(TOPIC, SubscriptionOptions(qos))]))
        self._take()
        self.seconds = 0.0

    def _connect(self, name: str) -> Channel:
        channel = self.broker.open(Peer(), 0.0)
        self._give(channel, Connect(name, self.version))
        self._take()
        return channel

    def _give(self, channel: Channel, *packets: Packet) -> None:
        data = b"".join(encode(packet, self.version) for packet in packets)
        start = time.process_time()
        channel.receive(data, 1.0)
        self.seconds += time.process_time() - start

    def _take(self) -> dict[int, bytes]:
        start = time.process_time()
        written = {}
        for outlet in self.broker.board[:]:
            outlet.listed = False
            written[id(outlet)] = outlet.take()
            settle(outlet, 1.0)
        self.broker.board.clear()
        self.seconds += time.process_time() - start
        return written

    def run(self, batch: int, rounds: int) -> float:
        """Nanoseconds of CPU time for each delivery, acknowledgements included."""
        packets = [
            Publish(TOPIC, PAYLOAD, self.qos, packet_id=n + 1 if self.qos else 0)
            for n in range(batch)
        ]
        releases = [Pubrel(n + 1) for n in range(batch)]
        for _ in range(rounds):
            self._give(self.publisher, *packets)
            written = self._take()
            received = {s: self._packet_ids(written[id(s.outlet)]) for s in self.subscribers}
            assert all(len(ids) == batch for ids in received.values())
            if self.qos == 1:
                for subscriber, ids in received.items():
                    self._give(subscriber, *(Puback(packet_id) for packet_id in ids))
                self._take()
            elif self.qos == 2:
                self._give(self.publisher, *releases)
                for subscriber, ids in received.items():
                    self._give(subscriber, *(Pubrec(packet_id) for packet_id in ids))
                    self._give(subscriber, *(Pubcomp(packet_id) for packet_id in ids))
                self._take()
        return self.seconds / (rounds * batch * len(self.subscribers)) * 1e9

    def _packet_ids(self, data: bytes) -> list[int]:
        return [p.packet_id for p in Decoder(self.version).feed(data) if isinstance(p, Publish)]


def main() -> int:
    """Print the table."""
    print(f"the hot path is {'compiled' if is_compiled() else 'plain Python'}")
    print(f"{'version':>8} {'QoS':>4} {'subscribers':>12} {'batch':>6} {'ns per delivery':>16}")
    for version in (Version.V311, Version.V5):
        for qos, subscribers, batch in (
            (0, 1, 200),
            (1, 1, 200),
            (2, 1, 200),
            (1, 10, 200),
            (0, 1, 1),
        ):
            rounds = max(20, 20_000 // (batch * subscribers))
            cost = Bench(version, qos, subscribers).run(batch, rounds)
            print(f"{version.name:>8} {qos:>4} {subscribers:>12} {batch:>6} {cost:>16,.0f}")
    return 0
