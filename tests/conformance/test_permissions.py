"""What clients may do: access list, `$SYS`, `$CONTROL` (MQTT 5 §5.4.2, §3.9.3, §4.7.2)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker_process import BrokerProcess

from headgate.wire.packets import (
    Properties,
    Puback,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Version,
    Will,
)
from headgate.wire.reasons import Reason

from .client import Client
from .conftest import Enter

DENIED = Reason.NOT_AUTHORIZED


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with an access list."""
    config = """
sys_interval: 500ms
auth:
  allow_anonymous: true
  acl:
    - {clients: ["root-*"], allow: all, topics: ["#", "$else/#"]}
    - {deny: [publish, subscribe], topics: "closed/#"}
    - {deny: subscribe, topics: "drop-box/#"}
    - {allow: all, topics: ["own/%c/#", "open/#"]}
    - {allow: publish, topics: ["drop-box/#", "up/#"]}
    - {allow: subscribe, topics: ["#", "$SYS/#"]}
"""
    process = BrokerProcess(tmp_path_factory.mktemp("permissions"), config)
    process.start()
    yield process
    process.stop()


@pytest.fixture
def root(enter: Enter, name: str) -> Client:
    """May see and say everything that is not the broker's own."""
    return enter(f"root-{name}")


def test_a_refused_message_is_answered_with_the_reason(
    enter: Enter, root: Client, name: str
) -> None:
    """§3.4.2.1, §3.5.2.1: 0x87 in PUBACK and PUBREC; QoS 2 ends there."""
    root.subscribe("closed/a")
    client = enter(name)
    client.send(Publish("closed/a", b"x"), Publish("closed/a", b"x", 1, packet_id=1))
    client.expect(Puback, packet_id=1, reason=DENIED)
    client.send(Publish("closed/a", b"x", 2, packet_id=2))
    client.expect(Pubrec, packet_id=2, reason=DENIED)
    client.expect_nothing()
    root.expect_nothing()


def test_version_3_is_acknowledged_all_the_same(enter: Enter, root: Client, name: str) -> None:
    """3.1.1 [MQTT-3.3.5-2]: acknowledge or close, there is no other answer."""
    root.subscribe("closed/a")
    client = enter(name, Version.V311)
    client.publish("closed/a", b"x", 1)
    client.publish("closed/a", b"x", 2)
    root.expect_nothing()


def test_a_refused_subscription_is_answered_with_the_reason(
    enter: Enter, name: str, version: Version
) -> None:
    """[MQTT-3.9.3-1]: 0x87, in 3.1.1 0x80."""
    client = enter(name, version)
    denied = DENIED if version is Version.V5 else 0x80
    assert client.subscribe("closed/a", 1) == denied
    assert client.subscribe("closed/#", 1) == denied
    assert client.subscribe("$share/g/closed/#", 1) == denied
    assert client.subscribe("open/none/#", 1) == 1


def test_names_in_rules_are_the_clients_own(enter: Enter, root: Client, name: str) -> None:
    """§5.4.2: `own/%c/#` is each client's own tree."""
    client = enter(name)
    root.subscribe("own/#", 1)
    assert client.publish(f"own/{name}/a", b"mine", 1) == Reason.SUCCESS
    assert client.publish("own/somebody/a", b"not mine", 1) == DENIED
    root.take(1, payload=b"mine")
    root.expect_nothing()


def test_a_wildcard_gets_what_it_may(enter: Enter, root: Client, name: str) -> None:
    """§5.4.2: the wildcard is granted; what the list withholds is not delivered."""
    client = enter(name)
    client.subscribe(f"+/{name}", 1)
    root.publish(f"closed/{name}", b"secret", 1)
    root.publish(f"drop-box/{name}", b"secret", 1)
    root.publish(f"open/{name}", b"news", 1)
    client.take(1, payload=b"news")
    client.expect_nothing()


def test_a_shared_wildcard_gets_what_it_may(enter: Enter, root: Client, name: str) -> None:
    """§5.4.2: a group is no way around the list; a member that may is found."""
    client = enter(name)
    client.subscribe(f"$share/group/+/{name}", 1)
    root.publish(f"closed/{name}", b"secret", 1)
    root.publish(f"open/{name}", b"news", 1)
    client.take(1, payload=b"news")
    client.expect_nothing()
    privileged = enter(f"root-{name}-2")
    privileged.subscribe(f"$share/group/+/{name}", 1)
    for _ in range(4):
        root.publish(f"closed/{name}", b"secret", 1)
    for _ in range(4):
        privileged.take(1, payload=b"secret")
    client.expect_nothing()


def test_retained_messages_are_withheld_too(enter: Enter, root: Client, name: str) -> None:
    """§5.4.2"""
    root.publish(f"closed/{name}", b"secret", 1, retain=True)
    root.publish(f"open/{name}", b"news", 1, retain=True)
    client = enter(name)
    client.subscribe(f"+/{name}")
    client.take(payload=b"news", retain=True)
    client.expect_nothing()


def test_a_refused_message_is_not_retained(enter: Enter, root: Client, name: str) -> None:
    """§5.4.2"""
    client = enter(name)
    assert client.publish(f"closed/{name}", b"x", 1, retain=True) == DENIED
    root.subscribe(f"closed/{name}")
    root.expect_nothing()


def test_an_alias_is_no_way_around(enter: Enter, root: Client, name: str) -> None:
    """§3.3.2.3.4: the topic behind it counts."""
    root.subscribe("closed/a")
    client = enter(name)
    alias = Properties(topic_alias=1)
    assert client.publish("closed/a", b"x", 1, properties=alias) == DENIED
    assert client.publish("", b"x", 1, properties=alias) == DENIED
    root.expect_nothing()


def test_a_will_needs_permission_too(enter: Enter, root: Client, name: str) -> None:
    """§3.1.2.5"""
    root.subscribe("closed/a")
    root.subscribe("up/b")
    enter(f"{name}-a", will=Will("closed/a", b"secret")).close()
    enter(f"{name}-b", will=Will("up/b", b"gone")).close()
    root.take(payload=b"gone")
    root.expect_nothing()


def test_the_broker_tells_of_itself(enter: Enter, name: str, version: Version) -> None:
    """§4.7.2: `$SYS` is readable, retained, and renewed."""
    client = enter(name, version)
    client.subscribe("$SYS/broker/#")
    seen: dict[str, str] = {}
    while True:
        message = client.take()
        if not message.retain:
            break  # a renewal, which comes by the clock
        seen[message.topic] = message.payload.decode()
    assert seen["$SYS/broker/version"].startswith("headgate ")
    assert int(seen["$SYS/broker/clients/connected"]) >= 0
    assert "$SYS/broker/uptime" in seen


def test_nobody_speaks_for_the_broker(enter: Enter, root: Client, name: str) -> None:
    """§4.7.2: `$SYS` is not for clients to publish to."""
    client = enter(name)
    client.subscribe("$SYS/forged")
    for publisher in (client, root):
        assert publisher.publish("$SYS/forged", b"lies", 1) == DENIED
    client.expect_nothing()


def test_control_is_closed_to_all_but_admins(
    enter: Enter, root: Client, name: str, version: Version
) -> None:
    """§4.7.2: `$CONTROL` is the role admin's, whatever the access list says."""
    client = enter(name, version)
    denied = DENIED if version is Version.V5 else 0x80
    for topic_filter in ("$CONTROL/#", "$CONTROL/headgate/policy", "$share/g/$CONTROL/#"):
        assert client.subscribe(topic_filter) == denied
    assert root.subscribe("$CONTROL/#") == DENIED
    assert root.publish("$CONTROL/headgate/policy", b"{}", 1) == DENIED


def test_each_filter_is_judged_alone(enter: Enter, name: str) -> None:
    """[MQTT-3.8.4-5]"""
    client = enter(name)
    wanted = ["open/none", "closed/a", f"own/{name}/a", "drop-box/a"]
    client.send(Subscribe(1, [(topic, SubscriptionOptions()) for topic in wanted]))
    client.expect(Suback, reasons=[0, DENIED, 0, DENIED])


def test_a_new_access_list_counts_at_once(
    broker: BrokerProcess, enter: Enter, root: Client, name: str
) -> None:
    """§5.4.2: connections stay; what they may do follows the list."""
    client = enter(name)
    client.subscribe(f"open/{name}/news", 1)
    before = broker.text
    try:
        broker.write_config(before.replace('topics: "closed/#"', 'topics: ["closed/#", "open/#"]'))
        broker.reload()
        root.publish(f"open/{name}/news", b"news", 1)
        assert client.publish(f"open/{name}/mine", b"x", 1) == DENIED
        client.expect_nothing()
    finally:
        broker.write_config(before)
        broker.reload()
    root.publish(f"open/{name}/news", b"again", 1)
    client.take(1, payload=b"again")
