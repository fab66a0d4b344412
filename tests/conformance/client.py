"""A blocking client on a raw socket that does what a test says and nothing by itself.

It acknowledges nothing, answers nothing and repeats nothing, so that each test sees exactly what
the broker does. Packets are made and read with the project's own codec, which has its own tests
against hand-written bytes; what the codec would refuse to write is sent as bytes.
"""

from __future__ import annotations

import re
import socket
import time
from collections import deque
from typing import Any, TypeVar

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
    Version,
)

PATIENCE = 10.0
"""Seconds to wait for what must come."""

P = TypeVar("P", bound=Packet)


class Client:
    def __init__(self, port: int, version: Version = Version.V5) -> None:
        self.version = version
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = Decoder(version)
        self._set_aside: deque[Packet] = deque()
        self._packet_id = 0

    def close(self) -> None:
        """Drop the connection without a word."""
        self.socket.close()

    # Saying and hearing

    def send(self, *packets: Packet | bytes) -> None:
        """Send packets, or bytes as they are, in one write."""
        self.socket.sendall(
            b"".join(
                packet if isinstance(packet, bytes) else encode(packet, self.version)
                for packet in packets
            )
        )

    def receive(self, timeout: float = PATIENCE) -> Packet | None:
        """The next packet; None if the broker closed the connection."""
        if self._set_aside:
            return self._set_aside.popleft()
        return self._receive(timeout)

    def _receive(self, timeout: float) -> Packet | None:
        deadline = time.monotonic() + timeout
        while (packet := self._decoder.next_packet()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"nothing came within {timeout} s")
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._decoder.receive(data)
        return packet

    def expect(self, kind: type[P], timeout: float = PATIENCE, **fields: Any) -> P:
        """The next packet, which must be of this kind and have these fields."""
        packet = self.receive(timeout)
        assert isinstance(packet, kind), f"expected {kind.__name__}, got {told(packet)}"
        for name, value in fields.items():
            assert getattr(packet, name) == value, f"{name} is not {value!r} in {told(packet)}"
        return packet

    def expect_closed(self, timeout: float = PATIENCE) -> None:
        """The broker closes the connection and says nothing more."""
        packet = self.receive(timeout)
        assert packet is None, f"expected the end of the connection, got {told(packet)}"

    def expect_dismissed(self, reason: int, timeout: float = PATIENCE) -> Disconnect | None:
        """The broker ends the connection, in MQTT 5 with a reason."""
        farewell = None
        if self.version is Version.V5:
            farewell = self.expect(Disconnect, timeout, reason=reason)
        self.expect_closed(timeout)
        return farewell

    def expect_refused(self) -> None:
        """The broker does not let the client in, with or without saying why."""
        answer = self.receive()
        if answer is not None:
            assert isinstance(answer, Connack), f"expected CONNACK, got {told(answer)}"
            assert answer.reason != 0, f"expected a refusal, got {told(answer)}"
            self.expect_closed()

    def expect_nothing(self) -> None:
        """Nothing is on its way: the answer to a ping is the next packet.

        The broker handles what it reads in order and in one thread, so that whatever it did before
        it read the ping is in the socket before the answer.
        """
        self.send(Pingreq())
        self.expect(Pingresp)

    def expect_silence(self, seconds: float) -> None:
        """Nothing comes for a while; for what the broker does by the clock."""
        try:
            packet = self.receive(seconds)
        except TimeoutError:
            return
        raise AssertionError(f"expected silence, got {told(packet)}")

    # Whole exchanges

    def connect(self, client_id: str = "", **fields: Any) -> Connack:
        """CONNECT, which must be accepted. `fields` are those of `Connect`."""
        self.send(Connect(client_id, self.version, **fields))
        return self.expect(Connack, reason=0)

    def next_id(self) -> int:
        """A packet identifier that this client did not use yet."""
        self._packet_id += 1
        return self._packet_id

    def subscribe(
        self, topic_filter: str, qos: int = 0, *, identifier: int = 0, **options: Any
    ) -> int:
        """SUBSCRIBE to one filter; the reason code that came back."""
        properties = Properties(subscription_identifiers=[identifier] if identifier else [])
        request = Subscribe(
            self.next_id(), [(topic_filter, SubscriptionOptions(qos, **options))], properties
        )
        self.send(request)
        return self.expect(Suback, packet_id=request.packet_id).reasons[0]

    def publish(self, topic: str, payload: bytes = b"", qos: int = 0, **fields: Any) -> int:
        """PUBLISH and complete the exchange; the reason code of its acknowledgement.

        At QoS 0 a ping shows that the broker has done its work.
        """
        message = Publish(topic, payload, qos, **fields)
        if qos:
            message.packet_id = self.next_id()
        self.send(message)
        if qos == 1:
            return self.expect(Puback, packet_id=message.packet_id).reason
        if qos == 2:
            reason = self.expect(Pubrec, packet_id=message.packet_id).reason
            if reason < 0x80:
                self.send(Pubrel(message.packet_id))
                self.expect(Pubcomp, packet_id=message.packet_id, reason=0)
            return reason
        self.expect_nothing()
        return 0

    def take(self, qos: int = 0, **fields: Any) -> Publish:
        """The next packet, a PUBLISH of this QoS and with these fields, and acknowledge it."""
        message = self.expect(Publish, qos=qos, **fields)
        if qos == 1:
            self.send(Puback(message.packet_id))
        elif qos == 2:
            self.send(Pubrec(message.packet_id))
            self._await_release(message.packet_id)
            self.send(Pubcomp(message.packet_id))
        return message

    def _await_release(self, packet_id: int) -> None:
        """Wait for PUBREL; other messages may come first, and are for later."""
        seen: list[Packet] = []
        while not isinstance(packet := self.receive(), Pubrel):
            assert packet is not None, "the connection ended before PUBREL"
            seen.append(packet)
        assert packet.packet_id == packet_id
        self._set_aside.extendleft(reversed(seen))

    def disconnect(self, reason: int = 0, **properties: Any) -> None:
        """DISCONNECT, and see the broker close the connection [MQTT-3.14.4-1]."""
        self.send(Disconnect(reason, Properties(**properties)))
        self.expect_closed()


def told(packet: Packet | None) -> str:
    """A packet for a failure's message, without the properties that it does not have."""
    if packet is None:
        return "the end of the connection"
    return re.sub(r"\w+=(None|\[\]),? ?", "", repr(packet))
