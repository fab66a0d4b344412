"""Keep alive and PINGREQ (MQTT 5 §3.1.2.10, §3.2.2.3.14, §3.12)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from broker_process import BrokerProcess

from headgate.wire.packets import Pingreq, Pingresp, Publish, Version
from headgate.wire.reasons import Reason

from .conftest import Dial, Enter


def test_a_ping_is_answered(enter: Enter, name: str, version: Version) -> None:
    """[MQTT-3.12.4-1]"""
    client = enter(name, version)
    client.send(Pingreq(), Pingreq())
    client.expect(Pingresp)
    client.expect(Pingresp)


def test_a_silent_client_is_disconnected(enter: Enter, name: str, version: Version) -> None:
    """[MQTT-3.1.2-22], 3.1.1 [MQTT-3.1.2-24]: after one and a half times the keep alive."""
    started = time.monotonic()
    client = enter(name, version, keep_alive=1)
    client.expect_dismissed(Reason.KEEP_ALIVE_TIMEOUT)
    assert 1.3 < time.monotonic() - started < 4


@pytest.mark.parametrize("word", [Pingreq(), Publish("keep/alive")], ids=["ping", "publish"])
def test_any_packet_keeps_a_client_alive(enter: Enter, name: str, word: Pingreq | Publish) -> None:
    """[MQTT-3.1.2-20]: control packets of any kind count."""
    client = enter(name, keep_alive=1)
    for _ in range(4):
        time.sleep(0.5)
        client.send(word)
    if isinstance(word, Pingreq):
        for _ in range(4):
            client.expect(Pingresp)
    client.expect_nothing()


def test_a_keep_alive_of_0_is_none(enter: Enter, name: str, version: Version) -> None:
    """§3.1.2.10: 0 turns it off."""
    client = enter(name, version, keep_alive=0)
    client.expect_silence(2)


def test_what_the_broker_sends_does_not_count(enter: Enter, name: str) -> None:
    """[MQTT-3.1.2-22]: the client has to speak."""
    client = enter(name, keep_alive=1)
    client.subscribe(name)
    talker = enter(f"{name}-talker")
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        talker.publish(name, b"hello")
        packet = client.receive()
        if not isinstance(packet, Publish):
            break
        time.sleep(0.1)
    else:
        pytest.fail("a client that only listens was kept for five seconds")


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that wants to hear from everybody every second."""
    process = BrokerProcess(tmp_path_factory.mktemp("impatient"), "limits: {keep_alive_max: 1s}")
    process.start()
    yield process
    process.stop()


@pytest.mark.parametrize("wanted", [0, 60])
def test_the_server_keep_alive_replaces_the_clients(
    impatient: BrokerProcess, dial: Dial, name: str, wanted: int
) -> None:
    """[MQTT-3.1.2-21], [MQTT-3.2.2-21]: told in CONNACK, and obeyed."""
    client = dial(port=impatient.port)
    connack = client.connect(name, keep_alive=wanted)
    assert connack.properties.server_keep_alive == 1
    started = time.monotonic()
    client.expect_dismissed(Reason.KEEP_ALIVE_TIMEOUT)
    assert 1.3 < time.monotonic() - started < 4


def test_a_short_keep_alive_stays(impatient: BrokerProcess, dial: Dial, name: str) -> None:
    """§3.2.2.3.14: without the property, the client's own counts."""
    connack = dial(port=impatient.port).connect(name, keep_alive=1)
    assert connack.properties.server_keep_alive is None
