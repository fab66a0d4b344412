"""Round-trip time at rest: one message, alone in the broker, from one client to another."""

import time

from bench import packets
from bench.client import Client
from bench.target import Effort, Measurement, Target

_DISCARDED = 200


def run_round_trips(target: Target, effort: Effort, payload: int = 64) -> Measurement:
    """Publish, wait until it arrives, again."""
    publisher, subscriber = Client(target.address), Client(target.address)
    message = packets.publish("bench/rtt", b"x" * payload)
    took = []
    try:
        subscriber.subscribe(["bench/rtt"], 0)
        for _ in range(_DISCARDED + effort.round_trips):
            begin = time.perf_counter_ns()
            publisher.socket.sendall(message)
            subscriber.expect(message)
            took.append(time.perf_counter_ns() - begin)
    finally:
        publisher.close()
        subscriber.close()
    took = sorted(took[_DISCARDED:])
    return Measurement(
        {"p50": took[len(took) // 2] / 1e3, "p99": took[len(took) * 99 // 100] / 1e3}
    )
