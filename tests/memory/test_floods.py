"""Floods: connections, half-open ones, endless small packets. The broker stays small and serves."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from durability.peer import Peer, Subscriber, run
from durability.process import MortalBroker

from headgate.wire.codec import Decoder, encode
from headgate.wire.packets import (
    Connack,
    Connect,
    Pingreq,
    Properties,
    Publish,
    Pubrel,
    Subscribe,
    SubscriptionOptions,
    Version,
    Will,
)
from headgate.wire.reasons import Reason

from .witness import MIB, PATIENCE, Witness, statistics


def dial(broker: MortalBroker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE)


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 3 * PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        time.sleep(0.02)


def pour(into: socket.socket, data: bytes, total: int) -> int:
    """Send `data` over and over until the other side takes no more for a second, or has enough."""
    into.setblocking(False)
    sent = 0
    while sent < total and select.select([], [into], [], 1.0)[1]:
        try:
            sent += into.send(data)
        except OSError:
            break
    return sent


def test_connections_that_never_say_connect_are_closed(tmp_path: Path) -> None:
    with MortalBroker(tmp_path, "limits: {connect_timeout: 2s}") as broker:
        witness = Witness(broker)
        before = broker.descriptors()
        strangers = []
        for number in range(500):
            strangers.append(dial(broker))
            if number % 3 == 0:
                strangers[-1].send(b"\x10")  # the first byte of a CONNECT
            if number % 50 == 0:
                witness.look()
        assert broker.descriptors() >= before + 450  # else there was no flood to survive
        for stranger in strangers:
            stranger.settimeout(3 * PATIENCE)
            assert stranger.recv(1) == b""  # closed by the broker, in time
        eventually(lambda: broker.descriptors() <= before, "the end of 500 connections")
        witness.look()
        witness.testify(most=32 * MIB)
        for stranger in strangers:
            stranger.close()
        broker.stop()


def test_a_stranger_cannot_fill_the_memory_with_one_packet(tmp_path: Path) -> None:
    """Who has not yet connected needs no packet of many megabytes."""
    large = b"\x10\xff\xff\xff\x05" + b"\x00\x04MQTT\x05\x02\x00\x00"  # announces 12 MiB
    with MortalBroker(tmp_path) as broker:
        witness = Witness(broker)
        strangers = [dial(broker) for _ in range(20)]
        for stranger in strangers:
            with contextlib.suppress(OSError):
                stranger.sendall(large)
            pour(stranger, b"x" * 65536, 10 * MIB)
            witness.look()
        witness.testify(most=32 * MIB)
        for stranger in strangers:
            stranger.close()
        broker.stop()


def test_more_connections_than_allowed_are_refused(tmp_path: Path) -> None:
    with MortalBroker(tmp_path, "limits: {connections: 100}\n") as broker:
        witness = Witness(broker)  # it has two of them
        peers = [dial(broker) for _ in range(98)]
        for number, connection in enumerate(peers):
            connection.sendall(encode(Connect(f"client-{number}"), Version.V5))
            answer = first_packet(connection)
            assert answer is not None and answer.reason == 0
        crowd = [dial(broker) for _ in range(300)]
        for number, connection in enumerate(crowd):
            with contextlib.suppress(OSError):
                connection.sendall(encode(Connect(f"crowd-{number}"), Version.V5))
        for connection in crowd:
            answer = first_packet(connection)
            assert answer is None or answer.reason == 0x89  # server busy
            connection.close()
        witness.look()
        assert not welcome(broker, "unlucky")
        for connection in peers:
            connection.close()
        eventually(lambda: welcome(broker, "lucky"), "room for a new client")
        witness.look()
        witness.testify(most=32 * MIB)
        broker.stop()


def first_packet(connection: socket.socket) -> Connack | None:
    """The answer to CONNECT; None if the connection was closed without one."""
    decoder = Decoder(Version.V5)
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(4096):
            for packet in decoder.feed(data):
                assert isinstance(packet, Connack)
                return packet
    return None


def welcome(broker: MortalBroker, name: str) -> bool:
    with dial(broker) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(encode(Connect(name), Version.V5))
        answer = first_packet(connection)
        return answer is not None and answer.reason == 0


def test_clients_that_come_and_go_leave_nothing_behind(tmp_path: Path) -> None:
    with MortalBroker(tmp_path) as broker:
        witness = Witness(broker)
        descriptors = broker.descriptors()

        def visit(count: int) -> None:
            for number in range(count):
                with dial(broker) as connection:
                    name = encode(Connect(f"visitor-{number % 700}", keep_alive=60), Version.V5)
                    wanted = Subscribe(1, [(f"visits/{number}", SubscriptionOptions(1))])
                    connection.sendall(name + encode(wanted, Version.V5))
                    assert first_packet(connection) is not None
                if number % 100 == 0:
                    witness.look()

        visit(500)  # what grows once is not a leak
        eventually(lambda: broker.descriptors() <= descriptors, "the end of all visits")
        witness.before, witness.most = broker.resident(), 0
        visit(2500)
        eventually(lambda: broker.descriptors() <= descriptors, "the end of all visits")
        witness.look()
        witness.testify(most=8 * MIB)
        broker.stop()


PACKETS = {
    "ping": encode(Pingreq(), Version.V5),
    "qos 1": encode(Publish("t", b"", 1, packet_id=1), Version.V311),
    "release": encode(Pubrel(1), Version.V5),
}


@pytest.mark.parametrize("kind", PACKETS)
def test_answers_that_nobody_reads_are_not_gathered_without_end(tmp_path: Path, kind: str) -> None:
    """Tiny packets by the hundred thousand from a client that never reads what comes back."""
    with MortalBroker(tmp_path) as broker:
        witness = Witness(broker)
        version = Version.V5 if kind in ("ping", "release") else Version.V311
        with socket.socket() as flood:
            flood.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            flood.settimeout(PATIENCE)
            flood.connect(("127.0.0.1", broker.port))
            flood.sendall(encode(Connect("flood", version), version))
            assert flood.recv(4)
            block = PACKETS[kind] * (65536 // len(PACKETS[kind]))
            sent = pour_whole(flood, block, 64 * MIB, witness)
            assert MIB < sent < 64 * MIB  # the broker stopped reading, sooner or later
        witness.look()
        witness.testify(most=24 * MIB)
        broker.stop()


def pour_whole(into: socket.socket, block: bytes, total: int, witness: Witness) -> int:
    """Send blocks, each to its end, until the other side takes no more for a second."""
    into.setblocking(False)
    sent = 0
    while sent < total:
        rest = memoryview(block)
        while rest:
            if not select.select([], [into], [], 1.0)[1]:
                return sent
            written = into.send(rest)
            sent += written
            rest = rest[written:]
        witness.look()
    return sent


def test_small_messages_at_full_speed_delay_nobody(tmp_path: Path) -> None:
    """Three clients publish empty messages as fast as they can for a while."""
    with MortalBroker(tmp_path, "sys_interval: 500ms") as broker:
        witness = Witness(broker)
        sink = Subscriber("sink", expiry=0)
        sink.connect(broker.port)
        sink.until_connected()
        sink.subscribe("end", qos=1)
        block = encode(Publish("f", b""), Version.V5) * 10_000
        floods = []
        for number in range(3):
            flood = Peer(f"flood-{number}", expiry=0)
            flood.connect(broker.port)
            flood.until_connected()
            floods.append(flood)
        for _ in range(20):
            for flood in floods:
                flood.send_bytes(block)
            witness.look(floods)
        for number, flood in enumerate(floods):
            flood.send_bytes(encode(Publish("end", b"", 1, packet_id=number + 1), Version.V5))
        run([sink, *floods], lambda: len(sink.messages) == 3, "the end of the flood")
        witness.look()
        witness.testify(most=24 * MIB)
        received = int(statistics(broker)["$SYS/broker/publish/messages/received"])
        assert received >= 3 * 20 * 10_000
        broker.stop()


def test_a_packet_that_comes_byte_by_byte(tmp_path: Path) -> None:
    """Slow on purpose: each byte is a read of its own, and the packet comes to its end."""
    with MortalBroker(tmp_path) as broker:
        witness = Witness(broker)
        with dial(broker) as slow:
            slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in encode(Connect("slow"), Version.V5):
                slow.send(bytes([byte]))
            answer = first_packet(slow)
            assert answer is not None and answer.reason == 0
            message = encode(Publish(witness.topic, b"0", 0), Version.V5)
            for byte in message:
                slow.send(bytes([byte]))
            witness.subscriber.until_messages(1)
        broker.stop()


def test_sessions_that_stay_are_bounded(tmp_path: Path) -> None:
    """Strangers leave as much behind as they may: long ids, wills that wait, long filters."""
    limits = "limits: {memory: 64MiB, filter_size: 64KB}\n"
    with MortalBroker(tmp_path, f"{limits}sys_interval: 500ms\ndurability: none\n") as broker:
        witness = Witness(broker)
        will = Will("last", bytes(60_000), properties=Properties(will_delay=3600))
        lasting = Properties(session_expiry=0xFFFFFFFF)
        refusals: list[int] = []
        for number in range(200):
            name = f"{number:03}".ljust(1000, "x")
            with dial(broker) as stranger:
                stranger.sendall(
                    encode(Connect(name, will=will, properties=lasting), Version.V5)
                    + b"".join(
                        encode(
                            Subscribe(
                                n + 1, [(f"{n}/{name}".ljust(60_000, "y"), SubscriptionOptions(0))]
                            ),
                            Version.V5,
                        )
                        for n in range(5)
                    )
                )
                welcome = first_packet(stranger)
                assert welcome is not None
                refusals.append(welcome.reason)
            if number % 20 == 0:
                witness.look()
        # 60 to 400 KB each: not even the smallest 200 have room in a quarter of 64 MiB.
        assert refusals[0] == 0
        assert set(refusals[-50:]) == {Reason.QUOTA_EXCEEDED}
        figures = statistics(broker)
        assert 8 * MIB < int(figures["$SYS/headgate/memory/sessions"]) <= 16 * MIB
        witness.look()
        witness.testify(most=48 * MIB)
        broker.stop()
