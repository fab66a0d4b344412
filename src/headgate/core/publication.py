"""Reading a PUBLISH where it lies, without making objects that a message does not need.

The general decoder in `headgate.wire` makes a packet with all its properties. A broker needs three
of them (alias, expiry, class) and forwards the others as they came, in their order [MQTT-3.3.2-17],
[MQTT-3.3.2-18], so that reading one is a scan.
"""

from __future__ import annotations

from headgate.core.message import CRITICAL, NORMAL, URGENT
from headgate.errors import MalformedPacket, ProtocolViolation
from headgate.wire.properties import MOST_USER_PROPERTIES, TOO_MANY

PAYLOAD_FORMAT = 0x01
MESSAGE_EXPIRY = 0x02
CONTENT_TYPE = 0x03
RESPONSE_TOPIC = 0x08
CORRELATION_DATA = 0x09
SUBSCRIPTION_IDENTIFIER = 0x0B
TOPIC_ALIAS = 0x23
USER_PROPERTY = 0x26

RANKS = {b"urgent": URGENT, b"critical": CRITICAL}
PREFIXES = ((b"$urgent/", URGENT), (b"$critical/", CRITICAL))
"""How a client that knows no user properties says it."""
CLASS_PROPERTIES = {
    URGENT: b"\x26\x00\x05class\x00\x06urgent",
    CRITICAL: b"\x26\x00\x05class\x00\x08critical",
}


class Properties:
    """What a scan of a PUBLISH's properties found."""

    def __init__(self) -> None:
        self.forwarded = b""
        self.alias = 0
        self.expiry = -1
        self.utf8 = False
        self.rank = NORMAL
        self.place = -1
        """Where, among those forwarded, the user property stood that claims the rank."""
        self.end = 0

    def scan(self, data: bytes, pos: int, limit: int) -> None:
        """Read the properties that begin, with their length, at `pos`."""
        length = 0
        shift = 0
        while True:
            if pos >= limit or shift > 21:
                raise MalformedPacket("the property length runs past the packet's end")
            byte = data[pos]
            pos += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if byte == 0 and shift > 7:  # the minimum number of bytes [MQTT-1.5.5-1]
            raise MalformedPacket("the property length is padded")
        end = pos + length
        if end > limit:
            raise MalformedPacket("the properties run past the packet's end")
        self.end = end
        start = pos
        cuts = 0
        seen = 0
        left = MOST_USER_PROPERTIES
        forwarded = b""
        while pos < end:
            here = pos
            identifier = data[pos]
            pos += 1
            if identifier != USER_PROPERTY:
                if identifier > 63:  # (§2.2.2.2)
                    raise MalformedPacket(f"property 0x{identifier:02x} is unknown")
                if (seen >> identifier) & 1:
                    raise ProtocolViolation(f"property 0x{identifier:02x} occurs twice")
                bit = 1  # 64 bits wide once compiled, which a literal is not
                bit <<= identifier
                seen |= bit
            if identifier == USER_PROPERTY:
                left -= 1
                if left < 0:
                    raise ProtocolViolation(TOO_MANY, 0x97)
                middle = text_end(data, pos, end)
                last = text_end(data, middle, end)
                pos = last
                if data[here + 3 : middle] == b"class" and data[middle + 2 : last] in RANKS:
                    # Taken out, however often it stands there: whether it is granted is judged
                    # later, and a subscriber must not take for urgent what is not.
                    self.rank = min(self.rank, RANKS[data[middle + 2 : last]])
                    forwarded += data[start:here]
                    if self.place < 0:
                        self.place = len(forwarded)
                    start = pos
                    cuts += 1
            elif identifier == MESSAGE_EXPIRY:
                if pos + 4 > end:
                    raise MalformedPacket("the message expiry runs past the properties' end")
                self.expiry = 0
                for _ in range(4):  # byte by byte: compiled, a sum of shifts would be 32 bits wide
                    self.expiry = (self.expiry << 8) | data[pos]
                    pos += 1
                forwarded += data[start:here]
                start = pos
                cuts += 1
            elif identifier == TOPIC_ALIAS:
                if pos + 2 > end:
                    raise MalformedPacket("the topic alias runs past the properties' end")
                self.alias = (data[pos] << 8) | data[pos + 1]
                if self.alias == 0:  # [MQTT-3.3.2-8]
                    raise ProtocolViolation("a topic alias of 0 is not allowed", 0x94)
                pos += 2
                forwarded += data[start:here]
                start = pos
                cuts += 1
            elif identifier == PAYLOAD_FORMAT:
                if pos >= end:
                    raise MalformedPacket("the payload format runs past the properties' end")
                if data[pos] > 1:
                    raise ProtocolViolation("the payload format indicator is neither 0 nor 1")
                self.utf8 = data[pos] == 1
                pos += 1
            elif identifier == CONTENT_TYPE:
                pos = text_end(data, pos, end)
            elif identifier == RESPONSE_TOPIC:
                here = pos + 2
                pos = text_end(data, pos, end)
                topic = data[here:pos]
                if not topic:  # [MQTT-4.7.3-1]
                    raise ProtocolViolation("the response topic is empty", 0x82)
                if b"+" in topic or b"#" in topic:  # [MQTT-3.3.2-14]
                    raise ProtocolViolation("the response topic contains a wildcard", 0x82)
            elif identifier == CORRELATION_DATA:
                pos = binary_end(data, pos, end)
            elif identifier == SUBSCRIPTION_IDENTIFIER:  # [MQTT-3.3.4-6]
                raise ProtocolViolation("a client must not send a subscription identifier")
            else:
                raise MalformedPacket(f"property 0x{identifier:02x} does not belong in PUBLISH")
        self.forwarded = forwarded + data[start:end] if cuts else data[start:end]


def response_of(properties: bytes) -> tuple[str, bytes]:
    """Where an answer is wanted, and the encoded correlation data it takes; both may be empty.

    `properties` were scanned before: they are well formed.
    """
    topic = ""
    correlation = b""
    pos = 0
    end = len(properties)
    while pos < end:
        identifier = properties[pos]
        start = pos
        pos += 1
        if identifier == USER_PROPERTY:
            pos = binary_end(properties, binary_end(properties, pos, end), end)
        elif identifier == PAYLOAD_FORMAT:
            pos += 1
        else:
            pos = binary_end(properties, pos, end)
        if identifier == RESPONSE_TOPIC:
            topic = properties[start + 3 : pos].decode()
        elif identifier == CORRELATION_DATA:
            correlation = properties[start:pos]
    return topic, correlation


def binary_end(data: bytes, pos: int, limit: int) -> int:
    """Where a length-prefixed field ends."""
    if pos + 2 > limit:
        raise MalformedPacket("a field runs past the properties' end")
    end = pos + 2 + ((data[pos] << 8) | data[pos + 1])
    if end > limit:
        raise MalformedPacket("a field runs past the properties' end")
    return end


def text_end(data: bytes, pos: int, limit: int) -> int:
    """Where a UTF-8 string ends, after looking whether it is one [MQTT-1.5.4-1]."""
    end = binary_end(data, pos, limit)
    check_text(data[pos + 2 : end])
    return end


def check_text(raw: bytes) -> None:
    """Raise unless `raw` is UTF-8 without U+0000 [MQTT-1.5.4-1], [MQTT-1.5.4-2]."""
    if b"\0" in raw:
        raise MalformedPacket("a string contains U+0000")
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError:
            raise MalformedPacket("a string is not UTF-8") from None


def remaining_length(data: bytes, pos: int, size: int, version: int) -> tuple[int, int]:
    """A remaining length of several bytes, and where the body begins; 0 if it is incomplete."""
    length = 0
    shift = 0
    while pos < size:
        byte = data[pos]
        pos += 1
        length |= (byte & 127) << shift
        if byte < 128:
            if byte == 0 and version == 5:  # [MQTT-1.5.5-1]
                raise MalformedPacket("the remaining length is longer than its value needs")
            return length, pos
        shift += 7
        if shift > 21:  # at most four bytes (§1.5.5)
            raise MalformedPacket("the remaining length is longer than four bytes")
    return 0, 0
