"""Subscribers that do not read, read slowly, or never acknowledge: nobody else pays for them."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest
from durability.peer import Peer, Publisher, Subscriber
from durability.process import MortalBroker

from headgate.core.link import MESSAGE
from headgate.core.retained import LEAF
from headgate.wire.codec import encode
from headgate.wire.packets import (
    Connect,
    Properties,
    Publish,
    Subscribe,
    SubscriptionOptions,
    Version,
)

from .witness import MIB, Witness, dropped, statistics

LIMITS = "limits: {memory: 16MiB, queued_bytes: 1MiB}\nsys_interval: 500ms\n"
PAYLOAD = b"x" * 1000


class Idler:
    """Subscribes and then reads only when told to, through the smallest buffer there is."""

    def __init__(
        self, broker: MortalBroker, name: str, topic_filter: str, qos: int = 0, expiry: int = 0
    ) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(30.0)
        self.socket.connect(("127.0.0.1", broker.port))
        hello = Connect(name, properties=Properties(session_expiry=expiry))
        wanted = Subscribe(1, [(topic_filter, SubscriptionOptions(qos))])
        self.socket.sendall(encode(hello, Version.V5) + encode(wanted, Version.V5))
        answer = b""
        suback = b"\x90\x04\x00\x01\x00" + bytes([qos])
        while not answer.endswith(suback):
            data = self.socket.recv(4096)
            assert data, f"no SUBACK after {answer!r}"
            answer += data
        self.socket.setblocking(False)

    def read_a_little(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.socket.recv(500)

    def close(self) -> None:
        self.socket.close()


def test_stalled_and_slow_subscribers_harm_nobody(tmp_path: Path) -> None:
    """40 of them are offered 1.2 GB altogether; the broker may keep 16 MiB of it."""
    chunk = encode(Publish("load/a", PAYLOAD), Version.V5) * 100
    with MortalBroker(tmp_path, LIMITS) as broker:
        idlers = [Idler(broker, f"idler-{number}", "load/#") for number in range(40)]
        reader = Subscriber("reader", expiry=0)
        loader = Peer("loader", expiry=0)
        for peer in (reader, loader):
            peer.connect(broker.port)
            peer.until_connected()
        reader.subscribe("load/#", qos=0)
        witness = Witness(broker)
        for turn in range(1, 301):
            loader.send_bytes(chunk)
            loader.until(lambda: not loader.wants_write, "room for the load")
            reader.until_messages(100 * turn)
            for idler in idlers[::2]:
                idler.read_a_little()
            if turn % 5 == 0:
                witness.look()
        # Queues, 40 outlets with what the kernel did not take, and the objects around messages.
        witness.testify(most=64 * MIB)
        assert len(reader.messages) == 30_000
        counts = dropped(broker)
        offered = 40 * 30_000
        assert 0.9 * offered < counts["capacity"] + counts["memory"] < offered
        assert sum(counts.values()) == counts["capacity"] + counts["memory"]
        for idler in idlers:
            idler.close()
        witness.look()
        broker.stop()


def test_stalled_subscribers_with_sessions_that_survive(tmp_path: Path) -> None:
    """QoS 1: what waits is on the disk too, within the same bounds."""
    with MortalBroker(tmp_path, LIMITS) as broker:
        idlers = [
            Idler(broker, f"idler-{number}", "load/#", qos=1, expiry=3600) for number in range(10)
        ]
        witness = Witness(broker)
        loader = Publisher("loader", window=100)
        loader.expiry = 0
        loader.connect(broker.port)
        loader.until_connected()
        for _ in range(100):
            for _ in range(100):
                loader.publish("load/a", PAYLOAD, 1)
            loader.until(lambda: loader.idle, "acknowledgements")
            witness.look()
        witness.testify(most=64 * MIB)
        counts = dropped(broker)
        assert counts["capacity"] + counts["memory"] > 0.7 * 10 * 10_000
        stored = sum(path.stat().st_size for path in broker.folder.rglob("data/**/*"))
        assert stored < 200 * MIB  # 10 MB of messages, and what happened to each of them
        for idler in idlers:
            idler.close()
        broker.stop()


def test_a_subscriber_that_never_acknowledges(tmp_path: Path) -> None:
    """It reads everything, so nothing waits for the socket: 100 MiB of large messages in flight."""
    with MortalBroker(tmp_path, LIMITS.replace("1MiB", "4MiB")) as broker:
        silent = Subscriber("silent", expiry=0)
        silent.connect(broker.port)
        silent.until_connected()
        silent.subscribe("load", qos=1)
        silent.holding = True
        loader = Publisher("loader", window=4)
        loader.connect(broker.port)
        witness = Witness(broker)
        for number in range(400):
            loader.publish("load", b"%d " % number + b"x" * (256 << 10), 1)
            if number % 20 == 19:
                loader.until(lambda: loader.idle, "acknowledgements")
                witness.look([silent])
        witness.testify(most=48 * MIB)
        assert len(silent.messages) < 20
        silent.holding = False  # it comes to its senses and gets what is left, in order
        last = b"399 "
        silent.until(
            lambda: any(m.payload.startswith(last) for m in silent.messages), "the last message"
        )
        numbers = [int(message.payload.split()[0]) for message in silent.messages]
        assert numbers == sorted(set(numbers))
        assert dropped(broker)["capacity"] == 400 - len(numbers)
        broker.stop()


def test_a_replay_to_stalled_subscribers_takes_no_memory(tmp_path: Path) -> None:
    """20 of them ask for 20 MB each; what they do not take waits where it is retained."""
    config = "limits: {memory: 128MiB, queued_bytes: 64MiB}\nsys_interval: 500ms\n"
    with MortalBroker(tmp_path, config) as broker:
        loader = Publisher("loader", window=100, expiry=0)
        loader.connect(broker.port)
        for number in range(20_000):
            loader.publish(f"state/{number}", PAYLOAD, 1, True)
        loader.until(lambda: loader.idle, "acknowledgements")
        witness = Witness(broker)
        idlers = [Idler(broker, f"idler-{number}", "nothing") for number in range(20)]
        for number, idler in enumerate(idlers):
            wanted = Subscribe(2, [("state/#", SubscriptionOptions(number % 2))])
            idler.socket.sendall(encode(wanted, Version.V5))
        for _ in range(50):
            witness.look()
        # An outlet each, with what the kernel did not take.
        witness.testify(most=24 * MIB)
        memory = statistics(broker, "$SYS/headgate/memory/#")
        assert int(memory["$SYS/headgate/memory/queued"]) == 0
        assert 0 < int(memory["$SYS/headgate/memory/inflight"]) < 10 * MIB
        held = int(memory["$SYS/headgate/memory/retained"])
        each = len(PAYLOAD) + len("state/12345") + MESSAGE + LEAF + len("12345")
        assert held == pytest.approx(20_000 * each, rel=0.01)
        assert dropped(broker) == dict.fromkeys(dropped(broker), 0)
        for idler in idlers:
            idler.close()
        broker.stop()
