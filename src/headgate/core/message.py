"""A message inside the broker, and how it becomes bytes for a subscriber.

A `Message` keeps topic, payload and properties as the bytes that arrived. Encoding for a subscriber
is concatenation; what all subscribers share is built once and kept on the message.
"""

from __future__ import annotations

URGENT = 0
CRITICAL = 1
NORMAL = 2

BYTE = [bytes([number]) for number in range(256)]
TWO_BYTES = [number.to_bytes(2, "big") for number in range(65536)]


def varint(number: int) -> bytes:
    """MQTT's variable byte integer (MQTT 5 §1.5.5)."""
    if number < 128:
        return BYTE[number]
    if number < 16384:
        return BYTE[(number & 127) | 128] + BYTE[number >> 7]
    if number < 2097152:
        return BYTE[(number & 127) | 128] + BYTE[((number >> 7) & 127) | 128] + BYTE[number >> 14]
    return (
        BYTE[(number & 127) | 128]
        + BYTE[((number >> 7) & 127) | 128]
        + BYTE[((number >> 14) & 127) | 128]
        + BYTE[number >> 21]
    )


def uint16(number: int) -> bytes:
    """A two-byte integer (MQTT 5 §1.5.2)."""
    return TWO_BYTES[number]


class Message:
    """One application message, or a run of them that travels as one (`count` > 1).

    A run is made of contiguous QoS 0 packets of one topic that arrived in one read and that nobody
    needs to look at one by one; it has only its topic and its encoded form: it is `sealed`.
    """

    def __init__(self, topic: bytes, payload: bytes, properties: bytes, qos: int) -> None:
        self.topic = topic
        self.payload = payload
        self.properties = properties
        self.qos = qos
        self.retain = False
        self.flags = qos << 1
        """QoS and DUP as the publisher gave them; `qos` follows the message's class."""
        self.rank = NORMAL
        self.count = 1
        self.sealed = False
        self.own = False
        """The broker's, not a client's: what it says of itself, and answers."""
        self.expires = 0.0
        self.arrived = 0.0
        self.number = 0
        self.sender = ""
        self.key = 0
        self.holders = 0
        self.size = len(topic) + len(payload) + len(properties)
        self.plain3: bytes | None = None
        self.plain5: bytes | None = None

    def plain(self, version: int) -> bytes:
        """The whole packet at QoS 0, not retained, with nothing added: the same for everybody."""
        if version == 5:
            if self.plain5 is None:
                self.plain5 = self.packet(5, 0x30, 0, b"", False)
            return self.plain5
        if self.plain3 is None:
            self.plain3 = self.packet(version, 0x30, 0, b"", False)
        return self.plain3

    def packet(
        self, version: int, first: int, packet_id: int, extra: bytes, aliased: bool
    ) -> bytes:
        """A PUBLISH packet: `first` is type and flags, `extra` are more properties (MQTT 5).

        `aliased`: an alias among the properties stands for the topic, which is left out.
        """
        topic = b"" if aliased else self.topic
        payload = self.payload
        length = 2 + len(topic) + len(payload)
        if version == 5:
            properties = self.properties
            if extra:
                properties = extra + properties
            prefix = varint(len(properties))
            length += len(prefix) + len(properties)
            if packet_id:
                length += 2
                prefix = uint16(packet_id) + prefix
            return b"".join(
                (
                    BYTE[first],
                    varint(length),
                    uint16(len(topic)),
                    topic,
                    prefix,
                    properties,
                    payload,
                )
            )
        if packet_id:
            return b"".join(
                (
                    BYTE[first],
                    varint(length + 2),
                    uint16(len(topic)),
                    topic,
                    uint16(packet_id),
                    payload,
                )
            )
        return b"".join((BYTE[first], varint(length), uint16(len(topic)), topic, payload))


def run(version: int, topic: bytes, encoded: bytes, count: int, arrived: float) -> Message:
    """Many QoS 0 packets as one piece, already encoded for subscribers of `version`."""
    message = Message(topic, b"", b"", 0)
    message.sealed = True
    message.count = count
    message.arrived = arrived
    message.size = len(encoded)
    if version == 5:
        message.plain5 = encoded
    else:
        message.plain3 = encoded
    return message


def split(message: Message) -> list[Message]:
    """The packets of a run, each by itself and still encoded."""
    version = 4 if message.plain5 is None else 5
    data = message.plain(version)
    parts = []
    start = 0
    size = len(data)
    while start < size:
        pos = start + 1
        length = data[pos] & 127
        shift = 7
        while data[pos] > 127:
            pos += 1
            length |= (data[pos] & 127) << shift
            shift += 7
        end = pos + 1 + length
        parts.append(run(version, message.topic, data[start:end], 1, message.arrived))
        start = end
    return parts
