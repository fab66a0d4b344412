"""Receive maximum, maximum packet size and topic aliases, both ways (MQTT 5 §3.1.2.11, §4.9)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker_process import BrokerProcess

from headgate.wire.codec import encode
from headgate.wire.packets import (
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    SubscriptionOptions,
    Version,
)
from headgate.wire.reasons import Reason

from .conftest import Dial, Enter


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that takes little at a time."""
    limits = "limits: {receive_maximum: 4, packet_size: 1KiB, topic_alias: 3}"
    process = BrokerProcess(tmp_path_factory.mktemp("strict"), limits)
    process.start()
    yield process
    process.stop()


# What the client can take


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("window", [1, 3])
def test_the_clients_receive_maximum_is_kept(
    enter: Enter, name: str, qos: int, window: int
) -> None:
    """[MQTT-3.3.4-9], [MQTT-4.9.0-1], [MQTT-4.9.0-2]: no more than that unacknowledged."""
    client = enter(name, properties=Properties(receive_maximum=window))
    client.subscribe(name, qos)
    publisher = enter(f"{name}-p")
    for number in range(10):
        publisher.publish(name, b"%d" % number, qos)
    waiting: list[Publish] = []
    for number in range(10):
        while len(waiting) < min(window, 10 - number):
            waiting.append(client.expect(Publish, qos=qos))
        client.expect_nothing()
        message = waiting.pop(0)
        assert message.payload == b"%d" % number
        if qos == 1:
            client.send(Puback(message.packet_id))
        else:
            client.send(Pubrec(message.packet_id))
            client.expect(Pubrel, packet_id=message.packet_id)
            client.expect_nothing()  # the exchange counts until PUBCOMP
            client.send(Pubcomp(message.packet_id))
    client.expect_nothing()


def test_a_full_window_stops_nothing_else(enter: Enter, name: str) -> None:
    """[MQTT-3.3.4-10], [MQTT-4.9.0-3]: other packets are answered, other topics' QoS 0 goes on."""
    client = enter(name, properties=Properties(receive_maximum=1))
    client.subscribe(name, 1)
    client.subscribe(f"{name}/other", 0)
    publisher = enter(f"{name}-p")
    publisher.publish(name, b"one", 1)
    publisher.publish(name, b"two", 1)
    message = client.expect(Publish, payload=b"one")
    client.expect_nothing()
    publisher.publish(f"{name}/other", b"zero")
    client.take(payload=b"zero")
    assert client.subscribe(f"{name}/more", 1) == 1
    assert client.publish(f"{name}/more/less", b"", 2) == Reason.NO_MATCHING_SUBSCRIBERS
    client.send(Puback(message.packet_id))
    client.take(1, payload=b"two")


def test_the_window_begins_anew_with_each_connection(dial: Dial, enter: Enter, name: str) -> None:
    """§4.9: what is repeated counts; the new maximum holds."""
    wide = Properties(session_expiry=60, receive_maximum=5)
    client = enter(name, properties=wide)
    client.subscribe(name, 1)
    publisher = enter(f"{name}-p")
    for number in range(6):
        publisher.publish(name, b"%d" % number, 1)
    for number in range(5):
        client.expect(Publish, payload=b"%d" % number)
    client.expect_nothing()
    client.close()
    again = dial()
    again.connect(name, clean_start=False, properties=wide)
    for number in range(5):
        again.take(1, payload=b"%d" % number, dup=True)
    again.take(1, payload=b"5", dup=False)
    again.expect_nothing()


@pytest.mark.parametrize("qos", [1, 2])
def test_a_smaller_window_after_reconnecting_is_kept(
    dial: Dial, enter: Enter, name: str, qos: int
) -> None:
    """[MQTT-3.3.4-9], [MQTT-4.9.0-1]: what is repeated counts against the new maximum."""
    client = enter(name, properties=Properties(session_expiry=60, receive_maximum=6))
    client.subscribe(name, qos)
    publisher = enter(f"{name}-p")
    for number in range(4):
        publisher.publish(name, b"%d" % number, qos)
    sent = [client.expect(Publish, payload=b"%d" % number) for number in range(4)]
    client.close()
    for number in range(4, 8):
        publisher.publish(name, b"%d" % number, qos)
    again = dial()
    narrow = Properties(session_expiry=60, receive_maximum=2)
    again.connect(name, clean_start=False, properties=narrow)
    window = [again.expect(Publish, dup=True), again.expect(Publish, dup=True)]
    for number in range(8):
        again.expect_nothing()
        message = window.pop(0)
        assert message.payload == b"%d" % number
        assert message.dup is (number < 4)
        if number < 4:
            assert message.packet_id == sent[number].packet_id
        if qos == 1:
            again.send(Puback(message.packet_id))
        else:
            again.send(Pubrec(message.packet_id))
            again.expect(Pubrel, packet_id=message.packet_id)
            again.send(Pubcomp(message.packet_id))
        if number < 6:
            window.append(again.expect(Publish))
    again.expect_nothing()


def test_a_smaller_window_holds_for_what_was_about_to_be_sent(
    dial: Dial, enter: Enter, name: str
) -> None:
    """[MQTT-3.3.4-9]: QoS 2 messages that had an identifier but were not sent yet."""
    wide = Properties(session_expiry=60, receive_maximum=100)
    client = enter(name, properties=wide)
    client.subscribe(name, 2)
    publisher = enter(f"{name}-p")
    publisher.send(
        *[Publish(name, b"%d" % number, 2, packet_id=number + 1) for number in range(50)]
    )
    client.close()  # before or amid the delivery
    for number in range(50):
        publisher.expect(Pubrec, packet_id=number + 1)
    again = dial()
    narrow = Properties(session_expiry=60, receive_maximum=2)
    again.connect(name, clean_start=False, properties=narrow)
    for number in range(50):
        message = again.expect(Publish, payload=b"%d" % number)
        if number < 49:
            again.expect(Publish, payload=b"%d" % (number + 1))
            again.expect_nothing()
        again.close()
        again = dial()
        again.connect(name, clean_start=False, properties=narrow)
        again.take(2, payload=b"%d" % number, packet_id=message.packet_id)
        again.close()
        again = dial()
        again.connect(name, clean_start=False, properties=narrow)


def test_the_clients_maximum_packet_size_is_kept(enter: Enter, name: str) -> None:
    """[MQTT-3.1.2-24], [MQTT-3.1.2-25]: what is too large is dropped as if it had been sent."""
    client = enter(name, properties=Properties(maximum_packet_size=100, receive_maximum=2))
    client.subscribe(name, 2)
    publisher = enter(f"{name}-p")
    for qos in (0, 1, 2, 1, 2, 1):
        publisher.publish(name, b"x" * 200, qos)
        publisher.publish(name, b"small", qos)
    for qos in (0, 1, 2, 1, 2, 1):
        client.take(qos, payload=b"small")
    client.expect_nothing()


def test_the_largest_packet_that_fits_is_delivered(enter: Enter, name: str) -> None:
    """[MQTT-3.1.2-24]: the limit is that of the whole packet, and it is allowed itself."""
    limit = 100
    client = enter(name, properties=Properties(maximum_packet_size=limit))
    client.subscribe(name)
    publisher = enter(f"{name}-p")
    empty = len(encode(Publish(name, b""), Version.V5))
    publisher.publish(name, b"x" * (limit - empty + 1))
    publisher.publish(name, b"y" * (limit - empty))
    client.take(payload=b"y" * (limit - empty))


def test_a_smaller_maximum_after_reconnecting_drops_what_was_in_flight(
    dial: Dial, enter: Enter, name: str
) -> None:
    """[MQTT-3.1.2-25]: it counts as delivered, and its identifier is free."""
    client = enter(name, properties=Properties(session_expiry=60))
    client.subscribe(name, 1)
    publisher = enter(f"{name}-p")
    publisher.publish(name, b"x" * 200, 1)
    client.expect(Publish, qos=1)
    client.close()
    small = Properties(session_expiry=60, maximum_packet_size=100, receive_maximum=1)
    again = dial()
    again.connect(name, clean_start=False, properties=small)
    again.expect_nothing()
    publisher.publish(name, b"small", 1)
    again.take(1, payload=b"small")


def test_a_reason_string_that_does_not_fit_is_left_out(enter: Enter, name: str) -> None:
    """[MQTT-3.14.2-3]: the DISCONNECT itself still comes."""
    client = enter(name, properties=Properties(maximum_packet_size=40))
    client.socket.sendall(b"\x30\x05\x00\x02a#\x00")
    farewell = client.expect_dismissed(Reason.TOPIC_NAME_INVALID)
    assert farewell is not None
    assert len(encode(farewell, Version.V5)) <= 40
    tiny = enter(f"{name}-tiny", properties=Properties(maximum_packet_size=20))
    tiny.socket.sendall(b"\x00\x00")
    farewell = tiny.expect_dismissed(Reason.MALFORMED_PACKET)
    assert farewell is not None
    assert len(encode(farewell, Version.V5)) <= 20


# What the broker can take


def test_the_brokers_limits_are_told(strict: BrokerProcess, dial: Dial, name: str) -> None:
    """§3.2.2.3.3, §3.2.2.3.6, §3.2.2.3.8"""
    told = dial(port=strict.port).connect(name).properties
    assert told.receive_maximum == 4
    assert told.maximum_packet_size == 1024
    assert told.topic_alias_maximum == 3


def test_too_many_unreleased_messages_end_the_connection(
    strict: BrokerProcess, enter: Enter, name: str
) -> None:
    """§3.3.4, §4.9: 0x93, receive maximum exceeded."""
    client = enter(name, port=strict.port)
    client.send(*[Publish(name, b"", 2, packet_id=i) for i in range(1, 6)])
    for i in range(1, 5):
        client.expect(Pubrec, packet_id=i)
    client.expect_dismissed(Reason.RECEIVE_MAXIMUM_EXCEEDED)


@pytest.mark.parametrize("expiry", [0, 60])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_full_receive_maximum_is_taken(
    strict: BrokerProcess, enter: Enter, name: str, expiry: int, qos: int
) -> None:
    """§3.3.4, §4.9: exactly that many, again and again; PUBACK and PUBCOMP make room."""
    client = enter(name, port=strict.port, properties=Properties(session_expiry=expiry))
    client.subscribe(f"{name}/+", qos)
    for _ in range(5):
        client.send(*[Publish(f"{name}", b"", qos, packet_id=i) for i in range(1, 5)])
        for i in range(1, 5):
            client.expect(Puback if qos == 1 else Pubrec, packet_id=i)
        if qos == 2:
            client.send(*[Pubrel(i) for i in range(1, 5)])
            for i in range(1, 5):
                client.expect(Pubcomp, packet_id=i)
    client.expect_nothing()


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_that_wait_for_the_disk_do_not_count_twice(
    strict: BrokerProcess, enter: Enter, name: str, qos: int
) -> None:
    """§4.9: a message counts once, be its acknowledgement sent or not."""
    keeper = enter(f"{name}-keeper", port=strict.port, properties=Properties(session_expiry=60))
    keeper.subscribe(name, qos)
    client = enter(name, port=strict.port, properties=Properties(session_expiry=60))
    for _ in range(5):
        client.send(*[Publish(name, b"", qos, packet_id=i) for i in range(1, 5)])
        for i in range(1, 5):
            client.expect(Puback if qos == 1 else Pubrec, packet_id=i)
        if qos == 2:
            client.send(*[Pubrel(i) for i in range(1, 5)])
            for i in range(1, 5):
                client.expect(Pubcomp, packet_id=i)


def test_a_packet_that_is_too_large_ends_the_connection(
    strict: BrokerProcess, enter: Enter, name: str, version: Version
) -> None:
    """[MQTT-3.2.2-15], §4.13: 0x95, told from its header, before the rest arrives."""
    client = enter(name, version, port=strict.port)
    client.send(encode(Publish(name, b"x" * 2000), version)[:100])
    client.expect_dismissed(Reason.PACKET_TOO_LARGE)


def test_the_largest_packet_is_taken(
    strict: BrokerProcess, enter: Enter, name: str, version: Version
) -> None:
    """[MQTT-3.2.2-15]: the limit is that of the whole packet, and it is allowed itself."""
    client = enter(name, version, port=strict.port)
    client.subscribe(name)
    packet = Publish(name, b"")
    packet.payload = b"x" * (1024 - len(encode(Publish(name, b"x" * 200), version)) + 200)
    assert len(encode(packet, version)) == 1024
    client.send(packet)
    client.take(payload=packet.payload)


# Topic aliases


def test_a_client_may_use_topic_aliases(enter: Enter, name: str) -> None:
    """§3.3.2.3.4: learnt with a topic, used without, changed by another topic."""
    watcher = enter(f"{name}-w")
    watcher.subscribe(f"{name}/#", 1)
    client = enter(name)
    alias = Properties(topic_alias=1)
    client.publish(f"{name}/a", b"1", properties=alias)
    client.publish("", b"2", properties=alias)
    client.publish("", b"3", 1, properties=alias)
    client.publish(f"{name}/b", b"4", 1, properties=alias)
    client.publish("", b"5", properties=alias)
    topics = [watcher.receive() for _ in range(5)]
    assert all(isinstance(message, Publish) for message in topics)
    assert [(m.topic, m.payload, m.properties.topic_alias) for m in topics] == [  # type: ignore[union-attr]
        (f"{name}/a", b"1", None),  # the alias is between publisher and broker alone
        (f"{name}/a", b"2", None),
        (f"{name}/a", b"3", None),
        (f"{name}/b", b"4", None),
        (f"{name}/b", b"5", None),
    ]


def test_every_alias_up_to_the_maximum_works(
    strict: BrokerProcess, enter: Enter, name: str
) -> None:
    """[MQTT-3.2.2-17]: 1 up to the maximum that CONNACK told."""
    client = enter(name, port=strict.port)
    client.subscribe(f"{name}/+")
    for alias in (1, 2, 3):
        client.send(Publish(f"{name}/{alias}", b"", properties=Properties(topic_alias=alias)))
        client.take(topic=f"{name}/{alias}")
    for alias in (3, 1, 2):
        client.send(Publish("", b"", properties=Properties(topic_alias=alias)))
        client.take(topic=f"{name}/{alias}")


def test_an_alias_above_the_maximum_ends_the_connection(
    strict: BrokerProcess, enter: Enter, name: str
) -> None:
    """[MQTT-3.3.2-9]: 0x94."""
    client = enter(name, port=strict.port)
    client.send(Publish(name, b"", properties=Properties(topic_alias=4)))
    client.expect_dismissed(Reason.TOPIC_ALIAS_INVALID)


def test_an_alias_of_0_ends_the_connection(enter: Enter, name: str) -> None:
    """[MQTT-3.3.2-8]: 0x94."""
    client = enter(name)
    client.send(b"\x30\x07\x00\x01a\x03\x23\x00\x00")
    client.expect_dismissed(Reason.TOPIC_ALIAS_INVALID)


def test_an_unknown_alias_ends_the_connection(enter: Enter, name: str) -> None:
    """§3.3.2.3.4: a protocol error."""
    client = enter(name)
    client.send(Publish("", b"", properties=Properties(topic_alias=1)))
    client.expect_dismissed(Reason.PROTOCOL_ERROR)


def test_aliases_last_as_long_as_the_connection(dial: Dial, enter: Enter, name: str) -> None:
    """[MQTT-3.3.2-7]: not as long as the session."""
    lasting = Properties(session_expiry=60)
    client = enter(name, properties=lasting)
    client.publish(f"{name}/a", b"", properties=Properties(topic_alias=1))
    client.disconnect()
    again = dial()
    again.connect(name, clean_start=False, properties=lasting)
    again.send(Publish("", b"", properties=Properties(topic_alias=1)))
    again.expect_dismissed(Reason.PROTOCOL_ERROR)


def test_the_broker_uses_aliases_where_it_may(enter: Enter, name: str) -> None:
    """[MQTT-3.1.2-26], [MQTT-3.3.2-11]: never above the client's maximum, each told first."""
    client = enter(name, properties=Properties(topic_alias_maximum=2))
    client.subscribe(f"{name}/+", 1)
    publisher = enter(f"{name}-p")
    known: dict[int, str] = {}
    for turn in range(3):
        for topic in ("a", "b", "c", "d"):
            publisher.publish(f"{name}/{topic}", b"%d" % turn, turn % 2)
            message = client.take(turn % 2, payload=b"%d" % turn)
            alias = message.properties.topic_alias
            if alias is not None:
                assert 1 <= alias <= 2
                if message.topic:
                    known[alias] = message.topic
                assert known[alias] == f"{name}/{topic}"
            else:
                assert message.topic == f"{name}/{topic}"
    assert known


def test_the_broker_uses_no_alias_unasked(enter: Enter, name: str) -> None:
    """[MQTT-3.1.2-27]: an absent or zero maximum means none."""
    for maximum in (None, 0):
        client = enter(name, properties=Properties(topic_alias_maximum=maximum))
        client.subscribe(name)
        for _ in range(3):
            client.send(Publish(name, b""))
            assert client.take(topic=name).properties.topic_alias is None


def test_an_alias_is_not_given_by_a_message_that_was_not_sent(enter: Enter, name: str) -> None:
    """[MQTT-3.3.2-12], [MQTT-3.1.2-25]: the first one is dropped for its size."""
    limits = Properties(topic_alias_maximum=5, maximum_packet_size=100)
    client = enter(name, properties=limits)
    client.subscribe(name)
    publisher = enter(f"{name}-p")
    publisher.publish(name, b"x" * 200)
    publisher.publish(name, b"small")
    message = client.take(payload=b"small")
    assert message.topic == name


def test_aliases_begin_anew_with_each_connection(dial: Dial, enter: Enter, name: str) -> None:
    """[MQTT-3.3.2-7]: also those of the broker, also for what is repeated."""
    limits = Properties(topic_alias_maximum=5, session_expiry=60)
    client = enter(name, properties=limits)
    client.subscribe(name, 1)
    publisher = enter(f"{name}-p")
    publisher.publish(name, b"one", 1)
    publisher.publish(name, b"two", 1)
    client.expect(Publish, topic=name)
    client.expect(Publish)
    client.close()
    again = dial()
    again.connect(name, clean_start=False, properties=limits)
    again.take(1, payload=b"one", topic=name)


def test_version_3_clients_have_no_window_of_their_own(enter: Enter, name: str) -> None:
    """3.1.1 §4.4: nothing to tell it; a whole burst is delivered."""
    client = enter(name, Version.V311)
    client.subscribe(name, 1)
    publisher = enter(f"{name}-p", Version.V311)
    for _ in range(50):
        publisher.publish(name, b"x", 1)
    for _ in range(50):
        client.expect(Publish, qos=1)
    client.send(Subscribe(1, [(name, SubscriptionOptions())]))
