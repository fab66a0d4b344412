"""Who is thrown out is told in the log, in few lines."""

from __future__ import annotations

import logging

import pytest
from durability.peer import Subscriber

from bench import packets
from headgate.config import Configuration, Limits
from headgate.core.access import Peer
from headgate.core.complaints import BURST, RATE, Complaints

from .stage import Stage


def test_a_protocol_error_is_one_line_that_says_who_and_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    on = Stage()
    client = Subscriber("clumsy", expiry=0)
    wire = on.connect(client)
    on.turn()
    with caplog.at_level(logging.INFO):
        wire.channel.receive(b"\x36\x02\x00\x00", on.now)  # a PUBLISH of QoS 3
        on.turn()
    (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.getMessage() == (
        "client 'clumsy' at 127.0.0.1 was thrown out: a PUBLISH with QoS 3"
    )


def test_a_stranger_that_does_not_speak_mqtt_is_told_by_its_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    on = Stage()
    wire = on.connect(Subscriber("never", expiry=0))
    with caplog.at_level(logging.INFO):
        wire.channel.receive(b"GET / HTTP/1.1\r\n\r\n" + bytes(60), on.now)
    assert "a client at 127.0.0.1 was thrown out: " in caplog.text


def test_a_thousand_errors_are_few_lines_and_none_is_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    complaints = Complaints()
    with caplog.at_level(logging.WARNING):
        for number in range(1000):
            complaints.add(f"client {number}", "it sang", 100.0 + number / 1000)
        assert len(caplog.records) == BURST
        complaints.add("the last", "it sang", 101.0 + 1 / RATE)
    assert caplog.messages[-1] == (
        f"the last was thrown out: it sang (and {1000 - BURST:.0f} others before)"
    )


def test_refusals_are_told_as_sparingly(caplog: pytest.LogCaptureFixture) -> None:
    on = Stage(Configuration(limits=Limits(client_id_size=10)))
    with caplog.at_level(logging.INFO):
        for number in range(100):
            channel = on.broker.open(Peer("127.0.0.1"), on.now)
            channel.receive(packets.connect(f"a-name-that-is-too-long-{number}"), on.now)
    told = [line for line in caplog.messages if "was refused" in line]
    assert told == [
        "a client at 127.0.0.1 was refused: the client id is longer than 10 bytes"
    ] * int(BURST)
    assert on.broker.counters.connections_refused == 100
