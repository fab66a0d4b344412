"""MQTT 3.1.1 as the load driver needs it: packets built once, streams read in runs.

The driver must cost far less per message than any broker. So nothing here touches a single
message while a measurement runs: every packet of a shape has one fixed size, and equal packets
that follow each other are found, counted and answered together with strided slices, which
CPython executes in C.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

DISCONNECT = b"\xe0\x00"
CONNACK_ACCEPTED = b"\x20\x02\x00\x00"

PUBACK, PUBREC, PUBREL, PUBCOMP = 0x40, 0x50, 0x62, 0x70
ACKNOWLEDGEMENT_SIZE = 4  # an acknowledgement is four bytes in MQTT 3.1.1, never more

# Bounds the cost of finding a short run in a long buffer.
_LOOKAHEAD = 512


class UnexpectedPacketError(Exception):
    """The broker sent something that this shape cannot contain."""


def publish_head(qos: int) -> int:
    """First byte of a PUBLISH without DUP and RETAIN."""
    return 0x30 | qos << 1


def remaining_length(value: int) -> bytes:
    """Variable byte integer (MQTT 3.1.1 §2.2.3)."""
    out = bytearray()
    while True:
        value, digit = divmod(value, 128)
        out.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(out)


def _packet(head: int, body: bytes) -> bytes:
    return bytes([head]) + remaining_length(len(body)) + body


def _text(value: str) -> bytes:
    encoded = value.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def connect(client_id: str, keep_alive: int = 0, lasting: bool = False) -> bytes:
    """CONNECT, protocol level 4, with a clean session or one that lasts."""
    flags = b"\x00" if lasting else b"\x02"
    head = _text("MQTT") + b"\x04" + flags + keep_alive.to_bytes(2, "big")
    return _packet(0x10, head + _text(client_id))


def subscribe(filters: Iterable[str], qos: int, packet_id: int = 1) -> bytes:
    """SUBSCRIBE to all filters at one QoS."""
    body = b"".join(_text(topic_filter) + bytes([qos]) for topic_filter in filters)
    return _packet(0x82, packet_id.to_bytes(2, "big") + body)


def suback(count: int, qos: int, packet_id: int = 1) -> bytes:
    """The SUBACK that grants `count` filters what they asked for."""
    return _packet(0x90, packet_id.to_bytes(2, "big") + bytes([qos]) * count)


def publish(
    topic: str, payload: bytes, qos: int = 0, packet_id: int = 0, retain: bool = False
) -> bytes:
    """PUBLISH; the packet identifier is present at QoS 1 and 2 only [MQTT-2.3.1-5]."""
    identifier = packet_id.to_bytes(2, "big") if qos else b""
    return _packet(publish_head(qos) | retain, _text(topic) + identifier + payload)


def topic_end(topic: str, payload: bytes, qos: int) -> int:
    """Offset in such a PUBLISH of what follows the topic: at QoS 1 and 2 the identifier."""
    return len(publish(topic, payload, qos)) - len(payload) - (2 if qos else 0)


class Run(NamedTuple):
    """`length` packets of the same head, one after the other, from `start` on."""

    head: int
    start: int
    length: int


def runs(buffer: bytearray, end: int, sizes: Mapping[int, int]) -> tuple[list[Run], int]:
    """The runs of whole packets in `buffer[:end]` and the position behind them.

    `sizes` maps each head that may occur to the size of its packets.
    """
    found: list[Run] = []
    start = 0
    while start < end:
        head = buffer[start]
        size = sizes.get(head)
        if size is None:
            raise UnexpectedPacketError(f"a packet that begins with 0x{head:02x} was not expected")
        whole = min((end - start) // size, _LOOKAHEAD)
        if not whole:
            break
        # Every size-th byte is a head for as long as the run lasts, and the first one that
        # differs ends it: what follows that byte is misaligned but never looked at.
        heads = buffer[start : start + whole * size : size]
        length = len(heads) - len(heads.lstrip(bytes((head,))))
        found.append(Run(head, start, length))
        start += length * size
    return found, start


def answers(buffer: bytearray, run: Run, size: int, offset: int, head: int) -> bytearray:
    """Acknowledgements with `head` for each packet of a run, in its order [MQTT-4.6.0-2]."""
    at = run.start + offset
    if run.length == 1:
        return bytearray((head, 2, buffer[at], buffer[at + 1]))
    stop = run.start + run.length * size
    out = bytearray(bytes((head, 2, 0, 0)) * run.length)
    out[2::4] = buffer[at:stop:size]
    out[3::4] = buffer[at + 1 : stop : size]
    return out
