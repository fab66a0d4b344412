"""A broker process that records: what is in the folder after what happened."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import BrokerProcess, StartBroker
from conformance.client import Client

from headgate.wire.packets import Properties, Version

from .reading import Row, messages_of, records, segments, until

CONFIG = """
auth: {local_roles: [admin]}
recorder: {folder: records, segment_age: 200ms}
applications: {film: {clients: ["s-*"], category: AN}}
"""


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    opened: list[Client] = []
    yield opened
    for client in opened:
        client.close()


def enter(clients: list[Client], broker: BrokerProcess, client_id: str, **fields: object) -> Client:
    client = Client(broker.port, Version.V5)
    clients.append(client)
    client.connect(client_id, **fields)
    return client


def folder(broker: BrokerProcess) -> Path:
    return broker.folder / "records"


def encoder_of(broker: BrokerProcess) -> int:
    """The encoder's process: the one child of the broker's that is one."""
    (found,) = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and is_encoder_of(entry, broker.pid)
    ]
    return found


def is_encoder_of(process: Path, parent: int) -> bool:
    try:
        return (
            b"recorder.encoder" in (process / "cmdline").read_bytes()
            and f"\nPPid:\t{parent}\n" in (process / "status").read_text()
        )
    except OSError:
        return False


def connections(broker: BrokerProcess) -> list[tuple[str, str, str]]:
    return [
        (row["event"], row["client"], row["reason"])
        for row in records(folder(broker), "connections")
    ]


def test_messages_connections_and_policies_are_recorded(
    start_broker: StartBroker, clients: list[Client]
) -> None:
    broker = start_broker(CONFIG)
    subscriber = enter(clients, broker, "s-1", properties=Properties(session_expiry=60))
    subscriber.subscribe("t/#", qos=1)
    publisher = enter(clients, broker, "p")
    for number in range(100):
        publisher.publish(f"t/{number % 2}", b"x", qos=number % 2)
        subscriber.take(qos=number % 2)
    command = {"version": 7, "rules": [{"category": "AN", "priority": 2}]}
    publisher.publish("$CONTROL/headgate/policy", json.dumps(command).encode(), qos=1)
    publisher.publish("$CONTROL/headgate/policy", b"nonsense", qos=0)
    plan = {"event": "applied", "why": "a broken requirement", "version": 7, "steps": ["one"]}
    publisher.publish("$CONTROL/headgate/plan", json.dumps(plan).encode(), qos=1)
    publisher.publish("$CONTROL/headgate/plan", b"{}", qos=0)
    subscriber.disconnect()
    subscriber.expect_closed()
    # Before the broker ends: segments are published as time passes.
    until(lambda: bool(segments(folder(broker), "connections")), "connections were published")
    broker.stop()

    found = records(folder(broker), "messages")
    assert messages_of(found, client="s-1", outcome="sent", topic="t/0", qos=0) == 50
    assert messages_of(found, client="s-1", outcome="sent", topic="t/1", qos=1) == 50
    assert messages_of(found, client="s-1", outcome="acknowledged") == 50
    assert {row["category"] for row in found if row["client"] == "s-1"} == {"AN"}
    assert all(0 <= row["waited_ms"] < 60_000 for row in found if row["outcome"] == "sent")
    assert [row["sequence"] for row in found] == list(range(len(found)))

    happened = connections(broker)
    assert happened[0] == ("broker-started", "", "")
    assert happened[-1] == ("broker-stopped", "", "")
    assert ("connected", "s-1", "") in happened
    assert ("parted", "s-1", "disconnect") in happened
    assert ("parted", "p", "shutdown") in happened
    assert ("session-ended", "p", "") in happened

    (planned,) = records(folder(broker), "plans")
    assert (planned["event"], planned["version"], planned["client"]) == ("applied", 7, "p")
    assert json.loads(planned["document"]) == plan
    start, accepted, refused, unplanned = records(folder(broker), "policies")
    assert unplanned["command"] == "$CONTROL/headgate/plan"
    assert (start["command"], start["version"], start["accepted"]) == ("start", 0, True)
    assert (accepted["client"], accepted["version"], accepted["accepted"]) == ("p", 7, True)
    assert json.loads(accepted["document"]) == command
    assert not refused["accepted"]
    assert "not a policy" in refused["reason"]


def test_a_killed_broker_leaves_what_it_had_handed_over(
    start_broker: StartBroker, clients: list[Client]
) -> None:
    broker = start_broker(CONFIG.replace("200ms", "1h"))
    subscriber = enter(clients, broker, "s-1")
    subscriber.subscribe("t")
    publisher = enter(clients, broker, "p")
    publisher.publish("t")
    subscriber.take()
    # Handed over means: the half-written segment of messages is there.
    until(lambda: bool(list(folder(broker).glob("messages/*/.*.parquet"))), "the encoder got them")
    broker.kill()
    until(lambda: bool(segments(folder(broker), "messages")), "the encoder noticed the end")
    assert messages_of(records(folder(broker), "messages"), topic="t", outcome="sent") == 1


def test_an_encoder_that_dies_does_not_disturb_the_broker(
    start_broker: StartBroker, clients: list[Client]
) -> None:
    broker = start_broker(CONFIG)
    subscriber = enter(clients, broker, "s-1")
    subscriber.subscribe("t")
    publisher = enter(clients, broker, "p")
    until(lambda: bool(segments(folder(broker), "connections")), "the encoder runs")
    os.kill(encoder_of(broker), signal.SIGKILL)
    until(
        lambda: bool(publish_and_take(publisher, subscriber)) and "ended" in broker.errors, "told"
    )
    assert "the encoder of the records ended" in broker.errors
    publish_and_take(publisher, subscriber)
    broker.stop()


def publish_and_take(publisher: Client, subscriber: Client) -> Row:
    publisher.publish("t", b"x")
    return {"payload": subscriber.take().payload}


def test_one_of_ten_is_kept_and_weighs_ten(
    start_broker: StartBroker, clients: list[Client]
) -> None:
    broker = start_broker(CONFIG.replace("segment_age", "messages: 0.1, segment_age"))
    subscriber = enter(clients, broker, "s-1")
    subscriber.subscribe("t")
    publisher = enter(clients, broker, "p")
    for _ in range(500):
        publish_and_take(publisher, subscriber)
    broker.stop()
    found = [row for row in records(folder(broker), "messages") if row["topic"] == "t"]
    assert {row["weight"] for row in found} == {10.0}
    # 50 expected; the skips are uniform, with a deviation of 4.1 in their number.
    assert 25 <= len(found) <= 75


def test_a_place_that_cannot_be_written_is_told_and_the_broker_serves(
    start_broker: StartBroker, clients: list[Client], tmp_path: Path
) -> None:
    broker = start_broker(CONFIG.replace("folder: records", 'url: "file:///dev/null/records"'))
    subscriber = enter(clients, broker, "s-1")
    subscriber.subscribe("t")
    publisher = enter(clients, broker, "p")
    until(lambda: "are lost" in broker.errors, "it is told")
    assert "Not a directory: '/dev/null/records'" in broker.errors
    publish_and_take(publisher, subscriber)
    broker.stop()
