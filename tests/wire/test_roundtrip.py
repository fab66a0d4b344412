"""What is written is what was meant, for every packet type and version."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from headgate.wire.codec import Decoder, decode, encode
from headgate.wire.fields import read_varint
from headgate.wire.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Properties,
    Puback,
    Publish,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from headgate.wire.properties import WILL
from headgate.wire.reasons import Reason

from .strategies import (
    acknowledgements,
    auths,
    bounded,
    connacks,
    connects,
    disconnects,
    publishes,
    subacks,
    subscribes,
    unsubacks,
    unsubscribes,
    versions,
)

V31, V311, V5 = Version

STRATEGIES = {
    PacketType.CONNECT: connects,
    PacketType.CONNACK: connacks,
    PacketType.PUBLISH: publishes,
    PacketType.PUBACK: acknowledgements,
    PacketType.SUBSCRIBE: subscribes,
    PacketType.SUBACK: subacks,
    PacketType.UNSUBSCRIBE: unsubscribes,
    PacketType.UNSUBACK: unsubacks,
    PacketType.DISCONNECT: disconnects,
    PacketType.AUTH: lambda _: auths(),
}


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        pytest.param(kind, version, id=f"{kind.name} {version.name}")
        for kind in STRATEGIES
        for version in Version
        if kind is not PacketType.AUTH or version is V5
    ],
)
def test_packet_survives(kind: PacketType, version: Version) -> None:
    @settings(bounded, max_examples=60)
    @given(STRATEGIES[kind](version))
    def survives(packet: Packet) -> None:
        raw = encode(packet, version)
        length, pos = read_varint(raw, 1)
        assert len(raw) == pos + length
        assert decode(raw[0], raw[pos:], version) == packet

    survives()


def test_largest_packet_of_each_length_size_survives() -> None:
    """The remaining length grows by a byte at 128, 16,384 and 2,097,152."""
    for size in (127, 128, 16_383, 16_384, 2_097_151, 2_097_152):
        packet = Publish("t", bytes(size - 3))
        assert Decoder(V311).feed(encode(packet, V311)) == [packet]


def test_properties_are_left_out_for_mqtt_3() -> None:
    packet = Publish("t", b"x", properties=Properties(topic_alias=1, user_properties=[("a", "b")]))
    assert encode(packet, V311) == encode(Publish("t", b"x"), V311)
    will = Will("w", properties=Properties(will_delay=3))
    assert encode(Connect("c", V311, will=will), V311) == encode(
        Connect("c", V311, will=Will("w")), V311
    )


def test_connect_goes_by_its_own_version() -> None:
    packet = Connect("c", V31)
    assert encode(packet, V5) == encode(packet, V31)
    assert Decoder(V5).feed(encode(packet, V5)) == [packet]


def test_reasons_are_translated_for_mqtt_3() -> None:
    assert encode(Connack(False, Reason.NOT_AUTHORIZED), V311) == b"\x20\x02\x00\x05"
    assert encode(Connack(True), V31) == b"\x20\x02\x00\x00"
    assert encode(Suback(1, [2, Reason.NOT_AUTHORIZED]), V311) == b"\x90\x04\x00\x01\x02\x80"
    assert encode(Unsuback(1, [0, 0x11]), V311) == b"\xb0\x02\x00\x01"
    assert encode(Puback(1, Reason.QUOTA_EXCEEDED), V311) == b"\x40\x02\x00\x01"
    assert encode(Disconnect(Reason.SERVER_SHUTTING_DOWN), V311) == b"\xe0\x00"


OPTIONS = SubscriptionOptions()

OUR_MISTAKES: list[tuple[str, Version, Packet]] = [
    ("packet identifier 0", V5, Puback(0)),
    ("packet identifier too large", V5, Puback(65_536)),
    ("no identifier at QoS 1", V311, Publish("t", qos=1)),
    ("QoS 3", V311, Publish("t", qos=3, packet_id=1)),
    ("DUP at QoS 0", V311, Publish("t", dup=True)),
    ("topic too long", V311, Publish("t" * 65_536)),
    ("U+0000 in a topic", V311, Publish("a\0b")),
    ("lone surrogate in a topic", V311, Publish("\ud800")),
    ("will at QoS 3", V311, Connect(will=Will("w", qos=3))),
    ("keep alive too long", V311, Connect(keep_alive=65_536)),
    ("password without user name", V311, Connect(version=V311, password=b"x")),
    ("no filter to subscribe", V311, Subscribe(1, [])),
    ("no filter to unsubscribe", V311, Unsubscribe(1, [])),
    ("subscription at QoS 3", V311, Subscribe(1, [("a", replace(OPTIONS, qos=3))])),
    ("retain handling 3", V5, Subscribe(1, [("a", replace(OPTIONS, retain_handling=3))])),
    ("reason too large", V5, Puback(1, 256)),
    ("AUTH in MQTT 3", V311, Auth()),
    ("will delay in PUBLISH", V5, Publish("t", properties=Properties(will_delay=1))),
    ("topic alias in a will", V5, Connect(will=Will("t", properties=Properties(topic_alias=1)))),
    ("topic alias 0", V5, Publish("t", properties=Properties(topic_alias=0))),
    ("receive maximum 0", V5, Connect(properties=Properties(receive_maximum=0))),
    ("maximum QoS 2", V5, Connack(properties=Properties(maximum_qos=2))),
    (
        "subscription identifier 0",
        V5,
        Publish("t", properties=Properties(subscription_identifiers=[0])),
    ),
]


@pytest.mark.parametrize(
    ("version", "packet"), [pytest.param(*rest, id=name) for name, *rest in OUR_MISTAKES]
)
def test_packet_that_may_not_be_written_is_our_mistake(version: Version, packet: Packet) -> None:
    with pytest.raises(ValueError):
        encode(packet, version)


def test_defaults_are_not_shared() -> None:
    """Packets are mutable, so that each must have its own properties."""
    first, second = Publish("a"), Publish("b")
    first.properties.user_properties.append(("k", "v"))
    assert second.properties == Properties()
    assert Pingreq() == Pingreq()
    assert WILL not in list(PacketType)


@bounded
@given(versions.flatmap(publishes))
def test_publish_of_any_version_is_written_for_every_version(packet: Publish) -> None:
    """A broker writes one message for subscribers of each version."""
    for version in Version:
        [copy] = Decoder(version).feed(encode(packet, version))
        kept = packet.properties if version is V5 else Properties()
        assert copy == replace(packet, properties=kept)
