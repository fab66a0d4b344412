"""Pipelined shapes: publishers send as fast as the broker delivers.

A group is a set of publishers and a set of subscribers where every subscriber receives every
message. Publishers stop when what they sent is too far ahead of what was delivered, so that a
broker is never asked to queue without bound and has no reason to drop: a loss is a finding.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench import packets
from bench.client import SCRATCH, Client, Loop, PacketClient, drain
from bench.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Run
from bench.target import Effort, Measurement, Stopwatch, Target

SEND_SIZE = 128 * 1024
_LONGEST_WARM_UP = 5.0

Message = tuple[str, bytes]  # topic and payload


@dataclass(frozen=True)
class Pattern:
    """Who sends to whom: `groups` times `publishers` → `subscribers`."""

    publishers: int
    subscribers: int
    groups: int = 1


class Group:
    """Publishers and subscribers of the same messages, and how far they are apart."""

    def __init__(self, subscribers: int, publishers: int) -> None:
        self.reach = subscribers  # deliveries owed for one message
        self.size = publishers
        self.delivered = 0

    def completed_by_each(self) -> int:
        """Messages of each publisher that arrived everywhere, if all are served alike."""
        return self.delivered // (self.reach * self.size)


class Counter(Client):
    """A subscriber at QoS 0: every packet has the same size, so bytes are messages."""

    def __init__(self, address: tuple[str, int], group: Group, size: int, head: int = 0x30) -> None:
        super().__init__(address)
        self._group = group
        self._size = size
        self._head = head
        self._partial = 0  # bytes received of a packet that is not complete

    def readable(self) -> None:
        """Count, and look at the first whole packet's head to know that we are aligned."""
        received = self.receive(SCRATCH)
        boundary = (-self._partial) % self._size
        if boundary < received and SCRATCH[boundary] != self._head:
            raise packets.UnexpectedPacketError(f"a packet begins with 0x{SCRATCH[boundary]:02x}")
        whole, self._partial = divmod(self._partial + received, self._size)
        self._group.delivered += whole


class Acknowledger(PacketClient):
    """A subscriber at QoS 1 or 2."""

    def __init__(
        self,
        address: tuple[str, int],
        group: Group,
        size: int,
        offset: int,
        qos: int,
        lasting: bool = False,
    ) -> None:
        super().__init__(address, lasting=lasting)
        self._group = group
        self._size = size
        self._offset = offset
        self._answer = PUBACK if qos == 1 else PUBREC
        self.sizes = {packets.publish_head(qos): size}
        if qos == 2:
            self.sizes[PUBREL] = packets.ACKNOWLEDGEMENT_SIZE

    def arrived(self, buffer: bytearray, run: Run) -> bytearray:
        """Acknowledge; a QoS 2 message counts when it arrives, not when it is released."""
        if run.head == PUBREL:
            return packets.answers(buffer, run, 4, 2, PUBCOMP)
        self._group.delivered += run.length
        return packets.answers(buffer, run, self._size, self._offset, self._answer)


class Publisher(PacketClient):
    """Sends a ring of pre-encoded packets round and round."""

    def __init__(
        self, address: tuple[str, int], group: Group, ring: bytes, size: int, qos: int
    ) -> None:
        super().__init__(address)
        self.group = group
        self.sent = 0
        self.acknowledged = 0
        self._qos = qos
        self._ring = memoryview(ring)
        self._size = size
        self._next = 0
        self._packets = len(ring) // size
        if qos:
            self.sizes = {PUBACK: 4} if qos == 1 else {PUBREC: 4, PUBCOMP: 4}

    def arrived(self, buffer: bytearray, run: Run) -> bytes | bytearray:
        """PUBACK and PUBCOMP complete a message; PUBREC asks for PUBREL."""
        if run.head == PUBREC:
            return packets.answers(buffer, run, 4, 2, PUBREL)
        self.acknowledged += run.length
        return b""

    def pump(self, share: int, in_flight: int) -> None:
        """Send what the windows allow, once a good part of one is open: batches, not dribbles."""
        window = share
        room = share + self.group.completed_by_each() - self.sent
        if self._qos:
            window = min(window, in_flight)
            room = min(room, in_flight + self.acknowledged - self.sent)
        if room * 4 < window:
            return
        while room > 0 and not self.congested:
            count = min(room, SEND_SIZE // self._size, self._packets - self._next)
            self.send(self._ring[self._next * self._size : (self._next + count) * self._size])
            self._next = (self._next + count) % self._packets
            self.sent += count
            room -= count

    @property
    def unacknowledged(self) -> int:
        """Messages whose acknowledgement is owed."""
        return self.sent - self.acknowledged if self._qos else 0


def make_ring(messages: Sequence[Message], qos: int, in_flight: int) -> bytes:
    """Packets to send in turn; the encoded messages must all have one size."""
    size = len(packets.publish(*messages[0], qos))
    if qos:
        # Twice the window: an identifier is free again long before its turn comes.
        length = min(65535, max(2 * in_flight, len(messages)))
    else:
        length = max(len(messages), 2 * SEND_SIZE // size)
    ring = b"".join(
        packets.publish(*messages[i % len(messages)], qos, i + 1) for i in range(length)
    )
    assert len(ring) == length * size
    return ring


def run_pattern(
    target: Target, effort: Effort, pattern: Pattern, payload: int, qos: int, lasting: bool = False
) -> Measurement:
    """Connect everybody, check that messages arrive intact, then measure.

    Sessions of subscribers may be `lasting`, at QoS 1 and 2: then each message has to be stored.
    """
    groups = []
    for number in range(pattern.groups):
        topic = f"bench/{number:04d}"
        members = connect_group(
            target,
            effort,
            Group(pattern.subscribers, pattern.publishers),
            messages=[(topic, b"x" * payload)],
            topic_filter=topic,
            qos=qos,
            lasting=lasting,
        )
        groups.append(members)
    return run_groups(target, effort, groups)


def run_mixed(target: Target, effort: Effort, subscribers: int) -> Measurement:
    """A new topic with every message, so that no two packets in a row are alike."""
    members = connect_group(
        target,
        effort,
        Group(subscribers, publishers=1),
        messages=mixed_messages(),
        topic_filter="mixed/+",
        qos=0,
    )
    return run_groups(target, effort, [members])


def mixed_messages() -> list[Message]:
    """A thousand topics of 10 to 40 characters with payloads that fill them up to one size."""
    rng = random.Random(1000)
    messages = []
    for number in range(1000):
        topic = f"mixed/{number:04d}".ljust(rng.randint(10, 40), "t")
        messages.append((topic, b"x" * (90 - len(topic))))
    rng.shuffle(messages)
    return messages


@dataclass
class Members:
    """The connections of one group."""

    group: Group
    publishers: list[Publisher]
    subscribers: list[Client]
    size: int


def connect_group(
    target: Target,
    effort: Effort,
    group: Group,
    *,
    messages: Sequence[Message],
    topic_filter: str,
    qos: int,
    lasting: bool = False,
) -> Members:
    """Connect one group and prove with one message that each subscriber receives it intact."""
    size = len(packets.publish(*messages[0], qos))
    offset = packets.topic_end(*messages[0], qos)
    ring = make_ring(messages, qos, effort.in_flight)
    subscribers: list[Client] = [
        Acknowledger(target.address, group, size, offset, qos, lasting)
        if qos
        else Counter(target.address, group, size)
        for _ in range(group.reach)
    ]
    for subscriber in subscribers:
        subscriber.subscribe([topic_filter], qos)
    publishers = [Publisher(target.address, group, ring, size, qos) for _ in range(group.size)]
    probe = packets.publish(*messages[0])
    for publisher in publishers:
        publisher.socket.sendall(probe)
        for subscriber in subscribers:
            subscriber.expect(probe)
    return Members(group, publishers, subscribers, size)


def run_groups(target: Target, effort: Effort, members: Sequence[Members]) -> Measurement:
    """Warm up, measure for a while, stop publishing, and wait for what is still under way."""
    groups = [member.group for member in members]
    publishers = [publisher for member in members for publisher in member.publishers]
    loop = Loop([*publishers, *(s for member in members for s in member.subscribers)])
    reach = groups[0].reach
    share = max(1, effort.window_bytes // (members[0].size * reach * len(publishers)))
    fair = max(1, effort.in_flight_total // (reach * len(publishers)))
    in_flight = min(effort.in_flight, fair)
    window = min(share, in_flight) if publishers[0].sizes else share

    def delivered() -> int:
        return sum(group.delivered for group in groups)

    def drive_until(end: float, at_least: int = 0, latest: float = 0.0) -> None:
        while (now := time.perf_counter()) < end or (now < latest and delivered() < at_least):
            for publisher in publishers:
                publisher.pump(share, in_flight)
            loop.turn()

    try:
        watch = Stopwatch(target, delivered, lambda: loop.waited)
        begin = time.perf_counter()
        # Until one whole window went through, the rate is that of filling buffers.
        drive_until(
            begin + effort.warm_up,
            at_least=window * reach * len(publishers),
            latest=begin + max(effort.warm_up, _LONGEST_WARM_UP),
        )
        watch.start()
        drive_until(time.perf_counter() + effort.seconds)
        measurement = watch.stop()
        owed = sum(publisher.sent for publisher in publishers) * reach
        drain(
            loop,
            effort,
            done=lambda: delivered() >= owed and all(p.unacknowledged == 0 for p in publishers),
        )
        measurement.lost = owed - delivered()
        measurement.unacknowledged = sum(p.unacknowledged for p in publishers)
    finally:
        loop.close()
    return measurement
