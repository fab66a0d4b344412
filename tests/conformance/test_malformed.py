"""Malformed packets and protocol errors: the right reason, and the end (MQTT 5 §4.13)."""

from __future__ import annotations

import random

import pytest

from headgate.wire.codec import encode
from headgate.wire.packets import Publish, Version
from headgate.wire.reasons import Reason

from .conftest import Dial, Enter

MALFORMED = Reason.MALFORMED_PACKET
PROTOCOL = Reason.PROTOCOL_ERROR

# What both versions refuse; MQTT 5 answers with the reason, 3.1.1 by closing.
BOTH: dict[str, tuple[bytes, bytes, Reason]] = {
    # name: (MQTT 5, MQTT 3.1.1, reason)
    "reserved type 0": (b"\x00\x00", b"\x00\x00", MALFORMED),
    "remaining length of five bytes": (b"\x30" + b"\xff" * 5, b"\x30" + b"\xff" * 5, MALFORMED),
    "PUBLISH with QoS 3 [MQTT-3.3.1-4]": (
        b"\x36\x06\x00\x01a\x00\x01\x00",
        b"\x36\x05\x00\x01a\x00\x01",
        MALFORMED,
    ),
    "PUBLISH with QoS 0 and DUP [MQTT-3.3.1-2]": (
        b"\x38\x04\x00\x01a\x00",
        b"\x38\x03\x00\x01a",
        MALFORMED,
    ),
    "PUBLISH with identifier 0 [MQTT-2.2.1-3]": (
        b"\x32\x06\x00\x01a\x00\x00\x00",
        b"\x32\x05\x00\x01a\x00\x00",
        PROTOCOL,
    ),
    "PUBLISH whose topic is cut off": (b"\x30\x03\x00\x05a", b"\x30\x03\x00\x05a", MALFORMED),
    "PUBLISH without a topic": (b"\x30\x01\x00", b"\x30\x01\x00", MALFORMED),
    "PUBLISH without its identifier": (b"\x32\x03\x00\x01a", b"\x32\x03\x00\x01a", MALFORMED),
    "PUBACK with flags [MQTT-2.1.3-1]": (b"\x41\x02\x00\x01", b"\x41\x02\x00\x01", MALFORMED),
    "PUBACK without identifier": (b"\x40\x01\x00", b"\x40\x01\x00", MALFORMED),
    "PUBACK of 0": (b"\x40\x02\x00\x00", b"\x40\x02\x00\x00", PROTOCOL),
    "PUBREC with flags": (b"\x52\x02\x00\x01", b"\x52\x02\x00\x01", MALFORMED),
    "PUBREC of 0": (b"\x50\x02\x00\x00", b"\x50\x02\x00\x00", PROTOCOL),
    "PUBREL without flags [MQTT-3.6.1-1]": (
        b"\x60\x02\x00\x01",
        b"\x60\x02\x00\x01",
        MALFORMED,
    ),
    "PUBREL of 0": (b"\x62\x02\x00\x00", b"\x62\x02\x00\x00", PROTOCOL),
    "PUBCOMP with flags": (b"\x72\x02\x00\x01", b"\x72\x02\x00\x01", MALFORMED),
    "PUBCOMP of 0": (b"\x70\x02\x00\x00", b"\x70\x02\x00\x00", PROTOCOL),
    "SUBSCRIBE without flags [MQTT-3.8.1-1]": (
        b"\x80\x07\x00\x01\x00\x00\x01a\x00",
        b"\x80\x06\x00\x01\x00\x01a\x00",
        MALFORMED,
    ),
    "SUBSCRIBE without a filter [MQTT-3.8.3-2]": (
        b"\x82\x03\x00\x01\x00",
        b"\x82\x02\x00\x01",
        PROTOCOL,
    ),
    "SUBSCRIBE with identifier 0": (
        b"\x82\x07\x00\x00\x00\x00\x01a\x00",
        b"\x82\x06\x00\x00\x00\x01a\x00",
        PROTOCOL,
    ),
    "SUBSCRIBE with reserved option bits [MQTT-3.8.3-5]": (
        b"\x82\x07\x00\x01\x00\x00\x01a\x40",
        b"\x82\x06\x00\x01\x00\x01a\x04",
        MALFORMED,
    ),
    "SUBSCRIBE without options": (
        b"\x82\x06\x00\x01\x00\x00\x01a",
        b"\x82\x05\x00\x01\x00\x01a",
        MALFORMED,
    ),
    "SUBSCRIBE to U+0000 [MQTT-1.5.4-2]": (
        b"\x82\x07\x00\x01\x00\x00\x01\x00\x00",
        b"\x82\x06\x00\x01\x00\x01\x00\x00",
        MALFORMED,
    ),
    "SUBSCRIBE to what is not UTF-8 [MQTT-1.5.4-1]": (
        b"\x82\x07\x00\x01\x00\x00\x01\xff\x00",
        b"\x82\x06\x00\x01\x00\x01\xff\x00",
        MALFORMED,
    ),
    "UNSUBSCRIBE without flags [MQTT-3.10.1-1]": (
        b"\xa0\x06\x00\x01\x00\x00\x01a",
        b"\xa0\x05\x00\x01\x00\x01a",
        MALFORMED,
    ),
    "UNSUBSCRIBE without a filter [MQTT-3.10.3-2]": (
        b"\xa2\x03\x00\x01\x00",
        b"\xa2\x02\x00\x01",
        PROTOCOL,
    ),
    "PINGREQ with flags [MQTT-2.1.3-1]": (b"\xc1\x00", b"\xc1\x00", MALFORMED),
    "PINGREQ with a body": (b"\xc0\x01\x00", b"\xc0\x01\x00", MALFORMED),
    "DISCONNECT with flags [MQTT-3.14.1-1]": (b"\xe1\x00", b"\xe1\x00", MALFORMED),
    "CONNACK, which only a server sends": (b"\x20\x03\x00\x00\x00", b"\x20\x02\x00\x00", PROTOCOL),
    "SUBACK, which only a server sends": (
        b"\x90\x04\x00\x01\x00\x00",
        b"\x90\x03\x00\x01\x00",
        PROTOCOL,
    ),
    "UNSUBACK, which only a server sends": (
        b"\xb0\x04\x00\x01\x00\x00",
        b"\xb0\x02\x00\x01",
        PROTOCOL,
    ),
    "PINGRESP, which only a server sends": (b"\xd0\x00", b"\xd0\x00", PROTOCOL),
}


@pytest.mark.parametrize("what", BOTH)
def test_a_bad_packet_ends_the_connection(enter: Enter, version: Version, what: str) -> None:
    """[MQTT-4.13.1-1], 3.1.1 [MQTT-4.8.0-1]"""
    new, old, reason = BOTH[what]
    client = enter(version=version)
    client.send(new if version is Version.V5 else old)
    client.expect_dismissed(reason)


def publish(properties: bytes, length: bytes | None = None) -> bytes:
    """A PUBLISH with these properties, as they are."""
    body = b"\x00\x01a" + (length or bytes([len(properties)])) + properties
    return b"\x30" + bytes([len(body)]) + body


ONLY_5: dict[str, tuple[bytes, Reason]] = {
    "remaining length not minimal [MQTT-1.5.5-1]": (b"\x30\x84\x00\x00\x01a\x00", MALFORMED),
    "PUBLISH without properties": (b"\x30\x03\x00\x01a", MALFORMED),
    "PUBLISH whose properties are cut off": (publish(b"\x01", b"\x05"), MALFORMED),
    "property length not minimal [MQTT-1.5.5-1]": (publish(b"\x01\x00", b"\x82\x00"), MALFORMED),
    "unknown property (§2.2.2.2)": (publish(b"\x7f\x00"), MALFORMED),
    "property of CONNECT in PUBLISH (§2.2.2.2)": (publish(b"\x21\x00\x01"), MALFORMED),
    "property that does not exist (§2.2.2.2)": (publish(b"\x04\x00"), MALFORMED),
    "payload format twice (§3.3.2.3.2)": (publish(b"\x01\x00\x01\x00"), PROTOCOL),
    "payload format of 2": (publish(b"\x01\x02"), PROTOCOL),
    "payload format cut off": (publish(b"\x01"), MALFORMED),
    "message expiry twice (§3.3.2.3.3)": (publish(b"\x02\x00\x00\x00\x01" * 2), PROTOCOL),
    "message expiry cut off": (publish(b"\x02\x00\x00"), MALFORMED),
    "topic alias twice (§3.3.2.3.4)": (publish(b"\x23\x00\x01" * 2), PROTOCOL),
    "response topic twice (§3.3.2.3.5)": (publish(b"\x08\x00\x01a" * 2), PROTOCOL),
    "correlation data twice (§3.3.2.3.6)": (publish(b"\x09\x00\x01a" * 2), PROTOCOL),
    "content type twice (§3.3.2.3.9)": (publish(b"\x03\x00\x01a" * 2), PROTOCOL),
    "content type not UTF-8 [MQTT-3.3.2-19]": (publish(b"\x03\x00\x01\xff"), MALFORMED),
    "response topic not UTF-8 [MQTT-3.3.2-13]": (publish(b"\x08\x00\x01\xff"), MALFORMED),
    "user property not UTF-8": (publish(b"\x26\x00\x01\xff\x00\x01a"), MALFORMED),
    "user property cut off": (publish(b"\x26\x00\x01a\x00\x02a"), MALFORMED),
    "PUBACK with a reason it does not have": (b"\x40\x03\x00\x01\x01", PROTOCOL),
    "PUBREL with a reason it does not have": (b"\x62\x03\x00\x01\x80", PROTOCOL),
    "PUBACK with a property it does not have": (b"\x40\x06\x00\x01\x00\x02\x01\x00", MALFORMED),
    "PUBACK whose properties are cut off": (b"\x40\x05\x00\x01\x00\x05\x1f", MALFORMED),
    "PUBACK with bytes behind it": (b"\x40\x05\x00\x01\x00\x00\x00", MALFORMED),
    "reason string twice": (b"\x40\x0c\x00\x01\x00\x08\x1f\x00\x01a\x1f\x00\x01a", PROTOCOL),
    "SUBSCRIBE with QoS 3 (§3.8.3.1)": (b"\x82\x07\x00\x01\x00\x00\x01a\x03", PROTOCOL),
    "SUBSCRIBE with retain handling 3 (§3.8.3.1)": (
        b"\x82\x07\x00\x01\x00\x00\x01a\x30",
        PROTOCOL,
    ),
    "subscription identifier of 0 (§3.8.2.1.2)": (
        b"\x82\x09\x00\x01\x02\x0b\x00\x00\x01a\x00",
        PROTOCOL,
    ),
    "subscription identifier twice (§3.8.2.1.2)": (
        b"\x82\x0b\x00\x01\x04\x0b\x01\x0b\x02\x00\x01a\x00",
        PROTOCOL,
    ),
    "DISCONNECT with a reason it does not have": (b"\xe0\x01\x01", PROTOCOL),
    "DISCONNECT with a property it does not have": (b"\xe0\x04\x00\x02\x01\x00", MALFORMED),
    "AUTH unasked [MQTT-4.12.0-7]": (b"\xf0\x00", PROTOCOL),
    "AUTH with flags [MQTT-3.15.1-1]": (b"\xf1\x00", MALFORMED),
}


@pytest.mark.parametrize("what", ONLY_5)
def test_a_bad_packet_of_version_5_is_answered(enter: Enter, what: str) -> None:
    """[MQTT-4.13.1-1], [MQTT-4.13.2-1]: DISCONNECT with the reason, then the end."""
    raw, reason = ONLY_5[what]
    client = enter()
    client.send(raw)
    client.expect_dismissed(reason)


def test_version_3_has_no_auth(enter: Enter) -> None:
    """3.1.1 §2.2.1: type 15 is reserved there."""
    client = enter(version=Version.V311)
    client.send(b"\xf0\x00")
    client.expect_closed()


def test_version_3_allows_qos_up_to_2(enter: Enter) -> None:
    """3.1.1 [MQTT-3-8.3-4]"""
    client = enter(version=Version.V311)
    client.send(b"\x82\x06\x00\x01\x00\x01a\x03")
    client.expect_closed()


CONNECTS: dict[str, bytes] = {
    "receive maximum of 0 (§3.1.2.11.3)": b"\x21\x00\x00",
    "receive maximum twice": b"\x21\x00\x01" * 2,
    "maximum packet size of 0 (§3.1.2.11.4)": b"\x27\x00\x00\x00\x00",
    "session expiry twice (§3.1.2.11.2)": b"\x11\x00\x00\x00\x01" * 2,
    "topic alias maximum twice (§3.1.2.11.5)": b"\x22\x00\x01" * 2,
    "request response information of 2 (§3.1.2.11.6)": b"\x19\x02",
    "request problem information of 2 (§3.1.2.11.7)": b"\x17\x02",
    "authentication data without a method (§3.1.2.11.10)": b"\x16\x00\x01a",
    "authentication method twice (§3.1.2.11.9)": b"\x15\x00\x01a" * 2,
    "property of PUBLISH": b"\x01\x00",
    "properties cut off": b"\x21\x00",
}


@pytest.mark.parametrize("what", CONNECTS)
def test_a_bad_property_of_connect_is_refused(dial: Dial, what: str) -> None:
    """[MQTT-3.1.4-1], [MQTT-3.1.4-2]: perhaps with a CONNACK that says so, never let in."""
    properties = CONNECTS[what]
    body = b"\x00\x04MQTT\x05\x02\x00\x00" + bytes([len(properties)]) + properties + b"\x00\x01c"
    client = dial()
    client.send(b"\x10" + bytes([len(body)]) + body)
    client.expect_refused()


@pytest.mark.parametrize(
    "raw",
    [
        b"\x11\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c",
        b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x00\x00\x01cx",
        b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x05",
        b"\x10\x0d\x00\x04MQTT\x04\x82\x00\x00\x00\x01c",
        b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01\xff",
        b"\x10\x00",
    ],
    ids=["flags", "bytes behind it", "cut off", "no user name", "client id not UTF-8", "empty"],
)
def test_a_malformed_connect_is_refused(dial: Dial, raw: bytes) -> None:
    """[MQTT-2.1.3-1], [MQTT-3.1.4-1], 3.1.1 [MQTT-2.2.2-2]"""
    client = dial(Version.V311)
    client.send(raw)
    client.expect_closed()


def test_what_came_before_the_error_counts(enter: Enter, name: str, version: Version) -> None:
    """§4.13: packets are handled in order, in whatever pieces they arrive."""
    watcher = enter(f"{name}-w", version)
    watcher.subscribe(name)
    client = enter(name, version)
    client.send(Publish(name, b"good"), Publish(name, b"good"), b"\x00\x00", Publish(name, b"bad"))
    client.expect_dismissed(MALFORMED)
    watcher.take(payload=b"good")
    watcher.take(payload=b"good")
    watcher.expect_nothing()


def test_a_short_packet_within_a_burst_reaches_nobody(
    enter: Enter, name: str, version: Version
) -> None:
    """[MQTT-4.13.1-1]: its topic would begin in one packet and end in the next."""
    watcher = enter(f"{name}-w", version)
    watcher.subscribe("abc")
    client = enter(name, version)
    rest = b"bc\x00\x00" if version is Version.V5 else b"bc"
    client.send(Publish("abc", b"good"), b"\x30\x03\x00\x03a" + rest)
    client.expect_dismissed(MALFORMED)
    watcher.take(topic="abc", payload=b"good")
    watcher.expect_nothing()


def test_any_split_of_the_bytes_is_the_same_stream(
    enter: Enter, name: str, version: Version
) -> None:
    """§2: the transport keeps bytes in order and packets not at all."""
    client = enter(name, version)
    client.subscribe(name, 1)
    messages = [Publish(name, b"%d" % n * (n * 7 % 200), n % 2, packet_id=n) for n in range(1, 60)]
    stream = b"".join(encode(message, version) for message in messages)
    pieces = random.Random(7)
    at = 0
    while at < len(stream):
        step = pieces.randint(1, 40)
        client.send(stream[at : at + step])
        at += step
    expected = [message.payload for message in messages]
    while expected:
        packet = client.receive()
        assert packet is not None
        if isinstance(packet, Publish):
            assert packet.payload == expected.pop(0)
