"""Retained replay: a new subscriber asks for ten thousand retained messages at once."""

import statistics
import time

from bench import packets
from bench.client import SCRATCH, BrokerError, Client
from bench.target import Effort, Measurement, Target

_BATCH = 500
_REPLAYS = 5


def run_retained(target: Target, effort: Effort, payload: int = 64) -> Measurement:
    """Store, then replay to fresh subscribers; the median replay counts."""
    topics = [f"retained/{i % 100:02d}/{i:06d}" for i in range(effort.retained)]
    content = b"x" * payload
    _publish_retained(target, topics, content)
    # At QoS 0 a retained message arrives with RETAIN set and no identifier [MQTT-3.3.1-8].
    size = len(packets.publish(topics[0], content, retain=True))
    granted = packets.suback(1, 0)
    expected = len(granted) + size * len(topics)
    rates = []
    lost = 0
    for _ in range(_REPLAYS):
        took, received = _replay(target, expected)
        lost += -(-(expected - received) // size)
        rates.append(len(topics) / took)
    # Nothing is left behind in a broker that was there before [MQTT-3.3.1-10].
    _publish_retained(target, topics, b"")
    return Measurement({"rate": statistics.median(rates)}, lost=lost)


def _publish_retained(target: Target, topics: list[str], content: bytes) -> None:
    # At QoS 1, because a PUBACK tells that the broker has taken the message.
    publisher = Client(target.address)
    for start in range(0, len(topics), _BATCH):
        batch = topics[start : start + _BATCH]
        publisher.request(
            b"".join(packets.publish(t, content, 1, i + 1, True) for i, t in enumerate(batch)),
            b"".join(b"\x40\x02" + (i + 1).to_bytes(2, "big") for i in range(len(batch))),
        )
    publisher.close()


def _replay(target: Target, expected: int) -> tuple[float, int]:
    subscriber = Client(target.address)
    received = 0
    begin = time.perf_counter()
    subscriber.socket.sendall(packets.subscribe(["retained/#"], 0))
    try:
        while received < expected:
            part = subscriber.socket.recv_into(SCRATCH)
            if not part:
                raise BrokerError("the broker closed the connection during the replay")
            received += part
    except TimeoutError:
        pass  # what is missing is reported as lost
    took = time.perf_counter() - begin
    subscriber.close()
    return took, received
