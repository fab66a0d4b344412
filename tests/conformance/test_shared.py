"""Shared subscriptions (MQTT 5 §4.8.2)."""

from __future__ import annotations

import select
from collections import Counter

import pytest

from headgate.wire.packets import (
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Unsuback,
    Unsubscribe,
    Version,
)
from headgate.wire.reasons import Reason

from .client import Client
from .conftest import Dial, Enter


def drain(client: Client) -> list[Publish]:
    """All that is on its way to a client, acknowledged with PUBACK where that is due."""
    client.send(Pingreq())
    got: list[Publish] = []
    while not isinstance(packet := client.receive(), Pingresp):
        assert isinstance(packet, Publish)
        got.append(packet)
        if packet.qos == 1:
            client.send(Puback(packet.packet_id))
    return got


def test_each_message_goes_to_one_member(enter: Enter, name: str, version: Version) -> None:
    """§4.8.2: to one of the group, and to each in its turn; 3.1.1 clients may share too."""
    members = [enter(f"{name}-{number}", version) for number in range(3)]
    for member in members:
        member.subscribe(f"$share/group/{name}/+", 1)
    publisher = enter(f"{name}-p", version)
    for number in range(30):
        publisher.publish(f"{name}/{number % 2}", b"%d" % number, 1)
    got = [drain(member) for member in members]
    assert sorted(int(m.payload) for part in got for m in part) == list(range(30))
    assert all(part for part in got)


def test_every_group_gets_its_copy(enter: Enter, name: str) -> None:
    """§4.8.2: groups are independent of each other and of ordinary subscriptions."""
    first, second, plain = enter(f"{name}-1"), enter(f"{name}-2"), enter(f"{name}-3")
    first.subscribe(f"$share/one/{name}")
    second.subscribe(f"$share/two/{name}")
    plain.subscribe(name)
    enter(f"{name}-p").publish(name, b"x", 1)
    for client in (first, second, plain):
        client.take(payload=b"x")
        client.expect_nothing()


def test_a_group_name_is_not_a_filter(enter: Enter, name: str) -> None:
    """§4.8.2: the same group with another filter is another subscription."""
    first, second = enter(f"{name}-1"), enter(f"{name}-2")
    first.subscribe(f"$share/group/{name}/+")
    second.subscribe(f"$share/group/{name}/#")
    enter(f"{name}-p").publish(f"{name}/a", b"x", 1)
    first.take(payload=b"x")
    second.take(payload=b"x")


def test_one_client_may_share_and_subscribe(enter: Enter, name: str) -> None:
    """§4.8.2: then it gets a copy for each."""
    client = enter(name)
    client.subscribe(name, identifier=1)
    client.subscribe(f"$share/group/{name}", identifier=2)
    enter(f"{name}-p").publish(name, b"x")
    told = [client.take(payload=b"x").properties.subscription_identifiers for _ in range(2)]
    assert sorted(told) == [[1], [2]]


@pytest.mark.parametrize(
    "topic_filter",
    ["$share//t", "$share/g", "$share/g/", "$share/+/t", "$share/#/t", "$share/g+/t", "$share/"],
)
def test_what_is_no_shared_filter_is_refused(enter: Enter, name: str, topic_filter: str) -> None:
    """[MQTT-4.8.2-1], [MQTT-4.8.2-2]"""
    assert enter(name).subscribe(topic_filter) == Reason.TOPIC_FILTER_INVALID


def test_each_member_has_its_granted_qos(enter: Enter, name: str) -> None:
    """[MQTT-4.8.2-3]"""
    members = {qos: enter(f"{name}-{qos}") for qos in (0, 1, 2)}
    for qos, member in members.items():
        member.subscribe(f"$share/group/{name}", qos)
    publisher = enter(f"{name}-p")
    for _ in range(12):
        publisher.publish(name, b"x", 1)
    seen: Counter[int] = Counter()
    for qos, member in members.items():
        for message in drain(member):
            assert message.qos == min(qos, 1)
            seen[qos] += 1
    assert seen.total() == 12
    assert set(seen) == {0, 1, 2}


def test_an_absent_member_does_not_hold_messages_back(enter: Enter, name: str) -> None:
    """§4.8.2: others are connected, so they get everything."""
    absent = enter(f"{name}-absent", properties=Properties(session_expiry=60))
    absent.subscribe(f"$share/group/{name}", 1)
    present = enter(f"{name}-present")
    present.subscribe(f"$share/group/{name}", 1)
    absent.close()
    publisher = enter(f"{name}-p")
    drained = len(drain(present))
    for _ in range(10):
        publisher.publish(name, b"x", 1)
    assert drained + len(drain(present)) == 10


def test_messages_wait_for_an_absent_group(enter: Enter, name: str) -> None:
    """§4.8.2, §4.1: with nobody there, QoS 1 waits in a session."""
    lasting = Properties(session_expiry=60)
    member = enter(name, properties=lasting)
    member.subscribe(f"$share/group/{name}", 1)
    member.disconnect()
    publisher = enter(f"{name}-p")
    for number in range(5):
        publisher.publish(name, b"%d" % number, 1)
    again = enter(name, clean_start=False, properties=lasting)
    for number in range(5):
        again.take(1, payload=b"%d" % number)


def test_qos_2_stays_with_its_member(dial: Dial, enter: Enter, name: str) -> None:
    """[MQTT-4.8.2-4]: the delivery is completed to the same client when it reconnects."""
    lasting = Properties(session_expiry=60)
    members = {n: enter(f"{name}-{n}", properties=lasting) for n in (0, 1)}
    for member in members.values():
        member.subscribe(f"$share/group/{name}", 2)
    enter(f"{name}-p").publish(name, b"once", 2)
    ready = select.select([member.socket for member in members.values()], [], [], 5)[0]
    assert len(ready) == 1
    receiver = next(n for n, member in members.items() if member.socket is ready[0])
    message = members[receiver].expect(Publish, payload=b"once", qos=2)
    members[receiver].close()
    again = dial()
    again.connect(f"{name}-{receiver}", clean_start=False, properties=lasting)
    again.take(2, payload=b"once", dup=True, packet_id=message.packet_id)
    members[1 - receiver].expect_silence(0.3)


def test_a_refused_message_goes_to_nobody_else(enter: Enter, name: str) -> None:
    """[MQTT-4.8.2-6]"""
    first = enter(f"{name}-1")
    first.subscribe(f"$share/group/{name}", 2)
    enter(f"{name}-p").publish(name, b"x", 2)
    message = first.expect(Publish, payload=b"x", qos=2)
    second = enter(f"{name}-2")
    second.subscribe(f"$share/group/{name}", 2)
    first.send(Pubrec(message.packet_id, Reason.QUOTA_EXCEEDED))
    first.expect_nothing()
    second.expect_nothing()


def test_leaving_the_group(enter: Enter, name: str) -> None:
    """[MQTT-3.10.4-1]: by the whole filter; the others go on."""
    first, second = enter(f"{name}-1"), enter(f"{name}-2")
    for client in (first, second):
        client.subscribe(f"$share/group/{name}", 1)
    first.send(Unsubscribe(50, [name, f"$share/group/{name}"]))
    first.expect(Unsuback, reasons=[Reason.NO_SUBSCRIPTION_EXISTED, 0])
    publisher = enter(f"{name}-p")
    for _ in range(4):
        publisher.publish(name, b"x", 1)
    assert len(drain(second)) == 4
    first.expect_nothing()


def test_a_group_without_members_matches_nobody(enter: Enter, name: str) -> None:
    """§3.4.2.1: 0x10 again when the last one left."""
    client = enter(name)
    publisher = enter(f"{name}-p")
    client.subscribe(f"$share/group/{name}", 1)
    assert publisher.publish(name, b"x", 1) == Reason.SUCCESS
    client.take(1)
    client.disconnect()
    assert publisher.publish(name, b"x", 1) == Reason.NO_MATCHING_SUBSCRIBERS


def test_shared_dollar_topics(enter: Enter, name: str) -> None:
    """[MQTT-4.7.2-1]: `$share/g/#` does not match what `#` does not."""
    client = enter(name)
    client.subscribe("$share/group/#")
    publisher = enter(f"{name}-p")
    publisher.publish(f"$else/{name}", b"hidden")
    publisher.publish(name, b"x")
    client.take(topic=name)
