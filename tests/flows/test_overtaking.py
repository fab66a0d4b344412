"""However a stream of packets is cut and mixed with others', each message comes exactly once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from headgate.config import Configuration, Urgency
from headgate.wire.codec import encode
from headgate.wire.packets import (
    Packet,
    Pingreq,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Version,
)

from .scene import CRITICAL_TYPE, URGENT_TYPE, Client, Scene, claimed, emergency

TYPES = {"urgent": URGENT_TYPE, "critical": CRITICAL_TYPE}


@dataclass(frozen=True)
class Said:
    """A message of a publisher, and how it is said."""

    rank: str
    prefixed: bool
    qos: int
    again: int
    """How often it is repeated at once, as a duplicate."""
    alias: bool
    size: int
    topic: str

    def packets(self, version: Version, packet_id: int, payload: bytes) -> list[bytes]:
        one = self._packet(version, packet_id, payload, False)
        if not self.qos or not self.again:
            return [one]
        repeated = self._packet(version, packet_id, payload, True)
        return [one, *[repeated] * self.again]

    def _packet(self, version: Version, packet_id: int, payload: bytes, dup: bool) -> bytes:
        packet_id = packet_id if self.qos else 0
        if version is Version.V311 and self.rank and not self.prefixed:
            return emergency(TYPES[self.rank], self.topic, payload, self.qos, packet_id, dup)
        topic = f"${self.rank}/{self.topic}" if self.rank and self.prefixed else self.topic
        claims = self.rank and not self.prefixed and version is Version.V5
        properties = claimed(self.rank) if claims else Properties()
        if self.alias:
            properties.topic_alias = 1 + len(self.topic)
        packet = Publish(topic, payload, self.qos, False, dup, packet_id, properties)
        return encode(packet, version)


said = st.builds(
    Said,
    rank=st.sampled_from(["", "", "urgent", "critical"]),
    prefixed=st.booleans(),
    qos=st.integers(0, 2),
    # At QoS 1 a repetition may be delivered again, so only QoS 2 can be counted.
    again=st.just(0),
    alias=st.booleans(),
    size=st.sampled_from([0, 1, 100, 130, 3000]),
    topic=st.sampled_from(["t", "a/b", "alarm"]),
)
said = said.flatmap(
    lambda one: (
        st.integers(0, 2).map(lambda again: Said(**{**vars(one), "again": again}))
        if one.qos == 2
        else st.just(one)
    )
)
streams = st.lists(
    st.tuples(st.sampled_from([Version.V311, Version.V5]), st.lists(said, max_size=12)),
    min_size=1,
    max_size=3,
)


def payload_of(publisher: int, number: int, one: Said) -> bytes:
    return b"%d.%d." % (publisher, number) + b"x" * one.size


def cut(data: bytes, places: list[float]) -> list[bytes]:
    """A stream in pieces, as the network might bring it."""
    ends = sorted({int(place * len(data)) for place in places} | {len(data)})
    starts = [0, *ends]
    return [data[start:end] for start, end in zip(starts, ends, strict=False) if end > start]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    streams,
    st.lists(st.lists(st.floats(0, 1), max_size=6), min_size=3, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=20),
    st.sampled_from([Version.V311, Version.V5]),
)
def test_each_message_comes_exactly_once(
    streams: list[tuple[Version, list[Said]]],
    places: list[list[float]],
    order: list[tuple[int, bool]],
    version: Version,
) -> None:
    scene = Scene(Configuration(urgency=Urgency(rate=0)))
    subscriber = scene.connect("s", version)
    subscriber.subscribe("#", 2)
    publishers = [
        scene.connect(f"p{number}", version, acknowledges=False)
        for number, (version, _) in enumerate(streams)
    ]
    pieces = []
    for number, (spoken, messages) in enumerate(streams):
        data = b"".join(
            packet
            for index, one in enumerate(messages)
            for packet in one.packets(spoken, index + 1, payload_of(number, index, one))
        )
        pieces.append(cut(data, places[number]))
    bring(scene, publishers, pieces, order)
    check_received(subscriber, streams)
    for publisher, (_, messages) in zip(publishers, streams, strict=True):
        check_answers(publisher, messages)


def bring(
    scene: Scene, publishers: list[Client], pieces: list[list[bytes]], order: list[tuple[int, bool]]
) -> None:
    """Bring the pieces in any order of the publishers, some several in one turn."""
    together: list[Client] = []

    def process() -> None:
        if scene.broker.pool.hurry:
            event("something urgent was written at once")
        for client in dict.fromkeys(together):
            client.channel.process(scene.now)
        together.clear()
        scene.turn()

    for number, ends_turn in order:
        if number < len(publishers) and pieces[number]:
            client = publishers[number]
            if client.channel.take(pieces[number].pop(0), scene.now):
                together.append(client)
        if ends_turn:
            process()
    for client, rest in zip(publishers, pieces, strict=True):
        together += [client for piece in rest if client.channel.take(piece, scene.now)]
    process()
    for client in publishers:
        assert client.open
        client.say(Pingreq())
    scene.turn()


def check_received(subscriber: Client, streams: list[tuple[Version, list[Said]]]) -> None:
    got = subscriber.take(Publish)
    expected = {
        payload_of(publisher, number, one): one
        for publisher, (_, messages) in enumerate(streams)
        for number, one in enumerate(messages)
    }
    assert sorted(message.payload for message in got) == sorted(expected)
    ordered: dict[tuple[bytes, str, int], list[int]] = defaultdict(list)
    for message in got:
        one = expected[message.payload]
        assert message.topic == one.topic
        qos = {"urgent": 0, "critical": 2, "": one.qos}[one.rank]
        assert message.qos == qos
        publisher, number, _ = message.payload.split(b".", 2)
        if not one.rank:  # [MQTT-4.6.0-5]
            ordered[publisher, one.topic, one.qos].append(int(number))
    for numbers in ordered.values():
        assert numbers == sorted(numbers)


def check_answers(publisher: Client, messages: list[Said]) -> None:
    """One answer for each packet, in their order [MQTT-4.6.0-2]."""
    expected: list[tuple[type[Packet], int]] = []
    for number, one in enumerate(messages):
        if one.qos:
            answer = Puback if one.qos == 1 else Pubrec
            expected += [(answer, number + 1)] * (1 + one.again)
    answers = [
        (type(packet), packet.packet_id)
        for packet in publisher.heard
        if isinstance(packet, Puback | Pubrec)
    ]
    assert answers == expected
