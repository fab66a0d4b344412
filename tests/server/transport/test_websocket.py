"""WebSocket over real sockets: who may open one, what is answered, and how it ends."""

from __future__ import annotations

import os
import select
import socket

import pytest
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage

from headgate.server.transport.listener import open_listener
from headgate.server.transport.stream import StreamError

from .clients import (
    LIMIT,
    PlainClient,
    RefusedError,
    TlsClient,
    WebSocketClient,
    client_context,
    connect_socket,
    receive_exactly,
)
from .conftest import Stage
from .loop import Loop

REQUEST = (
    b"GET /mqtt HTTP/1.1\r\n"
    b"Host: localhost\r\n"
    b"Upgrade: websocket\r\n"
    b"Connection: keep-alive, Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n"
    b"\r\n"
)
MASK = bytes(4)


def open_websocket(stage: Stage, loop: Loop, **options: object) -> WebSocketClient:
    def dial() -> WebSocketClient:
        return WebSocketClient(PlainClient(connect_socket(loop.listener.address)), **options)  # type: ignore[arg-type]

    client = stage.finish(loop, dial)
    stage.clients.append(client)
    return client


def answer_to(stage: Stage, loop: Loop, request: bytes) -> bytes:
    """All that the broker writes back until it ends the connection."""

    def ask() -> bytes:
        with connect_socket(loop.listener.address) as connected:
            connected.sendall(request)
            reply = b""
            while data := connected.recv(65536):
                reply += data
            return reply

    return stage.finish(loop, ask)


def refusal(loop: Loop) -> str:
    served = loop.only()
    loop.until(lambda: served.error, "the refusal")
    assert isinstance(served.error, StreamError)
    return str(served.error)


class TestOpening:
    def test_answer_is_the_one_of_the_rfc(self, stage: Stage) -> None:
        loop = stage.listen("ws")
        with connect_socket(loop.listener.address) as connected:
            connected.sendall(REQUEST)
            reply = stage.finish(loop, lambda: connected.recv(65536))
        assert reply.startswith(b"HTTP/1.1 101 ")
        assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in reply  # RFC 6455 §1.3
        assert b"Sec-WebSocket-Protocol: mqtt\r\n" in reply
        assert reply.endswith(b"\r\n\r\n")

    @pytest.mark.parametrize(
        ("offered", "chosen"),
        [
            (["mqtt"], "mqtt"),
            (["mqttv3.1"], "mqttv3.1"),
            (["mqttv3.1", "mqtt"], "mqtt"),
            (["chat", "mqtt"], "mqtt"),
        ],
    )
    def test_subprotocol(self, stage: Stage, offered: list[str], chosen: str) -> None:
        loop = stage.listen("ws")
        assert open_websocket(stage, loop, subprotocols=offered).subprotocol == chosen

    @pytest.mark.parametrize("offered", [[], ["chat"]])
    def test_subprotocol_is_required(self, stage: Stage, offered: list[str]) -> None:
        loop = stage.listen("ws")
        with pytest.raises(RefusedError) as caught:
            open_websocket(stage, loop, subprotocols=offered)
        assert caught.value.status == 400
        assert "does not offer the subprotocol mqtt" in refusal(loop)

    def test_path_is_the_configured_one(self, stage: Stage) -> None:
        loop = stage.listen("ws", path="/plant/7")
        open_websocket(stage, loop, path="/plant/7?token=x")
        with pytest.raises(RefusedError) as caught:
            open_websocket(stage, loop, path="/mqtt")
        assert caught.value.status == 404

    @pytest.mark.parametrize(
        ("origin", "status"),
        [(b"https://good.example", 101), (b"https://evil.example", 403), (None, 101)],
    )
    def test_origins(self, stage: Stage, origin: bytes | None, status: int) -> None:
        allowed = {"https://good.example"}
        loop = stage.run(open_listener(stage.config("ws"), origins=allowed))
        headers = [(b"Origin", origin)] if origin else []
        if status == 101:
            open_websocket(stage, loop, headers=headers)
        else:
            with pytest.raises(RefusedError) as caught:
                open_websocket(stage, loop, headers=headers)
            assert caught.value.status == status

    def test_any_origin_without_a_list(self, stage: Stage) -> None:
        loop = stage.listen("ws")
        open_websocket(stage, loop, headers=[(b"Origin", b"https://anywhere.example")])

    def test_browser_is_told_what_this_is(self, stage: Stage) -> None:
        loop = stage.listen("ws")
        reply = answer_to(stage, loop, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head, _, body = reply.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 426 Upgrade Required\r\n")
        assert b"\r\nUpgrade: websocket\r\n" in head
        assert f"Content-Length: {len(body)}".encode() in head
        assert b"MQTT broker" in body
        assert b"/mqtt" in body

    @pytest.mark.parametrize(
        ("old", "new", "status"),
        [
            (b"GET", b"POST", 405),
            (b"Version: 13", b"Version: 8", 426),
            (b"Sec-WebSocket-Version: 13\r\n", b"", 426),
            (b"dGhlIHNhbXBsZSBub25jZQ==", b"c2hvcnQ=", 400),
            (b"dGhlIHNhbXBsZSBub25jZQ==", b"\xff\xfe", 400),
            (b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", b"", 400),
            (b"Host: localhost\r\n", b"", 400),
            (b"Upgrade: websocket\r\n", b"Upgrade: h2c\r\n", 426),
            (b"Host: localhost\r\n", b"Host: localhost\r\nContent-Length: 3\r\n", 400),
        ],
    )
    def test_wrong_requests(self, stage: Stage, old: bytes, new: bytes, status: int) -> None:
        loop = stage.listen("ws")
        assert old in REQUEST
        reply = answer_to(stage, loop, REQUEST.replace(old, new))
        assert reply.startswith(f"HTTP/1.1 {status} ".encode())
        assert str(status) in refusal(loop)

    @pytest.mark.parametrize(
        "garbage",
        [
            b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00",  # MQTT without WebSocket
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
            b"nonsense\r\n\r\n",
            b"GET /mqtt HTTP/1.1\r\nno colon\r\n\r\n",
        ],
    )
    def test_garbage_instead_of_http(self, stage: Stage, garbage: bytes) -> None:
        loop = stage.listen("ws")
        assert answer_to(stage, loop, garbage).startswith(b"HTTP/1.1 400 ")
        assert "it did not send an HTTP request" in refusal(loop)

    def test_endless_request_is_cut_off(self, stage: Stage) -> None:
        loop = stage.listen("ws")
        with connect_socket(loop.listener.address) as connected:
            connected.sendall(b"GET /mqtt HTTP/1.1\r\n" + b"x-padding: 0123456789\r\n" * 600)
            assert "400" in refusal(loop)

    def test_first_frames_may_come_with_the_request(self, stage: Stage) -> None:
        loop = stage.listen("ws")
        with connect_socket(loop.listener.address) as connected:
            connected.sendall(REQUEST + b"\x82\x85" + MASK + b"early" + b"\x82\x81" + MASK + b"!")
            served = loop.only()
            loop.until(lambda: len(served.received) == 6, "the first frames")
        assert served.received == b"early!"


def test_certificate_name_shows_through(stage: Stage) -> None:
    settings = stage.tls(client_ca=stage.certificates.ca, require_client_certificate=True)
    loop = stage.listen("wss", tls=settings)
    context = client_context(stage.certificates, with_certificate=True)

    def dial() -> WebSocketClient:
        return WebSocketClient(TlsClient(connect_socket(loop.listener.address), context))

    stage.clients.append(stage.finish(loop, dial))
    assert loop.only().stream.peer.certificate_name == stage.certificates.client_name


def test_text_closes_with_1003(stage: Stage) -> None:
    loop = stage.listen("ws")
    client = open_websocket(stage, loop)
    client.send_event(TextMessage(data="MQTT is not text"))
    event = stage.finish(loop, client.next_event)
    assert isinstance(event, CloseConnection)
    assert event.code == 1003
    assert "binary frames" in refusal(loop)


def test_frame_without_mask_closes_with_1002(stage: Stage) -> None:
    loop = stage.listen("ws")
    client = open_websocket(stage, loop)
    client.below.send(b"\x82\x01x")
    event = stage.finish(loop, client.next_event)
    assert isinstance(event, CloseConnection)
    assert event.code == 1002
    assert "not masked" in refusal(loop)


def test_ping_is_answered_between_data(stage: Stage) -> None:
    loop = stage.listen("ws", echo=True)
    client = open_websocket(stage, loop)
    client.send_event(BytesMessage(data=b"one"))
    client.send_event(Ping(payload=b"are you there"))
    client.send_event(BytesMessage(data=b"two"))
    seen: list[object] = []

    def listen() -> None:
        while not any(isinstance(e, Pong) for e in seen) or _data(seen) != b"onetwo":
            seen.append(client.next_event())

    stage.finish(loop, listen)
    assert [bytes(e.payload) for e in seen if isinstance(e, Pong)] == [b"are you there"]


def _data(events: list[object]) -> bytes:
    return b"".join(bytes(e.data) for e in events if isinstance(e, BytesMessage))


@pytest.mark.parametrize("kind", ["ws", "wss"])
def test_close_frame_is_echoed(stage: Stage, kind: str) -> None:
    loop = stage.listen(kind)
    client = stage.connect(loop)
    assert isinstance(client, WebSocketClient)
    client.send_event(CloseConnection(code=4711, reason="enough"))
    event = stage.finish(loop, client.next_event)
    assert isinstance(event, CloseConnection)
    assert event.code == 4711
    served = loop.only()
    loop.until(lambda: served.ended, "the end")
    with pytest.raises(StreamError):
        served.stream.write(b"no more")


def test_answers_to_the_last_packet_go_out_before_the_close_frame(stage: Stage) -> None:
    loop = stage.listen("ws")
    client = open_websocket(stage, loop)
    served = loop.only()
    served.paused = True
    question = client.protocol.send(BytesMessage(data=b"question"))
    client.below.send(question + client.protocol.send(CloseConnection(code=1000)))
    select.select([served.stream.fileno()], [], [], LIMIT)
    assert served.stream.read() == b"question"
    assert served.stream.has_pending
    assert served.stream.write(b"answer") == 6
    assert served.stream.read() == b""
    assert not served.stream.has_pending
    assert client.receive() == b"answer"
    assert isinstance(client.next_event(), CloseConnection)


@pytest.mark.parametrize("kind", ["ws", "wss"])
def test_flood_of_pings_by_a_peer_that_reads_nothing(stage: Stage, kind: str) -> None:
    loop = stage.listen(kind)
    client = stage.connect(loop, small=True, duplex=True)
    assert isinstance(client, WebSocketClient)
    served = loop.only()
    with socket.socket(fileno=served.stream.fileno()) as borrowed:
        borrowed.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        borrowed.detach()
    message = bytes(1000)
    written = 0
    while taken := served.stream.write(message):  # nothing more fits, not even a pong
        written += taken

    def flood() -> None:
        for number in range(20_000):
            client.send_event(Ping(payload=number.to_bytes(4, "big") + bytes(121)))
        client.send_event(BytesMessage(data=b"done"))

    stage.finish(loop, flood)
    loop.until(lambda: served.received == b"done", "the end of the flood")
    pongs: list[int] = []
    received = 0

    def drain() -> None:
        nonlocal received
        while received < written or not pongs or pongs[-1] != 19_999:
            event = client.next_event()
            if isinstance(event, Pong):
                pongs.append(int.from_bytes(event.payload[:4], "big"))
            else:
                assert isinstance(event, BytesMessage)
                received += len(event.data)

    stage.finish(loop, drain)
    assert received == written
    assert pongs == sorted(pongs)
    assert len(pongs) < 1000  # only what found room, and the newest


def test_many_packets_in_one_frame_and_one_packet_in_many(stage: Stage) -> None:
    loop = stage.listen("ws", echo=True)
    client = open_websocket(stage, loop)
    message = os.urandom(5000)
    wire = b""
    for start in range(0, len(message), 7):
        last = start + 7 >= len(message)
        piece = BytesMessage(data=message[start : start + 7], message_finished=last)
        wire += client.protocol.send(piece)
    wire += client.protocol.send(BytesMessage(data=message * 3))

    def exchange() -> bytes:
        client.below.send(wire)
        return receive_exactly(client, len(message) * 4)

    assert stage.finish(loop, exchange) == message * 4
