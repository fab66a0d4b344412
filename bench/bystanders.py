"""`python -m bench bystanders`: how long others' messages take while one client makes trouble.

A bystander publishes to itself at QoS 0, again and again. Meanwhile, in a running broker over
loopback: somebody subscribes to 100,000 retained messages, and reads them, or does not; somebody
with 20,000 subscriptions stops reading, and all their queues are full while more is published. The
goal is that the bystander's 99th percentile stays below 10 ms and nothing takes 100 ms.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

from bench import configured
from bench.figures import Times
from bench.policy import Connection
from headgate import is_compiled
from headgate.wire.codec import encode
from headgate.wire.packets import Puback, Publish, Suback, Subscribe, SubscriptionOptions, Version

RETAINED = 100_000
SUBSCRIPTIONS = 20_000
SECONDS = 6.0
GOAL_P99, GOAL_LONGEST = 0.010, 0.100
PAYLOAD = bytes(64)

Address = tuple[str, int]


def round_trips(echo: Connection, done: Callable[[], bool]) -> list[float]:
    """Of messages with a millisecond between them, until the trouble is over."""
    found = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end and not done():
        start = time.perf_counter()
        echo.send(Publish("echo", b"x"))
        echo.expect(Publish)
        found.append(time.perf_counter() - start)
        time.sleep(0.001)
    return found


def retain(address: Address) -> None:
    """Give the broker what it replays."""
    loader = Connection(address, "loader")
    for start in range(0, RETAINED, 1000):
        batch = [
            encode(Publish(f"state/{n % 100}/{n}", PAYLOAD, retain=True), Version.V5)
            for n in range(start, start + 1000)
        ]
        loader.socket.sendall(b"".join(batch))
    loader.send(Publish("state/last", b"x", 1, True, packet_id=1))
    loader.expect(Puback)
    loader.socket.close()


def reading(address: Address, echo: Connection) -> list[float]:
    """Somebody takes all that is retained."""
    reader = Connection(address, "reader")
    counted = [0]

    def read() -> None:
        with contextlib.suppress(OSError):
            while data := reader.socket.recv(1 << 18):
                counted[0] += len(data)

    reader.send(Subscribe(1, [("state/#", SubscriptionOptions(0))]))
    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    whole = RETAINED * (len(PAYLOAD) + 10)
    found = round_trips(echo, lambda: counted[0] > whole)
    assert counted[0] > whole, f"only {counted[0]:,} bytes came in {SECONDS:g} s"
    reader.socket.shutdown(socket.SHUT_RDWR)
    thread.join()
    return found


def not_reading(address: Address, echo: Connection) -> list[float]:
    """Twenty ask for all that is retained, and read nothing."""
    readers = [Connection(address, f"stalled-{number}") for number in range(20)]
    for reader in readers:
        reader.send(Subscribe(1, [("state/#", SubscriptionOptions(0))]))
    found = round_trips(echo, lambda: False)
    for reader in readers:
        reader.socket.close()
    return found


def full_queues(address: Address, echo: Connection) -> list[float]:
    """20,000 subscriptions of a client that does not read, and each of them gets more."""
    stalled = Connection(address, "full")
    stalled.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    for start in range(0, SUBSCRIPTIONS, 1000):
        wanted = [(f"full/{n}", SubscriptionOptions(0)) for n in range(start, start + 1000)]
        stalled.send(Subscribe(1, wanted))
        stalled.expect(Suback)
    with flooding(address) as rounds:
        begin = time.perf_counter()
        while rounds[0] < 6 and time.perf_counter() < begin + 60:
            time.sleep(0.05)  # until the queues are full: 100,000 messages wait
        assert rounds[0] >= 6, "the queues do not fill"
        found = round_trips(echo, lambda: False)
    stalled.socket.close()
    return found


@contextlib.contextmanager
def flooding(address: Address) -> Iterator[list[int]]:
    """Messages to all topics in turn, some 20,000 a second; yields how many rounds were made."""
    device = Connection(address, "device")
    packets = [encode(Publish(f"full/{n}", PAYLOAD), Version.V5) for n in range(SUBSCRIPTIONS)]
    batches = [b"".join(packets[n : n + 200]) for n in range(0, SUBSCRIPTIONS, 200)]
    rounds = [0]
    over = threading.Event()

    def flood() -> None:
        with contextlib.suppress(OSError):
            while True:
                for batch in batches:
                    device.socket.sendall(batch)
                    if over.wait(0.01):
                        return
                rounds[0] += 1

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    yield rounds
    over.set()
    thread.join()
    device.socket.close()


def main() -> int:
    """Print the table."""
    troubles: dict[str, Callable[[Address, Connection], list[float]]] = {
        "nobody": lambda address, echo: round_trips(echo, lambda: False),
        "a reader of all retained messages": reading,
        "20 that ask for them and do not read": not_reading,
        "a client with 20,000 full queues": full_queues,
    }
    print(f"{RETAINED:,} retained messages;", "" if is_compiled() else "not compiled;", "ms")
    print(f"{'who makes trouble':38}{'p50':>8}{'p99':>8}{'longest':>9}")
    good = True
    settings = {"durability": "os", "sys_interval": 0}
    with configured.headgate("headgate", ["127.0.0.1"], settings).running() as target:
        retain(target.address)
        echo = Connection(target.address, "bystander")
        echo.send(Subscribe(1, [("echo", SubscriptionOptions(0))]))
        echo.expect(Suback)
        for name, trouble in troubles.items():
            trips = trouble(target.address, echo)
            times = Times.of(trips)
            kept = times.p99 < GOAL_P99 * 1e3 and times.most < GOAL_LONGEST * 1e3
            good = good and kept
            print(
                f"{name:38}{times.p50:8.2f}{times.p99:8.2f}{times.most:9.1f}"
                f" {'✓' if kept else '✗'}",
                flush=True,
            )
    return 0 if good else 1
