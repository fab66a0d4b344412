"""The publishers: one process, a connection each, every message at QoS 1.

p-MQTT §3: each publisher sends its next message after a successful transmission, four in all, of
four bytes each. One of them, another each time, has an emergency.
"""

import gc
import random
import select
import struct
import time
from collections.abc import Callable
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
    """Nanoseconds of the monotonic clock, by publisher and message."""
    unacknowledged: int


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
        self._by_descriptor = {p.socket.fileno(): i for i, p in enumerate(self._publishers)}
        for publisher in self._publishers:
            publisher.attach(self._epoll)
        self._form = form
        self._rng = random.Random(seed)
        self.rounds: list[Round] = []

    def round(self, kind: Kind) -> None:
        """Everybody sends at once, in an order of chance, and goes on when acknowledged."""
        count = len(self._publishers)
        special = self._rng.randrange(count)
        order = self._rng.sample(range(count), count)
        first = len(self.rounds) * MESSAGES
        plain = bytearray(packets.publish(TOPIC, bytes(4), 1, 1))
        marked = bytearray(emergency(kind, self._form))
        sent = [0] * (count * MESSAGES)
        left = [MESSAGES] * count
        clock = time.monotonic_ns
        publishers = self._publishers

        def send(number: int) -> None:
            message = MESSAGES - left[number]
            frame = marked if number == special else plain
            PAYLOAD.pack_into(frame, len(frame) - 4, number, first + message)
            sent[number * MESSAGES + message] = clock()
            publishers[number].send(bytes(frame))

        gc.collect()
        gc.disable()
        try:
            for number in order:
                send(number)
            left_over = self._acknowledge(left, send)
        finally:
            gc.enable()
        self.rounds.append(Round(kind, special, sent, left_over))

    def _acknowledge(self, left: list[int], send: Callable[[int], None]) -> int:
        owed = len(left) * MESSAGES
        buffer = bytearray(64)
        limit = time.monotonic() + ROUND_LIMIT
        while owed and time.monotonic() < limit:
            for descriptor, _ in self._epoll.poll(0.1):
                number = self._by_descriptor[descriptor]
                if not self._publishers[number].acknowledged(buffer):
                    continue
                owed -= 1
                left[number] -= 1
                if left[number]:
                    send(number)
        return owed

    def close(self) -> None:
        """All of them leave."""
        self._epoll.close()
        for publisher in self._publishers:
            publisher.close()
