"""The decoder of a stream: any splitting, any truncation, any rubbish."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import MalformedPacket, MqttError, ProtocolViolation
from headgate.wire.codec import Decoder, decode, encode
from headgate.wire.fields import encode_varint, read_varint
from headgate.wire.packets import (
    Connect,
    Packet,
    Pingreq,
    Properties,
    Publish,
    Subscribe,
    SubscriptionOptions,
    Version,
)

from .strategies import bounded, conversations, packets, versions

V31, V311, V5 = Version


def write(version: Version, sent: list[Packet]) -> bytes:
    return b"".join(encode(packet, version) for packet in sent)


@bounded
@given(conversations(), st.data())
def test_stream_may_be_split_anywhere(
    conversation: tuple[Version, list[Packet]], data: st.DataObject
) -> None:
    version, sent = conversation
    stream = write(version, sent)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    decoder = Decoder(version)
    received: list[Packet] = []
    for start, end in pairwise(sorted([0, *cuts, len(stream)])):
        received += decoder.feed(stream[start:end])
    assert received == sent


@settings(bounded, max_examples=50)
@given(conversations(3))
def test_every_split_in_two_and_every_single_byte(
    conversation: tuple[Version, list[Packet]],
) -> None:
    version, sent = conversation
    stream = write(version, sent)
    for cut in range(len(stream) + 1):
        decoder = Decoder(version)
        assert decoder.feed(stream[:cut]) + decoder.feed(stream[cut:]) == sent
    decoder = Decoder(version)
    assert [packet for byte in stream for packet in decoder.feed(bytes([byte]))] == sent


@bounded
@given(versions, st.data())
def test_cut_packet_is_waited_for(version: Version, data: st.DataObject) -> None:
    raw = encode(data.draw(packets(version)), version)
    for end in range(len(raw)):
        assert Decoder(version).feed(raw[:end]) == []


@bounded
@given(versions, st.data())
def test_packet_whose_body_is_cut_is_refused_or_read(version: Version, data: st.DataObject) -> None:
    """With the remaining length corrected. Some shorter bodies are packets in their own right."""
    raw = encode(data.draw(packets(version)), version)
    _, start = read_varint(raw, 1)
    for end in range(start, len(raw)):
        try:
            packet = decode(raw[0], raw[start:end], version)
        except MqttError:
            continue
        again = encode(packet, version)
        assert decode(again[0], again[read_varint(again, 1)[1] :], version) == packet


def drain(decoder: Decoder, data: bytes) -> list[Packet]:
    """Every packet up to the first error. Anything but an `MqttError` fails the test."""
    received = []
    decoder.receive(data)
    try:
        while (packet := decoder.next_packet()) is not None:
            received.append(packet)
    except MqttError as error:
        assert 0x81 <= error.reason <= 0xA2
    return received


def read_again(received: list[Packet], version: Version) -> None:
    """What was read can be written, and means the same when it is read again."""
    for packet in received:
        if isinstance(packet, Connect):
            version = packet.version
        assert Decoder(version).feed(encode(packet, version)) == [packet]


@settings(bounded, max_examples=300)
@given(versions, st.binary(max_size=40))
def test_random_bytes_are_read_or_refused(version: Version, data: bytes) -> None:
    read_again(drain(Decoder(version), data), version)


@settings(bounded, max_examples=400)
@given(versions, st.integers(0, 255), st.binary(max_size=24))
def test_random_bodies_are_read_or_refused(version: Version, first: int, body: bytes) -> None:
    """Framed, so that random bytes get beyond the header."""
    read_again(drain(Decoder(version), bytes([first]) + encode_varint(len(body)) + body), version)


_edits = st.lists(
    st.tuples(
        st.sampled_from(["flip", "set", "insert", "delete", "copy"]),
        st.integers(0, 1 << 16),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=4,
)


@settings(bounded, max_examples=400)
@given(conversations(3), _edits)
def test_mutated_streams_are_read_or_refused(
    conversation: tuple[Version, list[Packet]], edits: list[tuple[str, int, int]]
) -> None:
    version, sent = conversation
    stream = bytearray(write(version, sent))
    for edit, where, value in edits:
        at = where % (len(stream) or 1)
        match edit:
            case "flip" if stream:
                stream[at] ^= 1 << value % 8
            case "set" if stream:
                stream[at] = value
            case "delete":
                del stream[at : at + 1 + value % 4]
            case "copy":
                stream[at:at] = stream[at : at + 1 + value % 16]
            case _:
                stream.insert(at, value)
    read_again(drain(Decoder(version), bytes(stream)), version)


def test_connect_sets_the_version_for_what_follows() -> None:
    """In the same read, before anyone could have told the decoder."""
    subscribe = Subscribe(
        1, [("a", SubscriptionOptions(1, no_local=True))], Properties(subscription_identifiers=[7])
    )
    decoder = Decoder()
    sent = [Connect("c", V5), subscribe]
    assert decoder.feed(write(V5, sent)) == sent
    assert decoder.version is V5


def test_version_may_be_set() -> None:
    decoder = Decoder(V311)
    decoder.version = V5
    packet = Publish("a", b"x", properties=Properties(message_expiry=1))
    assert decoder.feed(encode(packet, V5)) == [packet]


@pytest.mark.parametrize("header", ["c0 ffffffff", "c0 80808080", "30 ffffffff 01"])
def test_remaining_length_has_at_most_four_bytes(header: str) -> None:
    """§1.5.5; refused on the fourth byte, without waiting for a fifth."""
    with pytest.raises(MalformedPacket, match="more than four bytes"):
        Decoder(V311).feed(bytes.fromhex(header))


def test_padded_remaining_length_is_refused_by_mqtt_5() -> None:
    """[MQTT-1.5.5-1]; MQTT 3 does not say so."""
    with pytest.raises(MalformedPacket, match="longer than its value needs"):
        Decoder(V5).feed(b"\xc0\x80\x00")
    assert Decoder(V311).feed(b"\xc0\x80\x00") == [Pingreq()]


def test_packet_of_the_maximum_size_passes_and_one_byte_more_does_not() -> None:
    raw = encode(Publish("t", bytes(200)), V311)
    assert len(Decoder(V311, len(raw)).feed(raw)) == 1
    with pytest.raises(ProtocolViolation, match="larger than") as caught:
        Decoder(V311, len(raw) - 1).feed(raw[:3])  # the header is enough to know
    assert caught.value.reason == 0x95


def test_maximum_packet_size_may_change() -> None:
    decoder = Decoder(V311)
    raw = encode(Publish("t", bytes(20)), V311)
    assert len(decoder.feed(raw)) == 1
    decoder.maximum_packet_size = 10
    with pytest.raises(ProtocolViolation):
        decoder.feed(raw)


def test_nothing_is_read_after_an_error() -> None:
    decoder = Decoder(V311)
    with pytest.raises(MalformedPacket) as first:
        decoder.feed(b"\x00\x00")
    with pytest.raises(MalformedPacket) as second:
        decoder.feed(b"\xc0\x00")
    assert second.value is first.value


def test_packets_before_an_error_can_be_had() -> None:
    decoder = Decoder(V311)
    decoder.receive(b"\xc0\x00\x00\x00")
    assert decoder.next_packet() == Pingreq()
    with pytest.raises(MalformedPacket):
        decoder.next_packet()
