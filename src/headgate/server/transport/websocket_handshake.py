"""The opening handshake of a WebSocket (RFC 6455 §4.2), as a server: bytes in, an answer out."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Collection
from dataclasses import dataclass

import h11

SUBPROTOCOLS = ("mqtt", "mqttv3.1")
"""[MQTT-6.0.0-4] `mqtt`; the older name is what clients of MQTT 3.1 ask for. In order of choice."""

_LARGEST_REQUEST = 8 * 1024
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 §1.3


@dataclass(frozen=True, slots=True)
class Answer:
    """What to write back, and how it goes on."""

    reply: bytes
    refusal: str = ""
    """Why the request was refused; empty if the WebSocket is open."""
    rest: bytes = b""
    """What the peer sent after its request: the first frames."""


class OpeningHandshake:
    """Reads one HTTP request and answers it."""

    __slots__ = ("_http", "_origins", "_path")

    def __init__(self, path: str, origins: Collection[str]) -> None:
        """Serve `path`. If `origins` has any, pages from elsewhere are refused.

        A request without an Origin header passes: the list is there to protect people from web
        pages that use their browser (RFC 6455 §10.2), and no browser leaves the header out.
        """
        self._path = path
        self._origins = origins
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_LARGEST_REQUEST)

    def receive(self, data: bytes) -> Answer | None:
        """Take bytes from the peer; None while the request is not complete."""
        try:
            self._http.receive_data(data)
            request = self._http.next_event()
            if request is h11.NEED_DATA:
                return None
            body = self._http.next_event()
        except h11.RemoteProtocolError:
            return _refuse("400 Bad Request", "it did not send an HTTP request", [])
        if not isinstance(request, h11.Request) or not isinstance(body, h11.EndOfMessage):
            return _refuse("400 Bad Request", "its request has a body", [])
        return self._answer(request)

    def _answer(self, request: h11.Request) -> Answer:
        headers = _Headers(request)
        if request.method != b"GET":
            return _refuse("405 Method Not Allowed", "only GET is served here", ["Allow: GET"])
        if "websocket" not in headers.tokens(b"upgrade") or (
            "upgrade" not in headers.tokens(b"connection")
        ):
            return _refuse(
                "426 Upgrade Required",
                f"this is an MQTT broker: connect with a WebSocket client to {self._path}, "
                "subprotocol mqtt",
                ["Upgrade: websocket", "Connection: Upgrade"],
            )
        if request.target.split(b"?", 1)[0] != self._path.encode():
            return _refuse("404 Not Found", f"MQTT is served at {self._path}", [])
        if headers.values(b"sec-websocket-version") != ["13"]:
            return _refuse(
                "426 Upgrade Required",
                "this broker speaks version 13 of WebSocket",
                ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"],
            )
        keys = headers.values(b"sec-websocket-key")
        if len(keys) != 1 or not _is_key(keys[0]):
            return _refuse("400 Bad Request", "Sec-WebSocket-Key is not 16 bytes in base64", [])
        foreign = [o for o in headers.values(b"origin") if self._origins and o not in self._origins]
        if foreign:
            return _refuse("403 Forbidden", "pages of this origin may not connect", [])
        offered = headers.items(b"sec-websocket-protocol")
        chosen = next((name for name in SUBPROTOCOLS if name in offered), None)
        if chosen is None:  # [MQTT-6.0.0-3]
            return _refuse("400 Bad Request", "it does not offer the subprotocol mqtt", [])
        return Answer(_accept(keys[0], chosen), rest=self._http.trailing_data[0])


class _Headers:
    """The request's headers; h11 has made their names lower case."""

    def __init__(self, request: h11.Request) -> None:
        self._all = [(name, value.decode("latin-1")) for name, value in request.headers]

    def values(self, name: bytes) -> list[str]:
        return [value.strip() for key, value in self._all if key == name]

    def items(self, name: bytes) -> list[str]:
        """The items of a comma-separated header, which may also be repeated."""
        return [item.strip() for value in self.values(name) for item in value.split(",")]

    def tokens(self, name: bytes) -> list[str]:
        return [item.lower() for item in self.items(name)]


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False


def _accept(key: str, subprotocol: str) -> bytes:
    digest = hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()
    return (
        "HTTP/1.1 101 Switching Protocols\r\n"
        "Upgrade: websocket\r\n"
        "Connection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}\r\n"
        f"Sec-WebSocket-Protocol: {subprotocol}\r\n"
        "\r\n"
    ).encode()


def _refuse(status: str, why: str, headers: list[str]) -> Answer:
    body = why + "\n"
    lines = [
        f"HTTP/1.1 {status}",
        *headers,
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body.encode())}",
        *([] if "Connection: Upgrade" in headers else ["Connection: close"]),
        "",
        body,
    ]
    return Answer("\r\n".join(lines).encode(), refusal=f"{status}: {why}")
