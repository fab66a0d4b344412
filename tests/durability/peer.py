"""A client that obeys the protocol to the letter and keeps its session state across connections.

Exactly-once delivery needs both sides to be right, so tests of the broker's side need a client
whose side is known: small, on the project's own codec, in one thread.

`Peer` is a connection that may come and go. `Publisher` and `Subscriber` add the session state that
MQTT asks of a client (MQTT 5 §4.1): what was sent and not acknowledged, and the identifiers of
QoS 2 messages that were received and not released.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from headgate.wire.codec import Decoder, encode
from headgate.wire.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)

PATIENCE = 30.0
LONG = 3600
"""A session expiry interval beyond any test."""


class Peer:
    """One client. Bytes are read and written only in `turn` (or `run` below), or, without a socket,
    passed through `feed` and `speak`.
    """

    def __init__(
        self,
        client_id: str,
        version: Version = Version.V5,
        expiry: int = LONG,
        will: Will | None = None,
        keep_alive: int = 0,
        receive_maximum: int | None = None,
    ) -> None:
        self.client_id = client_id
        self.version = version
        self.expiry = expiry
        self.will = will
        self.keep_alive = keep_alive
        self.receive_maximum = receive_maximum
        self.socket: socket.socket | None = None
        self.connected = False
        """CONNACK has come."""
        self.connack: Connack | None = None
        self.farewell: Disconnect | None = None
        """What the broker said when it closed the connection."""
        self.ended = False
        """The connection was closed by the other side."""
        self.other: list[Packet] = []
        """Packets that nobody else took."""
        self._decoder = Decoder()
        self._unsent = bytearray()

    # Connecting

    def connect(self, port: int, clean: bool = False) -> None:
        """Open a connection and say CONNECT; the answer comes in a later turn."""
        assert self.socket is None
        try:
            self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        except OSError:
            self.ended = True
            return
        self.socket.setblocking(False)
        self.greet(clean)

    def greet(self, clean: bool) -> None:
        """Begin anew and say CONNECT."""
        self._decoder = Decoder(self.version)
        self._unsent.clear()
        self.connack = self.farewell = None
        self.connected = self.ended = False
        properties = Properties()
        if self.version == Version.V5:
            properties.session_expiry = self.expiry
            properties.receive_maximum = self.receive_maximum
        self.send(
            Connect(
                self.client_id,
                self.version,
                clean,
                self.keep_alive,
                will=self.will,
                properties=properties,
            )
        )

    def disconnect(self, packet: Disconnect | None = None) -> None:
        """Say goodbye, having written all that was to be said, and close."""
        self.send(packet or Disconnect())
        assert self.socket is not None
        self.socket.settimeout(PATIENCE)
        try:
            self.socket.sendall(self._unsent)
            self.socket.shutdown(socket.SHUT_WR)
            while data := self.socket.recv(65536):  # until the broker closes, or has crashed
                self.feed(data)
        except OSError:
            pass
        self.abandon()

    def abandon(self) -> None:
        """Close without a word."""
        if self.socket is not None:
            self.socket.close()
        self.socket = None
        self.connected = False

    # Turns

    def send(self, packet: Packet) -> None:
        self._unsent += encode(packet, self.version)

    def send_bytes(self, data: bytes) -> None:
        """Say something that was encoded before."""
        self._unsent += data

    @property
    def wants_write(self) -> bool:
        return bool(self._unsent)

    def write(self) -> None:
        assert self.socket is not None
        try:
            del self._unsent[: self.socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()  # the end is seen by reading

    def read(self) -> None:
        assert self.socket is not None
        try:
            data = self.socket.recv(262144)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.abandon()
            self.ended = True
            return
        self.feed(data)

    def feed(self, data: bytes) -> None:
        """Take what the broker wrote."""
        for packet in self._decoder.feed(data):
            self._take(packet)

    def speak(self) -> bytes:
        """All that is to be said now, without a socket."""
        if self.connected:
            self.tick()
        data = bytes(self._unsent)
        self._unsent.clear()
        return data

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Connack):
            assert packet.reason == 0, f"{self.client_id} was refused: {packet}"
            self.connack = packet
            self.connected = True
            self.begin(packet.session_present)
        elif isinstance(packet, Disconnect):
            self.farewell = packet
        elif not isinstance(packet, Pingresp):
            self.handle(packet)

    def begin(self, session_present: bool) -> None:
        """The session is open: resend what the protocol asks for."""

    def handle(self, packet: Packet) -> None:
        self.other.append(packet)

    def forget_session(self) -> None:
        """The session ended: nothing of it may be remembered."""

    def tick(self) -> None:
        """Called once per turn: say what is to be said now."""

    # Waiting for one thing

    def until(self, condition: Callable[[], bool], what: str = "") -> None:
        """Turn until a condition holds."""
        run([self], condition, f"{self.client_id} {what}")

    def until_connected(self) -> None:
        self.until(lambda: self.connected, "CONNACK")

    def ping(self) -> None:
        """Nothing is expected but the answer, which comes after everything before it."""
        self.send(Pingreq())


def run(peers: Iterable[Peer], condition: Callable[[], bool], what: str = "") -> None:
    """Turn all peers until a condition holds, at most for `PATIENCE`."""
    peers = list(peers)
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain for: {what or condition}")
        turn(peers, 0.05)


def turn(peers: Iterable[Peer], timeout: float) -> None:
    """One turn of all peers: read what has come, say what is to be said."""
    open_peers = []
    for peer in peers:
        if peer.socket is not None:
            if peer.connected:
                peer.tick()
            open_peers.append(peer)
    if not open_peers:
        time.sleep(timeout)
        return
    poll = select.poll()
    by_fd: dict[int, Peer] = {}
    for peer in open_peers:
        assert peer.socket is not None
        by_fd[peer.socket.fileno()] = peer
        poll.register(peer.socket, select.POLLIN | (select.POLLOUT if peer.wants_write else 0))
    for fd, events in poll.poll(timeout * 1000):
        peer = by_fd[fd]
        if events & select.POLLOUT:
            peer.write()
        if events & ~select.POLLOUT and peer.socket is not None:
            peer.read()


@dataclass
class Sending:
    """A message on its way to the broker."""

    topic: str
    payload: bytes
    qos: int
    retain: bool = False
    released: bool = False
    """PUBREC came: PUBREL is owed from now on (§4.3.3)."""


class Publisher(Peer):
    """Publishes at QoS 1 and 2, several messages in flight, and resends after a reconnection."""

    def __init__(
        self, client_id: str, version: Version = Version.V5, *, window: int = 20, **rest: Any
    ) -> None:
        super().__init__(client_id, version, **rest)
        self.window = window
        self.sending: dict[int, Sending] = {}
        self.backlog: deque[Sending] = deque()
        self.acknowledged: list[Sending] = []
        self.refusals: list[Packet] = []
        self._last_id = 0

    def forget_session(self) -> None:
        super().forget_session()
        self.sending.clear()
        self.backlog.clear()
        self.acknowledged.clear()

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool = False) -> None:
        """Send when the window allows it."""
        self.backlog.append(Sending(topic, payload, qos, retain))

    @property
    def idle(self) -> bool:
        return not self.sending and not self.backlog

    def begin(self, session_present: bool) -> None:
        heard = self.acknowledged or any(message.released for message in self.sending.values())
        assert session_present or not heard, f"the session of {self.client_id} is lost"
        for packet_id, message in self.sending.items():  # in the order of sending [MQTT-4.6.0-1]
            if message.released:
                self.send(Pubrel(packet_id))
            else:
                # Without a session it is a new message, and no duplicate [MQTT-3.3.1-1].
                self._send(packet_id, message, dup=session_present)
        super().begin(session_present)

    def tick(self) -> None:
        super().tick()
        while self.backlog and len(self.sending) < self.window:
            message = self.backlog.popleft()
            packet_id = self._next_id()
            self.sending[packet_id] = message
            self._send(packet_id, message, dup=False)

    def _send(self, packet_id: int, message: Sending, dup: bool) -> None:
        self.send(
            Publish(message.topic, message.payload, message.qos, message.retain, dup, packet_id)
        )

    def _next_id(self) -> int:
        while True:
            self._last_id = self._last_id % 65535 + 1
            if self._last_id not in self.sending:
                return self._last_id

    def handle(self, packet: Packet) -> None:
        if isinstance(packet, Puback):
            self._finish(packet.packet_id, 1, packet)
        elif isinstance(packet, Pubrec):
            message = self.sending.get(packet.packet_id)
            if packet.reason >= 0x80:
                self._finish(packet.packet_id, 2, packet)
                return
            assert message is not None, f"PUBREC of {packet.packet_id}, which is not in flight"
            assert message.qos == 2
            message.released = True
            self.send(Pubrel(packet.packet_id))
        elif isinstance(packet, Pubcomp):
            self._finish(packet.packet_id, 2, packet)
        else:
            super().handle(packet)

    def _finish(self, packet_id: int, qos: int, packet: Puback | Pubrec | Pubcomp) -> None:
        message = self.sending.pop(packet_id)
        assert message.qos == qos, f"{message} was answered with {packet}"
        # 0x92: the broker completed it before the connection was lost, and we did not hear of it.
        if packet.reason not in (0, 0x10, 0x92):
            self.refusals.append(packet)
        self.acknowledged.append(message)


@dataclass
class Received:
    """A message as the application got it."""

    topic: str
    payload: bytes
    qos: int
    dup: bool
    retain: bool
    properties: Properties = field(default_factory=Properties)


class Subscriber(Peer):
    """Receives, and acknowledges in order [MQTT-4.6.0-2], at once or as `laziness` says.

    QoS 2 by method A of MQTT 5 §4.3.3: the application gets the message when PUBLISH comes, and the
    packet identifier is remembered until PUBREL so that a second PUBLISH is none.
    """

    def __init__(self, client_id: str, version: Version = Version.V5, **rest: Any) -> None:
        super().__init__(client_id, version, **rest)
        self.messages: list[Received] = []
        self.unreleased: set[int] = set()
        self.granted: list[int] | None = None
        self.unsubscribed: list[int] | None = None
        self.laziness = 0.0
        """Probability that an acknowledgement waits for another turn."""
        self.holding = False
        """Acknowledge nothing."""
        self.rng = Random(0)
        self.unfinished: set[int] = set()
        """Messages of this connection that were not acknowledged to the end."""
        self._owed: deque[Packet] = deque()
        self._last_subscribe_id = 0

    def forget_session(self) -> None:
        super().forget_session()
        self.unreleased.clear()
        self.granted = None

    def subscribe(self, *filters: str, qos: int = 2, **options: Any) -> None:
        """SUBSCRIBE and wait for the answer."""
        self.granted = None
        self._last_subscribe_id += 1
        wanted = [(one, SubscriptionOptions(qos, **options)) for one in filters]
        self.send(Subscribe(self._last_subscribe_id, wanted))
        self.until(lambda: self.granted is not None, "SUBACK")
        assert self.granted == [qos] * len(filters)

    def unsubscribe(self, *filters: str) -> None:
        """UNSUBSCRIBE and wait for the answer."""
        self.unsubscribed = None
        self._last_subscribe_id += 1
        self.send(Unsubscribe(self._last_subscribe_id, list(filters)))
        self.until(lambda: self.unsubscribed is not None, "UNSUBACK")

    def until_messages(self, count: int) -> None:
        """Wait until that many messages have come since the beginning."""
        self.until(lambda: len(self.messages) >= count, f"{count} messages")

    def payloads(self, topic: str) -> list[bytes]:
        return [message.payload for message in self.messages if message.topic == topic]

    def begin(self, session_present: bool) -> None:
        self.unfinished.clear()
        self._owed.clear()  # acknowledgements belong to the connection; the broker will resend
        if not session_present:
            assert self.granted is None, f"the session of {self.client_id} is lost"
            self.unreleased.clear()
        super().begin(session_present)

    def handle(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self._receive(packet)
        elif isinstance(packet, Pubrel):
            self.unreleased.discard(packet.packet_id)
            self._owed.append(Pubcomp(packet.packet_id))
        elif isinstance(packet, Suback):
            self.granted = packet.reasons
        elif isinstance(packet, Unsuback):
            self.unsubscribed = packet.reasons
        else:
            super().handle(packet)

    def _receive(self, packet: Publish) -> None:
        if packet.qos:
            self.unfinished.add(packet.packet_id)
            allowed = self.receive_maximum or 65535
            assert len(self.unfinished) <= allowed, "more than the receive maximum [MQTT-3.3.4-9]"
        if packet.qos == 1:
            self._owed.append(Puback(packet.packet_id))
        elif packet.qos == 2:
            self._owed.append(Pubrec(packet.packet_id))
            if packet.packet_id in self.unreleased:
                # Only what was sent before may come again with its identifier [MQTT-3.3.1-1].
                assert packet.dup, f"{self.client_id}: identifier {packet.packet_id} in use"
                return
            self.unreleased.add(packet.packet_id)
        self.messages.append(
            Received(
                packet.topic,
                packet.payload,
                packet.qos,
                packet.dup,
                packet.retain,
                packet.properties,
            )
        )

    def tick(self) -> None:
        super().tick()
        while self._owed and not self.holding:
            if self.laziness and self.rng.random() < self.laziness:
                return
            packet = self._owed.popleft()
            if isinstance(packet, Puback | Pubcomp):
                self.unfinished.discard(packet.packet_id)
            self.send(packet)
