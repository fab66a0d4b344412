"""The publishers: one process, a connection each, every message at QoS 1.

p-MQTT §3: each publisher sends its next message after a successful transmission, four in all, of
four bytes each. One of them, another each time, has an emergency.

All send at the same moment, as a thousand devices do and one process cannot: the broker is stopped
while the messages go into its sockets, and the clock starts when it continues. Otherwise the
driver would be measured, because it takes longer to send a message than a broker to pass it on.
"""

import contextlib
import gc
import os
import random
import select
import signal
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from bench import packets
from bench.client import Client

TOPIC = "site/hall"
MESSAGES = 4
PAYLOAD = struct.Struct(">HH")
"""Publisher, and number of the message over all rounds: the four bytes of the paper."""

ROUND_LIMIT = 60.0


class Kind(StrEnum):
    """What the messages of an emergency are called."""

    URGENT = "urgent"
    CRITICAL = "critical"


class Form(StrEnum):
    """How a publisher says so."""

    PLAIN = "plain"
    """Not at all: a broker that knows no emergencies."""
    TYPES = "types"
    """Packet types 0 and 15 of MQTT 3.1.1, as in the paper."""
    PREFIXES = "prefixes"
    """Topics under `$urgent/` and `$critical/`, for clients that cannot be changed."""


def emergency(kind: Kind, form: Form) -> bytes:
    """A packet of an emergency, its payload still empty."""
    if form is Form.PREFIXES:
        return packets.publish(f"${kind}/{TOPIC}", bytes(4), 1, 1)
    packet = packets.publish(TOPIC, bytes(4), 1, 1)
    if form is Form.TYPES:
        # The fields of PUBLISH under a packet type that MQTT 3.1.1 leaves free (p-MQTT §2.2).
        packet = bytes([packet[0] & 15 | (0x00 if kind is Kind.URGENT else 0xF0)]) + packet[1:]
    return packet


@dataclass(frozen=True)
class Round:
    """Four messages of every publisher."""

    kind: Kind
    special: int
    """The publisher with the emergency."""
    sent: list[int]
    """Nanoseconds of the monotonic clock at which everybody's first, second … message came."""
    unacknowledged: int


@contextlib.contextmanager
def _at_once(broker: int | None) -> Iterator[None]:
    """What is sent meanwhile comes to the broker all at once, in the end."""
    if broker is None:  # it runs elsewhere
        yield
        return
    os.kill(broker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker, signal.SIGCONT)


class _Publisher(Client):
    """Its acknowledgements alone arrive here."""

    def acknowledged(self, buffer: bytearray) -> bool:
        """Whether PUBACK came; one message is under way at most, so nothing else can."""
        size = self.receive(buffer)
        if size and (size != 4 or buffer[0] != packets.PUBACK):
            raise packets.UnexpectedPacketError(f"expected PUBACK, received {buffer[:size].hex()}")
        return size > 0


class Crowd:
    """Connected publishers."""

    def __init__(self, address: tuple[str, int], count: int, form: Form, seed: int) -> None:
        self._publishers = [_Publisher(address) for _ in range(count)]
        self._epoll = select.epoll()
        self._by_descriptor = {p.socket.fileno(): p for p in self._publishers}
        for publisher in self._publishers:
            publisher.attach(self._epoll)
        self._form = form
        self._rng = random.Random(seed)
        self.rounds: list[Round] = []

    def round(self, kind: Kind, broker: int | None) -> None:
        """Four times: everybody sends at the same moment, and waits for its acknowledgement."""
        count = len(self._publishers)
        special = self._rng.randrange(count)
        first = len(self.rounds) * MESSAGES
        plain = bytearray(packets.publish(TOPIC, bytes(PAYLOAD.size), 1, 1))
        marked = bytearray(emergency(kind, self._form))
        sent: list[int] = []
        unacknowledged = 0
        gc.collect()
        gc.disable()
        try:
            for number in range(first, first + MESSAGES):
                with _at_once(broker):
                    for publisher in self._rng.sample(range(count), count):
                        frame = marked if publisher == special else plain
                        PAYLOAD.pack_into(frame, len(frame) - PAYLOAD.size, publisher, number)
                        self._publishers[publisher].send(bytes(frame))
                    sent.append(time.monotonic_ns())
                unacknowledged += self._await_acknowledgements()
        finally:
            gc.enable()
        self.rounds.append(Round(kind, special, sent, unacknowledged))

    def _await_acknowledgements(self) -> int:
        """Of everybody; how many did not come."""
        owed = len(self._publishers)
        buffer = bytearray(64)
        limit = time.monotonic() + ROUND_LIMIT
        while owed and time.monotonic() < limit:
            for descriptor, _ in self._epoll.poll(0.1):
                owed -= self._by_descriptor[descriptor].acknowledged(buffer)
        return owed

    def close(self) -> None:
        """All of them leave."""
        self._epoll.close()
        for publisher in self._publishers:
            publisher.close()
