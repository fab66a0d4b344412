"""The face of the codec: `encode` and `decode` of one packet, and a `Decoder` of a stream."""

from __future__ import annotations

from headgate.errors import MalformedPacket, MqttError, ProtocolViolation
from headgate.wire.decoding import decode
from headgate.wire.encoding import encode
from headgate.wire.kinds import Version
from headgate.wire.packets import Connect, Packet
from headgate.wire.reasons import Reason

__all__ = ["Decoder", "decode", "encode"]


class Decoder:
    """Cuts a stream of bytes into packets, however the network split it.

    `version` is how packets are read. A CONNECT sets it, since what follows may be in the same
    read; a client sets it to what it sent. `maximum_packet_size` counts the fixed header too; None
    is no limit but the protocol's own, 256 MiB. Both may change between packets.

    After an error the stream has no packet boundaries any more: every later call raises it again.
    """

    def __init__(
        self, version: Version = Version.V311, maximum_packet_size: int | None = None
    ) -> None:
        self.version = version
        self.maximum_packet_size = maximum_packet_size
        self._buffer = bytearray()
        self._failure: MqttError | None = None

    def feed(self, data: bytes) -> list[Packet]:
        """Take what arrived and return every packet that is now complete.

        An error hides the packets before it in the same read. Who wants them uses `receive` and
        `next_packet` instead.
        """
        self.receive(data)
        packets = []
        while (packet := self.next_packet()) is not None:
            packets.append(packet)
        return packets

    def receive(self, data: bytes) -> None:
        """Take what arrived."""
        self._buffer += data

    def next_packet(self) -> Packet | None:
        """The next complete packet; None when more bytes are needed."""
        if self._failure is not None:
            raise self._failure
        try:
            return self._next_packet()
        except MqttError as error:
            self._failure = error
            self._buffer.clear()
            raise

    def _next_packet(self) -> Packet | None:
        buffer = self._buffer
        length = shift = 0
        pos = 1
        while True:
            if pos >= len(buffer):
                return None
            byte = buffer[pos]
            pos += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 21:
                raise MalformedPacket("the remaining length has more than four bytes")
        if byte == 0 and shift and self.version is Version.V5:
            # [MQTT-1.5.5-1]. MQTT 3 does not forbid padding, and some of its devices do pad.
            raise MalformedPacket("the remaining length is longer than its value needs")
        end = pos + length
        if self.maximum_packet_size is not None and end > self.maximum_packet_size:
            # Told from the header, so that nothing too large is ever buffered [MQTT-3.2.2-15].
            raise ProtocolViolation(
                f"a packet of {end} bytes is larger than {self.maximum_packet_size}",
                Reason.PACKET_TOO_LARGE,
            )
        if len(buffer) < end:
            return None
        packet = decode(buffer[0], bytes(buffer[pos:end]), self.version)
        del buffer[:end]
        if isinstance(packet, Connect):
            self.version = packet.version
        return packet
