"""What a hostile or broken client might send: valid conversations, mutated, and plain noise."""

from __future__ import annotations

from random import Random

from headgate.wire.codec import encode
from headgate.wire.packets import (
    Auth,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    SubscriptionOptions,
    Unsubscribe,
    Version,
    Will,
)

TOPICS = ["a", "a/b", "a/b/c", "b", "", "/", "a//b", "é", "$SYS/x", "$CONTROL/x", "long/" * 20]
FILTERS = ["a", "a/b", "a/+", "a/#", "#", "+", "+/+/#", "$share/g/a/#", "$SYS/#", "a/#/b", "+a", ""]
NOTABLE = [0x00, 0x01, 0x02, 0x7F, 0x80, 0xFE, 0xFF, 0x10, 0x20, 0x30, 0x62, 0x82, 0xE0, 0xF0]


class Streams:
    """An endless source of byte streams, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)

    def next(self) -> bytes:
        rng = self.rng
        kind = rng.random()
        if kind < 0.1:
            return rng.randbytes(rng.randrange(1, 200))
        stream = self.conversation()
        if kind < 0.25:
            return stream
        for _ in range(rng.choice([1, 1, 1, 2, 5, 20])):
            stream = self.mutated(stream)
        return stream

    def conversation(self) -> bytes:
        """A CONNECT and what may follow it."""
        rng = self.rng
        version = rng.choice([Version.V31, Version.V311, Version.V5, Version.V5])
        packets: list[Packet] = [self.connect(version)]
        packets += [self.packet(version) for _ in range(rng.randrange(0, 30))]
        return b"".join(self.encoded(packet, version) for packet in packets)

    def encoded(self, packet: Packet, version: Version) -> bytes:
        try:
            return encode(packet, version)
        except (ValueError, UnicodeError):  # more than a field can hold: no such bytes exist
            return b""

    def connect(self, version: Version) -> Connect:
        rng = self.rng
        will = None
        if rng.random() < 0.3:
            will = Will(
                rng.choice(TOPICS[:5]),
                rng.randbytes(rng.randrange(20)),
                rng.randrange(3),
                rng.random() < 0.5,
                self.properties(will_delay=rng.choice([None, 0, 1, 1000])),
            )
        return Connect(
            rng.choice(["", "fuzz-1", "fuzz-2", "fuzz-3", "fuzz-4"]),
            version,
            rng.random() < 0.5,
            rng.choice([0, 1, 60, 65535]),
            rng.choice([None, "user"]),
            rng.choice([None, b"password"]) if version == Version.V5 else None,
            will,
            Properties(
                session_expiry=rng.choice([None, 0, 1, 60, 0xFFFFFFFF]),
                receive_maximum=rng.choice([None, 1, 10, 65535]),
                maximum_packet_size=rng.choice([None, 1, 20, 1000]),
                topic_alias_maximum=rng.choice([None, 0, 1, 10]),
                request_problem_information=rng.choice([None, False, True]),
                auth_method=rng.choice([None, None, None, "SCRAM-SHA-256", "x"]),
                user_properties=self.user_properties(),
            ),
        )

    def packet(self, version: Version) -> Packet:
        rng = self.rng
        number = rng.choice([1, 1, 2, 3, 65535])
        kind = rng.randrange(12)
        if kind < 5:
            qos = rng.randrange(3)
            return Publish(
                rng.choice(TOPICS),
                rng.randbytes(rng.choice([0, 1, 20, 500])),
                qos,
                rng.random() < 0.2,
                qos > 0 and rng.random() < 0.3,
                number if qos else 0,
                self.properties(topic_alias=rng.choice([None, None, 0, 1, 5, 60000])),
            )
        if kind < 7:
            wanted = [
                (
                    rng.choice(FILTERS),
                    SubscriptionOptions(
                        rng.randrange(3),
                        rng.random() < 0.2,
                        rng.random() < 0.2,
                        rng.randrange(3),
                    ),
                )
                for _ in range(rng.randrange(1, 4))
            ]
            identifiers = rng.choice([[], [], [1], [268_435_455]])
            return Subscribe(number, wanted, Properties(subscription_identifiers=identifiers))
        if kind == 7:
            return Unsubscribe(number, [rng.choice(FILTERS) for _ in range(rng.randrange(1, 4))])
        if kind == 8:
            return self.acknowledgement(number)
        if kind == 9:
            return Pingreq()
        if kind == 10 and version == Version.V5:
            return Auth(rng.choice([0, 0x18, 0x19]), Properties(auth_method="x", auth_data=b"y"))
        if kind == 11 and rng.random() < 0.3:
            return Disconnect(rng.choice([0, 4]), Properties(session_expiry=rng.choice([None, 0])))
        return self.acknowledgement(number)

    def acknowledgement(self, number: int) -> Packet:
        kinds: list[type[Puback | Pubrec | Pubrel | Pubcomp]] = [Puback, Pubrec, Pubrel, Pubcomp]
        return self.rng.choice(kinds)(number)

    def properties(self, **more: int | None) -> Properties:
        rng = self.rng
        found = Properties(
            payload_format=rng.choice([None, None, 0, 1]),
            message_expiry=rng.choice([None, None, 0, 1, 60]),
            content_type=rng.choice([None, "text"]),
            response_topic=rng.choice([None, "answer", "a/#"]),
            correlation_data=rng.choice([None, b"\x00\xff"]),
            user_properties=self.user_properties(),
        )
        for name, value in more.items():
            setattr(found, name, value)
        return found

    def user_properties(self) -> list[tuple[str, str]]:
        choice = [("", ""), ("class", "urgent"), ("class", "critical"), ("a", "b" * 200)]
        return [self.rng.choice(choice) for _ in range(self.rng.choice([0, 0, 0, 1, 3]))]

    def mutated(self, stream: bytes) -> bytes:
        """One change, of the kinds that find mistakes in parsers."""
        rng = self.rng
        data = bytearray(stream)
        if not data:
            return rng.randbytes(3)
        at = rng.randrange(len(data))
        to = min(len(data), at + rng.randrange(1, 12))
        kind = rng.randrange(8)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.choice(NOTABLE)
        elif kind == 2:
            del data[at:to]
        elif kind == 3:
            data[at:at] = data[at:to] * rng.choice([1, 2, 50])
        elif kind == 4:
            data[at:at] = rng.randbytes(to - at)
        elif kind == 5:
            del data[at:]
        elif kind == 6:
            other = self.conversation()
            data[at:] = other[rng.randrange(len(other) + 1) :]
        else:
            data[at:to] = bytes(rng.choice(NOTABLE) for _ in range(to - at))
        return bytes(data)

    def pieces(self, stream: bytes) -> list[bytes]:
        """The stream as the network may cut it."""
        rng = self.rng
        if rng.random() < 0.6:
            return [stream]
        step = rng.choice([1, 2, 7, 100])
        return [stream[at : at + step] for at in range(0, len(stream), step)]
