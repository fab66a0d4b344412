"""What the reactor relies on, whatever is below MQTT: real sockets, real peers."""

from __future__ import annotations

import gc
import random
import socket
import tracemalloc

import pytest

from headgate.server.transport import plain, tls
from headgate.server.transport.stream import Stream

from .clients import WebSocketClient, receive_all, receive_exactly
from .conftest import Stage

KINDS = ["tcp", "unix", "tls", "ws", "wss"]
every_kind = pytest.mark.parametrize("kind", KINDS)


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def shrink_buffer(stream: Stream) -> None:
    """Make the broker's kernel buffer for writing as small as Linux allows."""
    with socket.socket(fileno=stream.fileno()) as borrowed:
        borrowed.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        borrowed.detach()


@every_kind
def test_bytes_come_back_as_they_were_sent(stage: Stage, kind: str) -> None:
    loop = stage.listen(kind, echo=True)
    client = stage.connect(loop)
    for size in (1, 125, 126, 1000, 16_384, 16_385, 65_535, 65_536, 300_000):
        message = noise(size, seed=size)

        def exchange(message: bytes = message) -> bytes:
            client.send(message)
            return receive_exactly(client, len(message))

        assert stage.finish(loop, exchange) == message


@every_kind
def test_peer_is_known(stage: Stage, kind: str) -> None:
    loop = stage.listen(kind, name="front door")
    client = stage.connect(loop)
    peer = loop.only().stream.peer
    assert peer.listener == "front door"
    assert peer.local
    assert peer.certificate_name is None
    if kind == "unix":
        assert (peer.address, peer.port) == ("", 0)
    else:
        assert (peer.address, peer.port) == client.socket.getsockname()


@every_kind
def test_every_byte_may_arrive_alone(
    stage: Stage, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Reads of a single byte split the TLS hello, the HTTP request and every frame everywhere.
    monkeypatch.setattr(plain, "READ_SIZE", 1)
    monkeypatch.setattr(tls, "_ciphertext", memoryview(bytearray(1)))
    loop = stage.listen(kind, echo=True)
    client = stage.connect(loop)
    message = noise(2000)

    def exchange() -> bytes:
        client.send(message)
        return receive_exactly(client, len(message))

    assert stage.finish(loop, exchange) == message


@every_kind
def test_both_directions_at_once_through_small_buffers(stage: Stage, kind: str) -> None:
    loop = stage.listen(kind)
    client = stage.connect(loop, small=True, duplex=True)
    served = loop.only()
    shrink_buffer(served.stream)
    upward, downward = noise(1_500_000, seed=2), noise(1_500_000, seed=3)
    served.to_send += downward
    sending = stage.start(lambda: client.send(upward))
    receiving = stage.start(lambda: receive_exactly(client, len(downward)))
    loop.until(lambda: sending.done() and receiving.done(), "both directions")
    loop.until(lambda: len(served.received) == len(upward), "the rest")
    sending.result()
    assert served.received == upward
    assert receiving.result() == downward


@every_kind
def test_goodbye_of_the_peer_is_the_end_and_comes_after_its_data(stage: Stage, kind: str) -> None:
    loop = stage.listen(kind)
    client = stage.connect(loop, duplex=True)
    served = loop.only()
    served.paused = True

    def leave() -> None:
        client.send(b"last words")
        client.goodbye()  # the connection itself stays open

    stage.finish(loop, leave)
    served.paused = False
    loop.until(lambda: served.ended, "the end")
    assert served.received == b"last words"
    assert served.stream.read() == b""


@pytest.mark.parametrize("kind", ["tcp", "unix", "tls"])
def test_peer_that_has_said_goodbye_still_receives(stage: Stage, kind: str) -> None:
    # A WebSocket has no such half: its close frame is answered and nothing may follow.
    loop = stage.listen(kind)
    client = stage.connect(loop, duplex=True)
    served = loop.only()
    stage.finish(loop, client.goodbye)
    loop.until(lambda: served.ended, "the end")
    served.to_send += b"one more thing"
    assert stage.finish(loop, lambda: receive_exactly(client, 14)) == b"one more thing"


@every_kind
def test_peer_that_vanishes_is_the_end_too(stage: Stage, kind: str) -> None:
    loop = stage.listen(kind)
    client = stage.connect(loop)
    served = loop.only()
    client.socket.close()
    loop.until(lambda: served.ended or served.error, "the end")
    # TLS 1.3: the client has not read its session tickets, so its kernel resets the connection.
    assert served.ended or (kind == "tls" and isinstance(served.error, ConnectionError))


@pytest.mark.parametrize("kind", ["tcp", "tls", "ws", "wss"])
def test_reset_raises(stage: Stage, kind: str) -> None:
    loop = stage.listen(kind)
    client = stage.connect(loop)
    served = loop.only()
    client.socket.setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00"
    )
    client.socket.close()
    loop.until(lambda: served.error, "the error")
    # A broken pipe if the reset comes while TLS writes its session tickets.
    assert isinstance(served.error, ConnectionError)


@every_kind
def test_our_goodbye_comes_after_all_that_was_taken(stage: Stage, kind: str) -> None:
    loop = stage.listen(kind)
    client = stage.connect(loop, small=True)
    served = loop.only()
    shrink_buffer(served.stream)
    message = noise(2_000_000)
    view = memoryview(message)
    taken = 0
    while took := served.stream.write(view[taken : taken + 100_000]):  # until it is full
        taken += took
    assert taken < len(message)
    served.stream.shut_down()
    served.stream.shut_down()  # twice does no harm
    assert stage.finish(loop, lambda: receive_all(client)) == message[:taken]
    if isinstance(client, WebSocketClient):
        assert client.protocol.state.name == "REMOTE_CLOSING"  # it got a close frame, not just EOF


@every_kind
def test_stalled_peer_costs_no_memory(stage: Stage, kind: str) -> None:
    loop = stage.listen(kind)
    client = stage.connect(loop, small=True)
    served = loop.only()
    shrink_buffer(served.stream)
    message = noise(5_000_000)
    taken = 0
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(1000):
            taken += served.stream.write(message)
            loop.turn(0)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 500_000  # out of 5 GB: the kernel's buffers, and one frame or record
    assert after - before < 50_000
    first = stage.finish(loop, client.receive)
    assert first
    assert message.startswith(first[:1000])


@every_kind
def test_writer_may_change_its_mind_after_a_refusal(stage: Stage, kind: str) -> None:
    """A scheduler replaces what waits by something urgent: what was taken stays, nothing else."""
    loop = stage.listen(kind)
    client = stage.connect(loop, small=True)
    served = loop.only()
    shrink_buffer(served.stream)
    accepted = bytearray()
    buffer = bytearray(noise(100_000))
    while took := served.stream.write(memoryview(buffer)):
        accepted += buffer[:took]
        buffer[:] = noise(100_000, seed=len(accepted))  # the stream must not look at it again
    end = b"urgent"
    receiving = stage.start(lambda: receive_exactly(client, len(accepted) + len(end)))
    served.to_send += end
    loop.until(receiving.done, "the peer")
    assert receiving.result() == bytes(accepted) + end


@every_kind
def test_nothing_to_read_is_none(stage: Stage, kind: str) -> None:
    loop = stage.listen(kind)
    stage.connect(loop)
    loop.turn(0)
    assert loop.only().stream.read() is None


@pytest.mark.parametrize("kind", ["tls", "ws", "wss"])
def test_writes_before_the_handshake_are_not_taken(stage: Stage, kind: str) -> None:
    loop = stage.listen(kind)
    with socket.create_connection((loop.listener.address.host, loop.listener.address.port)):
        served = loop.only()
        assert served.stream.write(b"too early") == 0
        assert not served.stream.wants_write


@every_kind
def test_close_gives_the_descriptor_back(stage: Stage, kind: str) -> None:
    loop = stage.listen(kind)
    client = stage.connect(loop)
    served = loop.only()
    loop.drop(served)
    assert served.stream.fileno() == -1
    served.stream.close()
    assert stage.finish(loop, lambda: _ends(client)) is True


def _ends(client: object) -> bool:
    """The peer notices, by EOF or by an error of its own layer."""
    try:
        return receive_all(client) == b""  # type: ignore[arg-type]
    except OSError:
        return True
