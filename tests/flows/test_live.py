"""A broker process: who may command, what survives, what the access list grants, real sockets."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_process import COMMAND, BrokerProcess, StartBroker
from conformance.client import Client

from headgate.contract import Snapshot
from headgate.wire.packets import Disconnect, Properties, Publish, Version, Will

from .scene import URGENT_TYPE, claimed, emergency

POLICY = "$CONTROL/headgate/policy"
APPLICATIONS = "$CONTROL/headgate/applications"

CONFIG = """
auth: {local_roles: [admin]}
snapshot_interval: 100ms
applications:
  alarm: {clients: ["alarm-*"], category: RT}
  film: {users: ["cam-*"], category: AN}
policy:
  - {category: RT, priority: 1}
"""

Enter = Callable[..., Client]


@pytest.fixture
def enter() -> Iterator[Callable[..., Client]]:
    """Opens connections to a broker; they are closed at the end."""
    clients: list[Client] = []

    def connected(
        broker: BrokerProcess, client_id: str = "", version: Version = Version.V5, **fields: Any
    ) -> Client:
        client = Client(broker.port, version)
        clients.append(client)
        client.connect(client_id, **fields)
        return client

    yield connected
    for client in clients:
        client.close()


def policy(version: int, *rules: dict[str, Any]) -> bytes:
    return json.dumps({"version": version, "rules": list(rules)}).encode()


def in_force(client: Client) -> dict[str, Any]:
    """What `$SYS/headgate/policy` holds, retained."""
    client.subscribe("$SYS/headgate/policy")
    message = client.expect(Publish, topic="$SYS/headgate/policy", retain=True)
    found: dict[str, Any] = json.loads(message.payload)
    return found


def password_file(folder: Path, **roles: str) -> Path:
    """Users with the password `secret` and these roles."""
    file = folder / "users"
    for name, role in roles.items():
        command = [COMMAND, "passwd", file, name.replace("_", "-"), "--roles", role]
        subprocess.run(command, input=b"secret\n", check=True, capture_output=True)
    return file


# Commands


def test_a_command_is_answered_in_every_way(start_broker: StartBroker, enter: Enter) -> None:
    broker = start_broker(CONFIG)
    admin = enter(broker, "ops")
    admin.subscribe("$SYS/headgate/control")
    admin.subscribe("answers")
    request = Publish(
        POLICY,
        policy(3, {"category": "RT", "priority": 0}),
        1,
        packet_id=9,
        properties=Properties(response_topic="answers", correlation_data=b"\x00\x01"),
    )
    admin.send(request)
    got: dict[str, Any] = {}
    for _ in range(3):
        packet = admin.receive()
        got[packet.topic if isinstance(packet, Publish) else "acknowledgement"] = packet
    assert got["acknowledgement"].reason == 0
    assert got["acknowledgement"].packet_id == 9
    answer = json.loads(got["answers"].payload)
    assert (answer["ok"], answer["version"]) == (True, 3)
    assert got["answers"].properties.correlation_data == b"\x00\x01"
    assert json.loads(got["$SYS/headgate/control"].payload) == answer
    assert in_force(admin)["version"] == 3


def test_at_the_start_the_configured_policy_is_told(
    start_broker: StartBroker, enter: Enter
) -> None:
    client = enter(start_broker(CONFIG), "c")
    assert in_force(client) == {"version": 0, "rules": [{"category": "RT", "priority": 1}]}


@pytest.mark.parametrize("qos", [1, 2])
def test_nobody_but_an_admin_commands(
    start_broker: StartBroker, enter: Enter, tmp_path: Path, qos: int
) -> None:
    users = password_file(tmp_path, root="admin", eve="ops")
    broker = start_broker(f"auth: {{password_file: {users}}}")
    eve = enter(broker, "eve", username="eve", password=b"secret")
    root = enter(broker, "root", username="root", password=b"secret")
    for topic in (POLICY, APPLICATIONS, "$urgent/" + POLICY, "$critical/" + POLICY):
        assert eve.publish(topic, policy(1), qos) == 0x87
    assert eve.subscribe("$CONTROL/#") == 0x87
    assert root.publish(POLICY, policy(1), qos) == 0
    assert in_force(root)["version"] == 1


# What survives


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_policy_that_was_acknowledged_survives(
    start_broker: StartBroker, enter: Enter, end: str
) -> None:
    broker = start_broker(CONFIG)
    for version in range(1, 4):
        admin = enter(broker, "ops")
        assert admin.publish(POLICY, policy(version, {"priority": version}), 1) == 0
        if end == "kill":
            broker.kill()
        else:
            broker.stop()
        broker.start()
        client = enter(broker, "c")
        assert in_force(client)["version"] == version
        assert client.publish(POLICY, policy(version), 1) == 0x99  # stale


MANY = [{"topic": f"site/{number}/#", "priority": number % 16} for number in range(3000)]
"""Rules that take several turns of the loop."""


def test_a_large_policy_that_was_acknowledged_survives(
    start_broker: StartBroker, enter: Enter
) -> None:
    broker = start_broker(CONFIG)
    admin = enter(broker, "ops")
    assert admin.publish(POLICY, policy(1, *MANY), 1) == 0
    assert admin.publish(POLICY, policy(2, *MANY, {"topic": "a+", "priority": 1}), 1) == 0x99
    broker.kill()
    broker.start()
    assert in_force(enter(broker, "c")) == {"version": 1, "rules": MANY}


def test_who_does_not_wait_for_a_large_policy_has_still_sent_it(
    start_broker: StartBroker, enter: Enter
) -> None:
    broker = start_broker(CONFIG)
    watcher = enter(broker, "watcher")
    watcher.subscribe("will")
    assert in_force(watcher)["version"] == 0
    hasty = enter(broker, "hasty", will=Will("will", b"died"))
    hasty.send(Publish(POLICY, policy(1, *MANY)), Publish("will", b"said"), Disconnect())
    hasty.close()
    heard = {message.topic: message.payload for message in (watcher.expect(Publish) for _ in "12")}
    assert heard["will"] == b"said"
    assert json.loads(heard["$SYS/headgate/policy"])["version"] == 1  # told after the commit
    watcher.expect_nothing()


def test_whatever_the_answer_said_survives(start_broker: StartBroker, enter: Enter) -> None:
    """The answer on the response topic is as good as the acknowledgement: it waits for the disk."""
    broker = start_broker(CONFIG)
    for version in range(1, 6):
        admin = enter(broker, "ops")
        admin.subscribe("answers")
        properties = Properties(response_topic="answers")
        admin.send(Publish(POLICY, policy(version), properties=properties))  # QoS 0: no PUBACK
        assert json.loads(admin.expect(Publish, topic="answers").payload)["ok"] is True
        broker.kill()
        broker.start()
        assert in_force(enter(broker, "c"))["version"] == version


def test_applications_survive_and_a_policy_finds_them(
    start_broker: StartBroker, enter: Enter
) -> None:
    broker = start_broker(CONFIG)
    admin = enter(broker, "ops")
    added = [{"name": "new", "clients": ["new-*"], "category": "NEW"}]
    assert admin.publish(APPLICATIONS, json.dumps(added).encode(), 1) == 0
    assert admin.publish(POLICY, policy(1, {"application": "new", "priority": 4}), 1) == 0
    broker.kill()
    broker.start()
    new = enter(broker, "new-1")
    new.subscribe("t")
    assert shown(enter(broker, "watcher"), new, "new-1") == ("new", "NEW", 4)


def test_a_session_that_is_away_keeps_its_application(
    start_broker: StartBroker, enter: Enter, tmp_path: Path
) -> None:
    """By user name: after a restart nothing else says whose it is."""
    users = password_file(tmp_path, cam_1="ops", root="admin")
    broker = start_broker(CONFIG.replace("local_roles: [admin]", f"password_file: {users}"))
    lasting = Properties(session_expiry=3600)
    client = enter(broker, "x", username="cam-1", password=b"secret", properties=lasting)
    client.subscribe("t", 1)
    client.close()
    broker.kill()
    broker.start()
    root = enter(broker, "root", username="root", password=b"secret")
    root.subscribe("$SYS/headgate/snapshot")
    root.send(Publish("t", b"x", 1, packet_id=1))
    flow = awaited(root, "x")
    assert (flow.connected, flow.waits_for) == (False, "offline")
    assert (flow.application, flow.category) == ("film", "AN")


# Snapshots


def awaited(watcher: Client, client_id: str) -> Any:
    """The next word of snapshots on a client's flow."""
    while True:
        packet = watcher.receive()
        if isinstance(packet, Publish):
            for flow in Snapshot.from_json(packet.payload).flows:
                if flow.client == client_id:
                    return flow


def shown(watcher: Client, client: Client, client_id: str) -> tuple[str, str, int]:
    """Application, category and priority of a client that subscribed to `t`."""
    watcher.subscribe("$SYS/headgate/snapshot")
    client.send(Publish("t", b"x"))
    client.expect(Publish, topic="t")
    flow = awaited(watcher, client_id)
    return flow.application, flow.category, flow.priority


def test_snapshots_agree_with_what_was_sent(start_broker: StartBroker, enter: Enter) -> None:
    broker = start_broker(CONFIG)
    watcher, subscriber, publisher = (
        enter(broker, name) for name in ("watcher", "alarm-1", "publisher")
    )
    subscriber.subscribe("t/#", 1)
    watcher.subscribe("$SYS/headgate/snapshot")
    for number in range(40):
        publisher.publish(f"t/{number}", b"x" * 100, 1)
        subscriber.take(1)
    offered = delivered = size = acknowledged = 0
    while acknowledged < 40:
        flow = awaited(watcher, "alarm-1")
        assert (flow.application, flow.category, flow.priority) == ("alarm", "RT", 1)
        offered += flow.offered
        delivered += flow.delivered
        size += flow.bytes
        acknowledged += flow.acknowledged
        assert 0 <= flow.p50_ms <= flow.p95_ms <= flow.p99_ms < 10_000
    assert (offered, delivered, acknowledged) == (40, 40, 40)
    packets = sum(2 + 2 + len(f"t/{number}") + 2 + 1 + 100 for number in range(40))
    assert size == packets


def test_snapshots_are_read_by_the_rules_of_sys(start_broker: StartBroker, enter: Enter) -> None:
    broker = start_broker(
        """
auth:
  allow_anonymous: true
  acl:
    - {allow: subscribe, topics: ["$SYS/headgate/snapshot"], clients: ["planner"]}
    - {allow: all}
"""
    )
    assert enter(broker, "planner").subscribe("$SYS/headgate/snapshot") == 0
    assert enter(broker, "other").subscribe("$SYS/headgate/snapshot") == 0x87


# The access list


ACL = """
auth:
  allow_anonymous: true
  acl:
    - {allow: claim, clients: ["trusted"]}
    - {allow: subscribe, topics: ["$SYS/#"], clients: ["watcher"]}
    - {allow: [urgent, critical], topics: ["alarm/#"], clients: ["panel"]}
    - {allow: all}
snapshot_interval: 100ms
"""


@pytest.mark.parametrize(("client_id", "category"), [("trusted", "EM"), ("stranger", "default")])
def test_claims_need_the_right_to_claim(
    start_broker: StartBroker, enter: Enter, client_id: str, category: str
) -> None:
    broker = start_broker(ACL)
    properties = Properties(user_properties=[("category", "EM")])
    client = enter(broker, client_id, properties=properties)
    client.subscribe("t")
    assert shown(enter(broker, "watcher"), client, client_id)[1] == category


@pytest.mark.parametrize("unpermitted", ["deliver", "refuse"])
def test_urgency_needs_its_own_right_on_the_topic(
    start_broker: StartBroker, enter: Enter, unpermitted: str
) -> None:
    broker = start_broker(ACL + f"urgency: {{unpermitted: {unpermitted}}}\n")
    subscriber = enter(broker, "s")
    subscriber.subscribe("#", 1)
    refused = 0x87 if unpermitted == "refuse" else 0
    panel, stranger = enter(broker, "panel"), enter(broker, "stranger")
    assert panel.publish("$urgent/alarm/1", b"granted", 1) == 0
    assert subscriber.take(0).payload == b"granted"
    assert panel.publish("$urgent/other", b"elsewhere", 1) == refused
    assert stranger.publish("alarm/1", b"stranger", 1, properties=claimed("urgent")) == refused
    for payload in (b"elsewhere", b"stranger") if unpermitted == "deliver" else ():
        message = subscriber.take(1)
        assert message.payload == payload
        assert message.properties.user_properties == []
    subscriber.expect_nothing()


# Sockets


def test_packet_types_of_p_mqtt_over_a_socket(start_broker: StartBroker, enter: Enter) -> None:
    broker = start_broker()
    subscriber = enter(broker, "s")
    subscriber.subscribe("#", 2)
    old = enter(broker, "old", Version.V311)
    old.send(
        *[Publish("t", b"%d" % number) for number in range(200)],
        emergency(URGENT_TYPE, "alarm", b"urgent", 1, 7),
    )
    got = [subscriber.take(0).payload for _ in range(201)]
    assert got.index(b"urgent") <= 1
    assert sorted(got) == sorted([b"urgent", *[b"%d" % number for number in range(200)]])


def test_a_paced_link_on_a_real_clock(start_broker: StartBroker, enter: Enter) -> None:
    """800 kbit/s: 50 messages of 1,000 bytes take half a second, and come in order."""
    broker = start_broker('links: [{name: slow, clients: ["app-*"], rate: 800kbit}]')
    client = enter(broker, "app-1")
    client.subscribe("t")
    publisher = enter(broker, "p")
    publisher.send(*[Publish("t", b"%4d" % number + bytes(996)) for number in range(50)])
    publisher.publish("t", b"last", properties=claimed("urgent"))
    got = [client.take(0).payload[:4] for _ in range(51)]
    assert got.index(b"last") < 25
    got.remove(b"last")
    assert got == [b"%4d" % number for number in range(50)]


def test_a_reload_changes_policy_and_applications(start_broker: StartBroker, enter: Enter) -> None:
    broker = start_broker(CONFIG)
    client = enter(broker, "alarm-1")
    client.subscribe("t")
    watcher = enter(broker, "watcher")
    assert shown(watcher, client, "alarm-1") == ("alarm", "RT", 1)
    broker.write_config(CONFIG.replace("priority: 1", "priority: 5").replace("RT", "XT"))
    broker.reload()
    assert shown(enter(broker, "other"), client, "alarm-1") == ("alarm", "XT", 5)


def test_a_reload_compares_listeners_with_those_that_run(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG)
    other = 'listeners: [{type: tcp, address: "127.0.0.1:0"}, {type: tcp, address: "[::1]:0"}]\n'
    for listeners, warnings in ((other, 1), (other, 2), ("", 2)):
        broker.write_config(listeners + CONFIG)
        broker.reload()
        assert broker.errors.count("listeners changed: that takes a restart") == warnings
