"""Single-message shapes: nobody has more than one message under way.

A publisher sends its next message when the last one was delivered and, at QoS 1 and 2,
acknowledged. Nothing can be batched within a connection; what counts is the cost of a wake-up.
"""

import time
from collections.abc import Sequence

from bench import packets
from bench.client import Client, Loop, PacketClient, drain
from bench.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Run
from bench.target import Effort, Measurement, Stopwatch, Target

_INDEX_DIGITS = 4


class Sender(PacketClient):
    """Publishes one message at a time."""

    running = True

    def __init__(self, address: tuple[str, int], topic: str, payload: bytes, qos: int) -> None:
        super().__init__(address)
        # One message under way, so one packet identifier is enough.
        self._packet = packets.publish(topic, payload, qos, 1)
        self._steps = 1 if qos == 0 else 2  # delivered; acknowledged
        self._owed = 0
        self.completed = 0
        if qos:
            self.sizes = {PUBACK: 4} if qos == 1 else {PUBREC: 4, PUBCOMP: 4}

    @property
    def waiting(self) -> bool:
        """Whether a message is under way."""
        return self._owed > 0

    def begin(self) -> None:
        """Send the first message."""
        self._owed = self._steps
        self.send(self._packet)

    def step(self) -> bytes:
        """The message under way was delivered, or acknowledged: what may go now, if anything."""
        self._owed -= 1
        if self._owed:
            return b""
        self.completed += 1
        if not self.running:
            return b""
        self._owed = self._steps
        return self._packet

    def arrived(self, buffer: bytearray, run: Run) -> bytes | bytearray:
        """PUBREC asks for PUBREL; PUBACK and PUBCOMP are a step."""
        if run.head == PUBREC:
            return packets.answers(buffer, run, 4, 2, PUBREL)
        return self.step()


class Mirror(Sender):
    """Subscribes to its own topic: publisher and subscriber in one connection."""

    def __init__(self, address: tuple[str, int], topic: str, payload: bytes, qos: int) -> None:
        super().__init__(address, topic, payload, qos)
        self.subscribe([topic], qos)
        self._publish = packets.publish_head(qos)
        self._offset = packets.topic_end(topic, payload, qos)
        self._answer = (0, PUBACK, PUBREC)[qos]
        self.sizes[self._publish] = len(self._packet)
        if qos == 2:
            self.sizes[PUBREL] = 4

    def arrived(self, buffer: bytearray, run: Run) -> bytes | bytearray:
        """As subscriber acknowledge; the rest is the publisher's."""
        if run.head == self._publish:
            if not self._answer:
                return self.step()
            size = len(self._packet)
            return packets.answers(buffer, run, size, self._offset, self._answer) + self.step()
        if run.head == PUBREL:
            return packets.answers(buffer, run, 4, 2, PUBCOMP)
        return super().arrived(buffer, run)


class Collector(PacketClient):
    """The one subscriber of many senders; the topic says whose message it was."""

    def __init__(self, address: tuple[str, int], topic: str, payload: bytes, qos: int) -> None:
        super().__init__(address)
        self.senders: Sequence[Sender] = []
        self._size = len(packets.publish(topic, payload, qos))
        self._topic_end = packets.topic_end(topic, payload, qos)
        self._answer = (0, PUBACK, PUBREC)[qos]
        self.sizes = {packets.publish_head(qos): self._size}
        if qos == 2:
            self.sizes[PUBREL] = 4

    def arrived(self, buffer: bytearray, run: Run) -> bytes | bytearray:
        """Acknowledge, and let each sender go on."""
        if run.head == PUBREL:
            return packets.answers(buffer, run, 4, 2, PUBCOMP)
        first = run.start + self._topic_end
        for end in range(first, first + run.length * self._size, self._size):
            sender = self.senders[int(buffer[end - _INDEX_DIGITS : end])]
            if following := sender.step():
                sender.send(following)
        if not self._answer:
            return b""
        return packets.answers(buffer, run, self._size, self._topic_end, self._answer)


def run_mirrors(
    target: Target, effort: Effort, connections: int, payload: int, qos: int
) -> Measurement:
    """Every connection sends single messages to itself."""
    senders = [Mirror(target.address, _topic(i), b"x" * payload, qos) for i in range(connections)]
    probe = packets.publish(_topic(0), b"x" * payload)
    senders[0].request(probe, probe)
    return _run(target, effort, senders, senders)


def run_collected(
    target: Target, effort: Effort, publishers: int, payload: int, qos: int
) -> Measurement:
    """Many publishers of single messages, one subscriber."""
    content = b"x" * payload
    collector = Collector(target.address, _topic(0), content, qos)
    collector.subscribe(["bench/+"], qos)
    senders = [Sender(target.address, _topic(i), content, qos) for i in range(publishers)]
    collector.senders = senders
    probe = packets.publish(_topic(0), content)
    senders[0].socket.sendall(probe)
    collector.expect(probe)
    return _run(target, effort, senders, [collector, *senders])


def _topic(number: int) -> str:
    return f"bench/{number:0{_INDEX_DIGITS}d}"


def _run(
    target: Target, effort: Effort, senders: Sequence[Sender], clients: Sequence[Client]
) -> Measurement:
    loop = Loop(clients)

    def completed() -> int:
        return sum(sender.completed for sender in senders)

    def drive(seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            loop.turn()

    try:
        watch = Stopwatch(target, completed, lambda: loop.waited)
        for sender in senders:
            sender.begin()
        drive(effort.warm_up)
        watch.start()
        drive(effort.seconds)
        measurement = watch.stop()
        for sender in senders:
            sender.running = False
        drain(loop, effort, done=lambda: not any(sender.waiting for sender in senders))
        measurement.lost = sum(sender.waiting for sender in senders)
    finally:
        loop.close()
    return measurement
