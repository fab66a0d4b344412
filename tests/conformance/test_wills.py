"""Wills: when they are published, when not, and as what (MQTT 5 §3.1.2.5, §3.1.3.2, §3.14.4)."""

from __future__ import annotations

import time

import pytest

from headgate.wire.packets import Disconnect, Pingreq, Properties, Publish, Version, Will
from headgate.wire.reasons import Reason

from .client import Client
from .conftest import Dial, Enter


@pytest.fixture
def watcher(enter: Enter, name: str, version: Version) -> Client:
    """Sees what is published to the will's topic."""
    client = enter(f"{name}-watcher", version)
    client.subscribe(name, 2)
    return client


@pytest.fixture
def watcher5(enter: Enter, name: str) -> Client:
    client = enter(f"{name}-watcher")
    client.subscribe(name, 2, retain_as_published=True)
    return client


def delayed(topic: str, seconds: int) -> Will:
    return Will(topic, b"gone", properties=Properties(will_delay=seconds))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_lost_connection_publishes_the_will(
    enter: Enter, watcher: Client, name: str, version: Version, qos: int
) -> None:
    """[MQTT-3.1.2-7], [MQTT-3.1.2-8]: once, at its QoS."""
    enter(name, version, will=Will(name, b"gone", qos)).close()
    watcher.take(qos, topic=name, payload=b"gone", retain=False)
    watcher.expect_nothing()


def test_an_empty_will_is_published(
    enter: Enter, watcher: Client, name: str, version: Version
) -> None:
    """3.1.1 [MQTT-3.1.3-11] allows a payload of no bytes."""
    enter(name, version, will=Will(name, b"")).close()
    watcher.take(payload=b"")


def test_a_disconnect_forgets_the_will(
    enter: Enter, watcher: Client, name: str, version: Version
) -> None:
    """[MQTT-3.14.4-3], 3.1.1 [MQTT-3.1.2-10]"""
    enter(name, version, will=Will(name, b"gone")).disconnect()
    watcher.expect_nothing()


def test_a_disconnect_can_ask_for_the_will(enter: Enter, watcher5: Client, name: str) -> None:
    """§3.14.2.1: reason 0x04 publishes it."""
    client = enter(name, will=Will(name, b"gone"))
    client.disconnect(Reason.DISCONNECT_WITH_WILL)
    watcher5.take(payload=b"gone")


@pytest.mark.parametrize("reason", [Reason.UNSPECIFIED_ERROR, Reason.PROTOCOL_ERROR])
def test_a_disconnect_for_any_other_reason_publishes_the_will(
    enter: Enter, watcher5: Client, name: str, reason: Reason
) -> None:
    """[MQTT-3.1.2-10], [MQTT-3.14.4-3]: only 0x00 takes it back."""
    enter(name, will=Will(name, b"gone")).disconnect(reason)
    watcher5.take(payload=b"gone")


def test_a_disconnect_that_ends_the_session_publishes_a_delayed_will(
    enter: Enter, watcher5: Client, name: str
) -> None:
    """[MQTT-3.1.2-8], §3.14.2.2.2: the session ends with the connection after all."""
    client = enter(name, will=delayed(name, 60), properties=Properties(session_expiry=60))
    client.disconnect(Reason.DISCONNECT_WITH_WILL, session_expiry=0)
    watcher5.take(payload=b"gone")


def test_silence_publishes_the_will(
    enter: Enter, watcher: Client, name: str, version: Version
) -> None:
    """[MQTT-3.1.2-8], [MQTT-3.1.2-22]: the keep alive passed one and a half times."""
    started = time.monotonic()
    client = enter(name, version, keep_alive=1, will=Will(name, b"silent"))
    watcher.take(payload=b"silent")
    assert time.monotonic() - started > 1.3
    client.expect_dismissed(Reason.KEEP_ALIVE_TIMEOUT)


def test_a_protocol_error_publishes_the_will(
    enter: Enter, watcher: Client, name: str, version: Version
) -> None:
    """[MQTT-3.1.2-8]: the broker closes because of an error."""
    client = enter(name, version, will=Will(name, b"broke the rules"))
    client.send(b"\x00\x00")
    client.expect_dismissed(Reason.MALFORMED_PACKET)
    watcher.take(payload=b"broke the rules")


def test_a_take_over_publishes_the_will(
    enter: Enter, watcher: Client, name: str, version: Version
) -> None:
    """[MQTT-3.1.4-3], §3.1.2.5: the first connection is closed without DISCONNECT."""
    enter(name, version, will=Will(name, b"taken over"))
    enter(name, version)
    watcher.take(payload=b"taken over")


def test_a_will_is_published_only_once(
    enter: Enter, watcher: Client, name: str, version: Version
) -> None:
    """[MQTT-3.1.2-10]: it is removed once published."""
    enter(name, version, will=Will(name, b"gone")).close()
    watcher.take(payload=b"gone")
    enter(name, version).close()
    enter(name, version).disconnect()
    watcher.expect_nothing()


def test_the_next_connection_has_its_own_will_or_none(
    enter: Enter, watcher: Client, name: str, version: Version
) -> None:
    """[MQTT-3.1.2-7]: the will belongs to the connection."""
    enter(name, version, will=Will(name, b"first")).disconnect()
    enter(name, version, will=Will(name, b"second")).close()
    watcher.take(payload=b"second")
    watcher.expect_nothing()


def test_a_will_can_be_retained(enter: Enter, name: str, version: Version) -> None:
    """[MQTT-3.1.2-14], [MQTT-3.1.2-15]"""
    watcher = enter(f"{name}-watcher", version)
    watcher.subscribe(f"{name}/#")
    enter(f"{name}-a", version, will=Will(f"{name}/kept", b"gone", retain=True)).close()
    enter(f"{name}-b", version, will=Will(f"{name}/fleeting", b"gone", retain=False)).close()
    assert {watcher.take(retain=False).topic for _ in range(2)} == {
        f"{name}/kept",
        f"{name}/fleeting",
    }
    late = enter(f"{name}-late", version)
    late.subscribe(f"{name}/#")
    late.take(topic=f"{name}/kept", payload=b"gone", retain=True)
    late.expect_nothing()


def test_a_will_keeps_its_properties(enter: Enter, watcher5: Client, name: str) -> None:
    """§3.1.3.2, [MQTT-3.1.3-10]: all but the delay are forwarded, user properties in order."""
    said = Properties(
        payload_format=1,
        message_expiry=60,
        content_type="text/plain",
        response_topic="answer/here",
        correlation_data=b"\x00\x01",
        user_properties=[("b", "2"), ("a", "1"), ("b", "1")],
    )
    enter(name, will=Will(name, b"gone", properties=said)).close()
    assert watcher5.take(payload=b"gone").properties == said


def test_a_delayed_will_waits(enter: Enter, watcher5: Client, name: str) -> None:
    """§3.1.3.2.2: published when the delay has passed, if the session lasts."""
    enter(name, will=delayed(name, 1), properties=Properties(session_expiry=60)).close()
    lost = time.monotonic()
    watcher5.expect_nothing()
    watcher5.take(payload=b"gone")
    assert 0.8 < time.monotonic() - lost < 4


def test_the_end_of_the_session_publishes_a_delayed_will(
    enter: Enter, watcher5: Client, name: str
) -> None:
    """[MQTT-3.1.2-8], §3.1.3.2.2: whichever comes first, the delay or the session's end."""
    enter(name, will=delayed(name, 60), properties=Properties(session_expiry=1)).close()
    lost = time.monotonic()
    watcher5.expect_nothing()
    watcher5.take(payload=b"gone")
    assert 0.8 < time.monotonic() - lost < 4


def test_without_a_session_there_is_no_delay(enter: Enter, watcher5: Client, name: str) -> None:
    """§3.1.3.2.2: a session that ends with its connection publishes the will at once."""
    enter(name, will=delayed(name, 60)).close()
    watcher5.take(payload=b"gone")


def test_a_return_before_the_delay_cancels_the_will(
    enter: Enter, dial: Dial, watcher5: Client, name: str
) -> None:
    """[MQTT-3.1.3-9]"""
    lasting = Properties(session_expiry=60)
    enter(name, will=delayed(name, 1), properties=lasting).close()
    back = dial()
    assert back.connect(name, clean_start=False, properties=lasting).session_present
    watcher5.expect_silence(1.5)
    back.expect_nothing()


def test_a_take_over_before_the_delay_cancels_the_will(
    enter: Enter, dial: Dial, watcher5: Client, name: str
) -> None:
    """[MQTT-3.1.3-9], §3.1.2.5: not sent, if the new connection resumes and the delay is not 0."""
    lasting = Properties(session_expiry=60)
    enter(name, will=delayed(name, 1), properties=lasting)
    dial().connect(name, clean_start=False, properties=lasting)
    watcher5.expect_silence(1.5)


def test_a_clean_start_ends_the_session_and_publishes_the_will(
    enter: Enter, watcher5: Client, name: str
) -> None:
    """[MQTT-3.1.2-8], §3.1.3.2.2: the session ended before the delay did."""
    lasting = Properties(session_expiry=60)
    enter(name, will=delayed(name, 60), properties=lasting).close()
    enter(name, clean_start=True)
    watcher5.take(payload=b"gone")


def test_a_disconnect_with_will_is_delayed_too(enter: Enter, watcher5: Client, name: str) -> None:
    """§3.14.2.1, §3.1.3.2.2"""
    client = enter(name, will=delayed(name, 1), properties=Properties(session_expiry=60))
    client.disconnect(Reason.DISCONNECT_WITH_WILL)
    gone = time.monotonic()
    watcher5.expect_nothing()
    watcher5.take(payload=b"gone")
    assert time.monotonic() - gone > 0.8


def test_the_expiry_of_a_will_counts_from_its_publication(
    enter: Enter, watcher5: Client, name: str
) -> None:
    """§3.1.3.2.4: the interval is the lifetime of the message once published."""
    will = Will(name, b"gone", properties=Properties(will_delay=1, message_expiry=30))
    enter(name, will=will, properties=Properties(session_expiry=60)).close()
    assert watcher5.take(payload=b"gone").properties.message_expiry in (29, 30)


def test_no_local_holds_for_wills(enter: Enter, dial: Dial, name: str) -> None:
    """[MQTT-3.8.3-3]: a session does not get the will of its own client."""
    lasting = Properties(session_expiry=60)
    client = enter(name, will=Will(name, b"gone", 1), properties=lasting)
    client.subscribe(name, 1, no_local=True)
    client.close()
    back = dial()
    back.connect(name, clean_start=False, properties=lasting)
    back.expect_nothing()


def test_a_living_client_has_no_will_published(enter: Enter, watcher5: Client, name: str) -> None:
    """§3.1.2.5"""
    client = enter(name, keep_alive=1, will=Will(name, b"gone"))
    for _ in range(4):
        client.send(Pingreq())
        watcher5.expect_silence(0.5)
    client.send(Disconnect())


def test_a_will_may_not_say_what_its_client_may_not(
    enter: Enter, watcher5: Client, name: str
) -> None:
    """§3.1.2.5, 5.4.2: the will is published in the client's name, with its rights."""
    outsider = enter(f"{name}-sys")
    outsider.subscribe("$SYS/forged")
    enter(name, will=Will("$SYS/forged", b"lies")).close()
    enter(f"{name}-b", will=Will(name, b"truth")).close()
    watcher5.expect(Publish, payload=b"truth")
    outsider.expect_nothing()
