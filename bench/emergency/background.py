"""Other people's traffic, in a process of its own: as fast as the broker takes it, or at a rate.

`python -m bench.emergency.background` reads one line of JSON and publishes at QoS 0 until its
standard input ends.
"""

import contextlib
import json
import random
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from bench import packets
from bench.brokers import REPOSITORY
from bench.client import BrokerError, Client
from bench.target import Target

TOPICS = 100
FILTER = "noise/#"
_CHUNK = 64 * 1024
_START_LIMIT = 30.0


@dataclass(frozen=True)
class Noise:
    """What is published besides."""

    publishers: int
    size: int
    """Payload bytes."""
    rate: float = 0.0
    """Messages per second of all publishers; 0 is as many as the broker takes."""


@contextlib.contextmanager
def running(address: tuple[str, int], noise: Noise) -> Iterator[Target]:
    """Publish noise while the block lasts."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.emergency.background"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=REPOSITORY,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"address": address, **asdict(noise)}) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], _START_LIMIT)
        if not ready or process.stdout.readline() != "ready\n":
            raise BrokerError("the publishers in the background could not connect")
        target = Target(("", 0), process.pid)
        target.find_processes()
        yield target
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def main() -> int:
    """Publish until told otherwise."""
    order = json.loads(sys.stdin.readline())
    address = (order["address"][0], order["address"][1])
    clients = [Client(address, client_id=f"noise-{i}") for i in range(order["publishers"])]
    rng = random.Random(1)
    frames = [packets.publish(f"noise/{i:02d}", b"x" * order["size"]) for i in range(TOPICS)]
    print("ready", flush=True)
    if order["rate"]:
        _at_rate(clients, frames, order["rate"])
    else:
        _at_full_speed(clients, frames, rng)
    return 0


def _at_full_speed(clients: list[Client], frames: list[bytes], rng: random.Random) -> None:
    """Topics alternate: no broker may treat the messages of a chunk as one."""
    chunk = b"".join(rng.choices(frames, k=max(1, _CHUNK // len(frames[0]))))
    epoll = select.epoll()
    by_descriptor = {}
    for client in clients:
        client.socket.setblocking(False)
        epoll.register(client.socket.fileno(), select.EPOLLOUT)
        by_descriptor[client.socket.fileno()] = client
    epoll.register(0, select.EPOLLIN)
    rests = dict.fromkeys(by_descriptor, memoryview(chunk)[:0])
    while True:
        for descriptor, _ in epoll.poll():
            if descriptor == 0:
                return
            rest = rests[descriptor] or memoryview(chunk)
            with contextlib.suppress(BlockingIOError):
                rest = rest[by_descriptor[descriptor].socket.send(rest) :]
            rests[descriptor] = rest


def _at_rate(clients: list[Client], frames: list[bytes], rate: float) -> None:
    due = time.monotonic()
    number = 0
    while True:
        left = due - time.monotonic()
        if select.select([0], [], [], max(0.0, left))[0]:
            return
        clients[number % len(clients)].socket.sendall(frames[number % len(frames)])
        number += 1
        due += 1 / rate


if __name__ == "__main__":
    sys.exit(main())
