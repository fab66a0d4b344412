"""Sessions: their beginning, their end, and who owns them (MQTT 5 §3.1.2.4, §3.1.4, §4.1)."""

from __future__ import annotations

import time

import pytest
from broker_process import StartBroker

from headgate.wire.packets import (
    Connack,
    Connect,
    Disconnect,
    Properties,
    Puback,
    Publish,
    Version,
)
from headgate.wire.reasons import Reason

from .client import Client
from .conftest import Dial, Enter

LASTING = Properties(session_expiry=60)


def persistent(client: Client, client_id: str, **fields: object) -> Connack:
    """Connect to a session that outlives the connection, in either version."""
    if client.version is Version.V5:
        fields.setdefault("properties", LASTING)
    return client.connect(client_id, clean_start=False, **fields)


def test_a_session_is_found_again(dial: Dial, name: str, version: Version) -> None:
    """[MQTT-3.1.2-5], [MQTT-3.2.2-3]: subscriptions hold, and session present says so."""
    first = dial(version)
    assert persistent(first, name).session_present is False
    first.subscribe(name, 1)
    first.disconnect()
    second = dial(version)
    assert persistent(second, name).session_present is True
    second.send(Publish(name, b"still subscribed"))
    second.expect(Publish, payload=b"still subscribed")


def test_a_clean_start_forgets_the_session(dial: Dial, name: str, version: Version) -> None:
    """[MQTT-3.1.2-4], [MQTT-3.2.2-2]: old subscriptions and messages are gone."""
    first = dial(version)
    persistent(first, name)
    first.subscribe(name, 1)
    first.disconnect()
    dial(version).connect(f"{name}-publisher")
    second = dial(version)
    assert second.connect(name, clean_start=True).session_present is False
    second.publish(name, b"nobody", 1)
    second.expect_nothing()


def test_a_clean_session_of_version_3_does_not_last(dial: Dial, name: str) -> None:
    """3.1.1 [MQTT-3.1.2-6]: it ends with its connection."""
    first = dial(Version.V311)
    first.connect(name, clean_start=True)
    first.subscribe(name, 1)
    first.disconnect()
    assert dial(Version.V311).connect(name, clean_start=False).session_present is False


def test_without_an_expiry_the_session_ends_with_its_connection(dial: Dial, name: str) -> None:
    """§3.1.2.11.2: an absent interval is 0, and 0 ends the session."""
    for properties in (Properties(), Properties(session_expiry=0)):
        first = dial()
        first.connect(name, properties=properties)
        first.subscribe(name, 1)
        first.disconnect()
        assert dial().connect(name, clean_start=False).session_present is False


def test_a_session_ends_when_its_expiry_passes(dial: Dial, enter: Enter, name: str) -> None:
    """[MQTT-3.1.2-23]: kept until then, forgotten after."""
    first = dial()
    first.connect(name, properties=Properties(session_expiry=1))
    first.subscribe(name, 1)
    first.close()
    publisher = enter(f"{name}-publisher")
    assert publisher.publish(name, b"kept", 1) == Reason.SUCCESS
    deadline = time.monotonic() + 5
    while publisher.publish(name, b"kept", 1) == Reason.SUCCESS:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert dial().connect(name, clean_start=False).session_present is False


def test_a_client_that_returns_in_time_keeps_its_session(dial: Dial, name: str) -> None:
    """§3.1.2.11.2: the interval begins anew with each end of the connection."""
    for turn in range(4):
        client = dial()
        connack = client.connect(name, clean_start=False, properties=Properties(session_expiry=1))
        assert connack.session_present is (turn > 0)
        time.sleep(0.4)
        client.close()


def test_disconnect_can_change_the_expiry(dial: Dial, name: str) -> None:
    """§3.14.2.2.2: the interval in DISCONNECT replaces that of CONNECT."""
    first = dial()
    first.connect(name, properties=LASTING)
    first.disconnect(session_expiry=0)
    assert dial().connect(name, clean_start=False).session_present is False


def test_disconnect_can_prolong_the_expiry(dial: Dial, name: str) -> None:
    """§3.14.2.2.2"""
    first = dial()
    first.connect(name, properties=Properties(session_expiry=1))
    first.disconnect(session_expiry=60)
    time.sleep(1.3)
    assert dial().connect(name, clean_start=False).session_present is True


def test_disconnect_cannot_make_a_session_last(enter: Enter, name: str) -> None:
    """[MQTT-3.1.2-23], §3.14.2.2.2: from 0 to anything else is a protocol error."""
    client = enter(name)
    client.send(Disconnect(0, Properties(session_expiry=10)))
    client.expect_dismissed(Reason.PROTOCOL_ERROR)


def test_the_second_connection_takes_the_session_over(
    dial: Dial, name: str, version: Version
) -> None:
    """[MQTT-3.1.4-3]: the first one is told 0x8E and closed, the second finds the session."""
    first = dial(version)
    persistent(first, name)
    first.subscribe(name)
    second = dial(version)
    assert persistent(second, name).session_present is True
    first.expect_dismissed(Reason.SESSION_TAKEN_OVER)
    second.send(Publish(name, b"mine now"))
    second.expect(Publish, payload=b"mine now")


def test_what_is_taken_over_is_not_lost(dial: Dial, enter: Enter, name: str) -> None:
    """[MQTT-3.1.4-3], [MQTT-4.4.0-1]: the new connection gets what the old left unacknowledged."""
    first = dial()
    persistent(first, name)
    first.subscribe(name, 1)
    enter(f"{name}-publisher").publish(name, b"one", 1)
    unacknowledged = first.expect(Publish, payload=b"one", qos=1)
    second = dial()
    persistent(second, name)
    second.take(1, payload=b"one", dup=True, packet_id=unacknowledged.packet_id)


def test_a_take_over_with_clean_start_begins_anew(dial: Dial, name: str, version: Version) -> None:
    """[MQTT-3.1.2-4], [MQTT-3.1.4-3]"""
    first = dial(version)
    persistent(first, name)
    first.subscribe(name)
    second = dial(version)
    assert second.connect(name, clean_start=True).session_present is False
    first.expect_dismissed(Reason.SESSION_TAKEN_OVER)
    second.publish(name, b"nobody")


def test_a_session_moves_between_versions(dial: Dial, enter: Enter, name: str) -> None:
    """§4.1: the session is the client id's, whatever its client speaks."""
    first = dial(Version.V311)
    first.connect(name, clean_start=False)
    first.subscribe(name, 1)
    first.disconnect()
    enter(f"{name}-publisher").publish(name, b"waiting", 1)
    second = dial(Version.V5)
    assert persistent(second, name).session_present is True
    second.take(1, payload=b"waiting")


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_wait_for_a_disconnected_client(
    dial: Dial, enter: Enter, name: str, version: Version, qos: int
) -> None:
    """[MQTT-4.5.0-1], 3.1.1 [MQTT-3.1.2-5]: QoS 1 and 2 wait, and come in order."""
    subscriber = dial(version)
    persistent(subscriber, name)
    subscriber.subscribe(name, qos)
    subscriber.disconnect()
    publisher = enter(f"{name}-publisher", version)
    for number in range(20):
        publisher.publish(name, b"%d" % number, qos)
    again = dial(version)
    persistent(again, name)
    for number in range(20):
        again.take(qos, payload=b"%d" % number, dup=False)
    again.expect_nothing()


def test_the_broker_prolongs_no_session_by_itself(dial: Dial, name: str) -> None:
    """§3.2.2.3.2: CONNACK has an expiry only where it is not what was asked for."""
    connack = dial().connect(name, properties=Properties(session_expiry=1234))
    assert connack.properties.session_expiry is None


def test_the_broker_can_shorten_a_session(start_broker: StartBroker, dial: Dial, name: str) -> None:
    """§3.2.2.3.2: then CONNACK says what counts."""
    short = start_broker("limits: {session_expiry_max: 30s}")
    client = dial(port=short.port)
    connack = client.connect(name, properties=Properties(session_expiry=0xFFFFFFFF))
    assert connack.properties.session_expiry == 30


def test_two_unfinished_connections_do_not_meet(dial: Dial, name: str) -> None:
    """[MQTT-3.1.4-3] is about client ids, not about connections."""
    first, second = dial(), dial()
    first.connect(f"{name}-a")
    second.connect(f"{name}-b")
    first.expect_nothing()
    second.expect_nothing()


def test_acknowledgements_of_another_session_change_nothing(
    dial: Dial, enter: Enter, name: str
) -> None:
    """§4.1: packet identifiers belong to a session."""
    subscriber = dial()
    persistent(subscriber, name)
    subscriber.subscribe(name, 1)
    enter(f"{name}-publisher").publish(name, b"one", 1)
    message = subscriber.expect(Publish, qos=1)
    stranger = enter(f"{name}-stranger")
    stranger.send(Puback(message.packet_id))
    stranger.expect_nothing()
    subscriber.close()
    again = dial()
    persistent(again, name)
    again.take(1, payload=b"one", dup=True, packet_id=message.packet_id)


def test_a_refused_connection_has_no_session_present(dial: Dial, name: str) -> None:
    """[MQTT-3.2.2-6]: the flag is 0 with any failure."""
    first = dial()
    persistent(first, name)
    first.disconnect()
    second = dial()
    second.send(
        Connect(name, clean_start=False, properties=Properties(auth_method="no such method"))
    )
    second.expect(Connack, reason=Reason.BAD_AUTHENTICATION_METHOD, session_present=False)
    second.expect_closed()
