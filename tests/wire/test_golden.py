"""Packets byte by byte, written out by hand from the specifications' figures and tables."""

from __future__ import annotations

import pytest

from headgate.wire.codec import Decoder, encode
from headgate.wire.packets import (
    Auth,
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
from headgate.wire.reasons import Reason

V31, V311, V5 = Version
AB = "0003 612f62"  # a/b
CD = "0003 632f64"  # c/d

VECTORS: list[tuple[str, Version, str, Packet]] = [
    (
        "CONNECT 3.1, the smallest",
        V31,
        "10 0f  0006 4d5149736470 03 02 003c  0001 63",
        Connect("c", V31, True, 60),
    ),
    (
        "CONNECT 3.1.1, figure 3.6: user name, password, will at QoS 1, clean session",
        V311,
        "10 1e  0004 4d515454 04 ce 000a  0001 63  0003 772f74 0003 627965  0001 75  0002 7077",
        Connect("c", V311, True, 10, "u", b"pw", Will("w/t", b"bye", 1, False)),
    ),
    (
        "CONNECT 3.1.1, no client id, session kept",
        V311,
        "10 0c  0004 4d515454 04 00 0000  0000",
        Connect("", V311, False, 0),
    ),
    (
        "CONNECT 5, figure 3-6: the same with a session expiry of 10 s",
        V5,
        "10 25  0004 4d515454 05 ce 000a 05 11 0000000a  0001 63"
        " 00 0003 772f74 0003 627965  0001 75  0002 7077",
        Connect(
            "c",
            V5,
            True,
            10,
            "u",
            b"pw",
            Will("w/t", b"bye", 1, False),
            Properties(session_expiry=10),
        ),
    ),
    (
        "CONNECT 5, password without user name, retained will at QoS 2 with properties",
        V5,
        "10 1e  0004 4d515454 05 74 0000 00  0000 07 01 01 18 00000005 0001 77 0000  0002 ff00",
        Connect(
            "",
            V5,
            False,
            0,
            None,
            b"\xff\x00",
            Will("w", b"", 2, True, Properties(payload_format=1, will_delay=5)),
        ),
    ),
    ("CONNACK 3.1", V31, "20 02 00 00", Connack()),
    ("CONNACK 3.1.1, session present", V311, "20 02 01 00", Connack(True)),
    ("CONNACK 3.1.1, not authorised", V311, "20 02 00 05", Connack(False, 5)),
    ("CONNACK 5", V5, "20 03 00 00 00", Connack()),
    (
        "CONNACK 5 with an assigned client id and limits",
        V5,
        "20 19 00 00 16  12 0003 782d31  13 001e  21 0014  22 000a  24 01  27 00010000",
        Connack(
            False,
            0,
            Properties(
                assigned_client_id="x-1",
                server_keep_alive=30,
                receive_maximum=20,
                topic_alias_maximum=10,
                maximum_qos=1,
                maximum_packet_size=65_536,
            ),
        ),
    ),
    (
        "CONNACK 5 that refuses and says why",
        V5,
        "20 08 00 87 05 1f 0002 6e6f",
        Connack(False, Reason.NOT_AUTHORIZED, Properties(reason_string="no")),
    ),
    ("PUBLISH QoS 0", V311, f"30 07 {AB} 6869", Publish("a/b", b"hi")),
    ("PUBLISH QoS 0 retained, empty", V311, f"31 05 {AB}", Publish("a/b", retain=True)),
    (
        "PUBLISH 3.1.1 QoS 1, figure 3.11: packet identifier 10",
        V311,
        f"32 07 {AB} 000a",
        Publish("a/b", qos=1, packet_id=10),
    ),
    (
        "PUBLISH QoS 2 again",
        V311,
        f"3d 08 {AB} ffff 78",
        Publish("a/b", b"x", 2, True, True, 65_535),
    ),
    (
        "PUBLISH 5 QoS 1, figure 3-9",
        V5,
        f"32 08 {AB} 000a 00",
        Publish("a/b", qos=1, packet_id=10),
    ),
    (
        "PUBLISH 5 by topic alias, two subscription identifiers, user properties in order",
        V5,
        "30 1f 0000 1b  02 00000009  0b 05 0b 8001  23 0007"
        " 26 0001 62 0001 32  26 0001 61 0001 31  78",
        Publish(
            "",
            b"x",
            properties=Properties(
                message_expiry=9,
                subscription_identifiers=[5, 128],
                topic_alias=7,
                user_properties=[("b", "2"), ("a", "1")],
            ),
        ),
    ),
    ("PUBACK 3.1.1", V311, "40 02 000a", Puback(10)),
    ("PUBACK 5, two bytes", V5, "40 02 000a", Puback(10)),
    ("PUBACK 5, three bytes", V5, "40 03 000a 10", Puback(10, Reason.NO_MATCHING_SUBSCRIBERS)),
    (
        "PUBACK 5 with a reason string",
        V5,
        "40 09 000a 97 05 1f 0002 6e6f",
        Puback(10, Reason.QUOTA_EXCEEDED, Properties(reason_string="no")),
    ),
    ("PUBREC", V311, "50 02 000a", Pubrec(10)),
    ("PUBREL", V311, "62 02 000a", Pubrel(10)),
    ("PUBREL 5 not found", V5, "62 03 000a 92", Pubrel(10, Reason.PACKET_IDENTIFIER_NOT_FOUND)),
    ("PUBCOMP", V311, "70 02 000a", Pubcomp(10)),
    (
        "SUBSCRIBE 3.1.1, figure 3.23: a/b at QoS 1, c/d at QoS 2",
        V311,
        f"82 0e 000a {AB} 01 {CD} 02",
        Subscribe(10, [("a/b", SubscriptionOptions(1)), ("c/d", SubscriptionOptions(2))]),
    ),
    (
        "SUBSCRIBE 5, figure 3-21, with every option",
        V5,
        f"82 12 000a 03 0b 8001 {AB} 01 {CD} 2e",
        Subscribe(
            10,
            [("a/b", SubscriptionOptions(1)), ("c/d", SubscriptionOptions(2, True, True, 2))],
            Properties(subscription_identifiers=[128]),
        ),
    ),
    ("SUBACK 3.1.1, figure 3.26", V311, "90 05 000a 00 02 80", Suback(10, [0, 2, 0x80])),
    ("SUBACK 5", V5, "90 05 000a 00 01 8f", Suback(10, [1, Reason.TOPIC_FILTER_INVALID])),
    (
        "UNSUBSCRIBE 3.1.1, figure 3.30",
        V311,
        f"a2 0c 000a {AB} {CD}",
        Unsubscribe(10, ["a/b", "c/d"]),
    ),
    ("UNSUBSCRIBE 5, figure 3-30", V5, f"a2 0d 000a 00 {AB} {CD}", Unsubscribe(10, ["a/b", "c/d"])),
    ("UNSUBACK 3.1.1", V311, "b0 02 000a", Unsuback(10)),
    ("UNSUBACK 5", V5, "b0 05 000a 00 00 11", Unsuback(10, [0, Reason.NO_SUBSCRIPTION_EXISTED])),
    ("PINGREQ", V311, "c0 00", Pingreq()),
    ("PINGRESP", V5, "d0 00", Pingresp()),
    ("DISCONNECT 3.1.1", V311, "e0 00", Disconnect()),
    ("DISCONNECT 5, normal", V5, "e0 00", Disconnect()),
    ("DISCONNECT 5 with will", V5, "e0 01 04", Disconnect(Reason.DISCONNECT_WITH_WILL)),
    (
        "DISCONNECT 5, figure 3-24: session expiry of 0",
        V5,
        "e0 07 00 05 11 00000000",
        Disconnect(0, Properties(session_expiry=0)),
    ),
    ("AUTH 5, success without properties", V5, "f0 00", Auth()),
    (
        "AUTH 5, SCRAM goes on",
        V5,
        "f0 18 18 16 15 000d 534352414d2d5348412d323536 16 0003 723d31",
        Auth(
            Reason.CONTINUE_AUTHENTICATION,
            Properties(auth_method="SCRAM-SHA-256", auth_data=b"r=1"),
        ),
    ),
]


@pytest.mark.parametrize(
    ("version", "wire", "packet"), [pytest.param(*rest, id=name) for name, *rest in VECTORS]
)
def test_packet_on_the_wire(version: Version, wire: str, packet: Packet) -> None:
    raw = bytes.fromhex(wire)
    assert Decoder(version).feed(raw) == [packet]
    assert encode(packet, version).hex() == raw.hex()


# What we never write, and must read all the same.
READ_ONLY: list[tuple[str, Version, str, Packet]] = [
    ("PUBACK with reason 0 spelled out", V5, "40 03 000a 00", Puback(10)),
    ("PUBACK with an empty property list", V5, "40 04 000a 00 00", Puback(10)),
    ("PUBCOMP with an empty property list", V5, "70 04 000a 92 00", Pubcomp(10, 0x92)),
    ("DISCONNECT with reason 0 spelled out", V5, "e0 01 00", Disconnect()),
    ("DISCONNECT with an empty property list", V5, "e0 02 00 00", Disconnect()),
    ("AUTH with an empty property list", V5, "f0 02 00 00", Auth()),
    (
        "properties in another order than ours",
        V5,
        f"30 0e {AB} 08  23 0007  02 00000009",
        Publish("a/b", properties=Properties(message_expiry=9, topic_alias=7)),
    ),
    ("padded remaining length, MQTT 3", V311, "c0 80 80 80 00", Pingreq()),
    (
        "CONNECT 3.1 with a user name flag and no user name",
        V31,
        "10 0f  0006 4d5149736470 03 c2 003c  0001 63",
        Connect("c", V31, True, 60),
    ),
    (
        "CONNECT 3.1 with a will QoS and no will, and the unused bit set",
        V31,
        "10 0f  0006 4d5149736470 03 1b 003c  0001 63",
        Connect("c", V31, True, 60),
    ),
    ("PUBREL 3.1 sent again", V31, "6a 02 000a", Pubrel(10)),
    (
        "SUBSCRIBE 3.1 sent again, unused bits set",
        V31,
        f"8a 08 000a {AB} fd",
        Subscribe(10, [("a/b", SubscriptionOptions(1))]),
    ),
    ("CONNACK 3.1 with its reserved byte", V31, "20 02 ff 04", Connack(False, 4)),
]


@pytest.mark.parametrize(
    ("version", "wire", "packet"), [pytest.param(*rest, id=name) for name, *rest in READ_ONLY]
)
def test_packet_that_is_only_read(version: Version, wire: str, packet: Packet) -> None:
    assert Decoder(version).feed(bytes.fromhex(wire)) == [packet]
