"""A client that behaves, and notices if others make it wait; and eyes on the broker's memory."""

from __future__ import annotations

import time
from collections.abc import Iterable

from durability.peer import Peer, Publisher, Subscriber, run
from durability.process import MortalBroker

MIB = 1 << 20
PATIENCE = 10.0
"""Seconds for one message there and back, at worst, on a machine that does other things too."""


class Witness:
    """Publishes to itself through the broker, at QoS 1, and measures how long that takes."""

    def __init__(self, broker: MortalBroker, name: str = "witness") -> None:
        self.broker = broker
        self.topic = f"probe/{name}"
        self.publisher = Publisher(f"{name}-publisher", expiry=0)
        self.subscriber = Subscriber(f"{name}-subscriber", expiry=0)
        for peer in (self.publisher, self.subscriber):
            peer.connect(broker.port)
            peer.until_connected()
        self.subscriber.subscribe(self.topic, qos=1)
        self.waits: list[float] = []
        self.before = broker.resident()
        self.most = 0

    def look(self, others: Iterable[Peer] = ()) -> None:
        """One message there and back, while `others` go on; and a look at the memory."""
        number = len(self.waits)
        self.publisher.publish(self.topic, b"%d" % number, 1)
        began = time.monotonic()
        run(
            [self.publisher, self.subscriber, *others],
            lambda: len(self.subscriber.messages) > number,
            "a message of the witness",
        )
        self.waits.append(time.monotonic() - began)
        self.most = max(self.most, self.broker.resident() - self.before)

    def testify(self, most: int) -> None:
        """Nobody was kept waiting, nothing was lost, and the memory grew by at most this."""
        assert self.subscriber.payloads(self.topic) == [b"%d" % n for n in range(len(self.waits))]
        assert max(self.waits) < PATIENCE, f"waited {max(self.waits):.1f} s"
        typical = sorted(self.waits)[len(self.waits) // 2]
        assert typical < PATIENCE / 10, f"waited {typical:.1f} s typically"
        assert self.most < most, f"the memory grew by {self.most / MIB:.1f} MiB"


def statistics(broker: MortalBroker, prefix: str = "$SYS/#") -> dict[str, str]:
    """The broker's own figures, fresh ones."""
    client = Subscriber("statistics", expiry=0)
    client.connect(broker.port)
    client.until_connected()
    client.subscribe(prefix, qos=0)
    # The retained ones come at once; wait for a whole round of new ones after them.
    client.until(lambda: any(message.retain for message in client.messages), "$SYS")
    first = next(message.topic for message in client.messages if message.retain)
    client.until(
        lambda: sum(m.topic == first and not m.retain for m in client.messages) >= 2,
        "new figures in $SYS",
    )
    values = {message.topic: message.payload.decode() for message in client.messages}
    client.disconnect()
    return values


def dropped(broker: MortalBroker) -> dict[str, int]:
    """Messages dropped so far, by reason."""
    values = statistics(broker, "$SYS/headgate/dropped/#")
    return {topic.rpartition("/")[2]: int(value) for topic, value in values.items()}
