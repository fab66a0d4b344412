"""Eclipse Paho for Python, the reference among Python clients."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from queue import Queue
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from .place import TRANSPORTS, Place

PATIENCE = 30.0
V3 = mqtt.MQTTProtocolVersion.MQTTv311
V5 = mqtt.MQTTProtocolVersion.MQTTv5
VERSIONS = [V3, V5]


class Client:
    """A paho client in its own thread; what it receives is in `inbox`."""

    def __init__(
        self, place: Place, client_id: str, version: mqtt.MQTTProtocolVersion, **options: Any
    ) -> None:
        transport = "websockets" if place.websocket else "unix" if place.port == 0 else "tcp"
        if version == V3 and "clean_session" not in options:
            options["clean_session"] = True
        self.paho = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2,
            client_id,
            protocol=version,
            transport=transport,
            **options,
        )
        if place.websocket:
            self.paho.ws_set_options(path="/mqtt")
        context = place.tls_context()
        if context is not None:
            self.paho.tls_set_context(context)
        self.place = place
        self.version = version
        self.inbox: Queue[mqtt.MQTTMessage] = Queue()
        self.answers: Queue[Any] = Queue()
        self.paho.on_message = lambda _client, _data, message: self.inbox.put(message)
        self.paho.on_connect = lambda _c, _d, flags, reason, _p: self.answers.put((flags, reason))
        self.paho.on_subscribe = lambda _c, _d, _mid, reasons, _p: self.answers.put(reasons)
        self.paho.on_unsubscribe = lambda _c, _d, _mid, reasons, _p: self.answers.put(reasons)

    def connect(self, properties: Properties | None = None, clean: bool = True) -> bool:
        """Connect; was the session there?"""
        options: dict[str, Any] = {}
        if self.version == V5:
            options = {"clean_start": clean, "properties": properties}
        self.paho.connect(self.place.host, self.place.port or 1, keepalive=60, **options)
        self.paho.loop_start()
        flags, reason = self.answers.get(timeout=PATIENCE)
        assert reason == 0, reason
        return bool(flags.session_present)

    def subscribe(self, *filters: Any) -> list[int]:
        self.paho.subscribe(list(filters))
        return [reason.value for reason in self.answers.get(timeout=PATIENCE)]

    def publish(self, topic: str, payload: bytes, qos: int, **options: Any) -> None:
        """Publish and wait for the acknowledgement."""
        info = self.paho.publish(topic, payload, qos, **options)
        info.wait_for_publish(PATIENCE)
        assert info.is_published()

    def next(self) -> mqtt.MQTTMessage:
        return self.inbox.get(timeout=PATIENCE)

    def disconnect(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


@pytest.fixture
def client() -> Iterator[Callable[..., Client]]:
    """Makes clients and disconnects them."""
    with ExitStack() as stack:

        def make(*arguments: Any, **options: Any) -> Client:
            one = Client(*arguments, **options)
            stack.callback(one.disconnect)
            return one

        yield make


def surviving(seconds: int) -> Properties:
    """CONNECT properties of a session that survives its connection."""
    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = seconds
    return properties


def subscription(version: mqtt.MQTTProtocolVersion, topic_filter: str, qos: int) -> Any:
    return (topic_filter, SubscribeOptions(qos) if version == V5 else qos)


@pytest.mark.parametrize("place", TRANSPORTS, indirect=True)
@pytest.mark.parametrize("version", VERSIONS)
def test_messages_of_every_qos_over_every_transport(
    client: Callable[..., Client], place: Place, version: mqtt.MQTTProtocolVersion, name: str
) -> None:
    one = client(place, name, version)
    one.connect()
    filters = [subscription(version, f"{name}/{qos}", qos) for qos in range(3)]
    assert one.subscribe(*filters) == [0, 1, 2]
    for qos in range(3):
        for number in range(5):
            one.publish(f"{name}/{qos}", b"%d" % number, qos)
        got = [one.next() for _ in range(5)]
        assert [(m.topic, m.payload, m.qos) for m in got] == [
            (f"{name}/{qos}", b"%d" % number, qos) for number in range(5)
        ]


@pytest.mark.parametrize("place", TRANSPORTS, indirect=True)
def test_large_messages_over_every_transport(
    client: Callable[..., Client], place: Place, name: str
) -> None:
    one = client(place, name, V5)
    one.connect()
    one.subscribe(subscription(V5, name, 2))
    for size in (0, 125, 126, 65_535, 65_536, 1_000_000):
        one.publish(name, bytes(i % 251 for i in range(size)), 2)
        message = one.next()
        assert message.payload == bytes(i % 251 for i in range(size))


@pytest.mark.parametrize("published", VERSIONS)
@pytest.mark.parametrize("received", VERSIONS)
def test_versions_understand_each_other(
    client: Callable[..., Client],
    place: Place,
    name: str,
    published: mqtt.MQTTProtocolVersion,
    received: mqtt.MQTTProtocolVersion,
) -> None:
    sender, receiver = client(place, f"{name}-a", published), client(place, f"{name}-b", received)
    sender.connect()
    receiver.connect()
    receiver.subscribe(subscription(received, f"{name}/+", 2))
    properties = None
    if published == V5:
        properties = Properties(PacketTypes.PUBLISH)
        properties.UserProperty = [("a", "1"), ("b", "2"), ("a", "3")]
        properties.ContentType = "text/plain"
        properties.ResponseTopic = "answer"
        properties.CorrelationData = b"\x00\x01"
    for qos in range(3):
        sender.publish(f"{name}/{qos}", b"text", qos, properties=properties)
        message = receiver.next()
        assert (message.topic, message.payload, message.qos) == (f"{name}/{qos}", b"text", qos)
        if published == received == V5:
            assert message.properties is not None
            assert message.properties.UserProperty == [("a", "1"), ("b", "2"), ("a", "3")]
            assert message.properties.ContentType == "text/plain"
            assert message.properties.ResponseTopic == "answer"
            assert message.properties.CorrelationData == b"\x00\x01"


@pytest.mark.parametrize("version", VERSIONS)
def test_retained_messages(
    client: Callable[..., Client], place: Place, version: mqtt.MQTTProtocolVersion, name: str
) -> None:
    sender = client(place, f"{name}-a", version)
    sender.connect()
    for qos in range(3):
        sender.publish(f"{name}/{qos}", b"%d" % qos, qos, retain=True)
    receiver = client(place, f"{name}-b", version)
    receiver.connect()
    receiver.subscribe(subscription(version, f"{name}/#", 2))
    got = [receiver.next() for _ in range(3)]
    assert {(m.topic, m.payload, m.qos, m.retain) for m in got} == {
        (f"{name}/{qos}", b"%d" % qos, qos, True) for qos in range(3)
    }
    for qos in range(3):
        sender.publish(f"{name}/{qos}", b"", qos, retain=True)
    assert [receiver.next().retain for _ in range(3)] == [False] * 3  # live, not retained
    late = client(place, f"{name}-c", version)
    late.connect()
    late.subscribe(subscription(version, f"{name}/#", 2))
    sender.publish(f"{name}/end", b"end", 1)
    assert late.next().payload == b"end"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_will_of_a_client_that_is_lost(
    client: Callable[..., Client],
    place: Place,
    version: mqtt.MQTTProtocolVersion,
    qos: int,
    name: str,
) -> None:
    heir = client(place, f"{name}-heir", version)
    heir.connect()
    heir.subscribe(subscription(version, f"{name}/#", 2))
    mortal = Client(place, f"{name}-mortal", version)
    mortal.paho.will_set(f"{name}/will", b"gone", qos, retain=True)
    mortal.connect()
    mortal.paho.on_connect = None
    mortal.paho.reconnect_delay_set(3600, 3600)
    connection = mortal.paho.socket()
    assert isinstance(connection, socket.socket)
    connection.shutdown(socket.SHUT_RDWR)
    message = heir.next()
    assert (message.topic, message.payload, message.qos) == (f"{name}/will", b"gone", qos)
    mortal.disconnect()
    heir.publish(f"{name}/will", b"", 1, retain=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_will_of_a_client_that_says_goodbye(
    client: Callable[..., Client], place: Place, version: mqtt.MQTTProtocolVersion, name: str
) -> None:
    heir = client(place, f"{name}-heir", version)
    heir.connect()
    heir.subscribe(subscription(version, f"{name}/#", 1))
    polite = Client(place, f"{name}-polite", version)
    polite.paho.will_set(f"{name}/will", b"gone", 1)
    polite.connect()
    polite.disconnect()
    heir.publish(f"{name}/end", b"end", 1)
    assert heir.next().payload == b"end"
    if version == V5:  # unless it asks for it
        asking = Client(place, f"{name}-asking", version)
        asking.paho.will_set(f"{name}/will", b"asked for", 1)
        asking.connect()
        reason = ReasonCode(PacketTypes.DISCONNECT, "Disconnect with will message")
        asking.paho.disconnect(reason)
        asking.paho.loop_stop()
        assert heir.next().payload == b"asked for"


@pytest.mark.parametrize("version", VERSIONS)
def test_what_came_while_the_client_was_away(
    client: Callable[..., Client], place: Place, version: mqtt.MQTTProtocolVersion, name: str
) -> None:
    options = {"clean_session": False} if version == V3 else {}
    away = Client(place, f"{name}-away", version, **options)
    assert not away.connect(surviving(600), clean=False)
    away.subscribe(subscription(version, f"{name}/+", 2))
    away.disconnect()
    sender = client(place, f"{name}-sender", version)
    sender.connect()
    for number in range(20):
        sender.publish(f"{name}/t", b"%d" % number, number % 2 + 1)
    back = client(place, f"{name}-away", version, **options)
    assert back.connect(surviving(600), clean=False)
    got = [back.next() for _ in range(20)]
    for qos in (1, 2):  # paho hands over QoS 2 only when it is released, so order is by QoS
        numbers = [int(message.payload) for message in got if message.qos == qos]
        assert numbers == list(range(qos - 1, 20, 2))


@pytest.mark.parametrize("version", VERSIONS)
def test_unsubscribing(
    client: Callable[..., Client], place: Place, version: mqtt.MQTTProtocolVersion, name: str
) -> None:
    one = client(place, name, version)
    one.connect()
    one.subscribe(subscription(version, f"{name}/a", 1), subscription(version, f"{name}/b", 1))
    one.paho.unsubscribe(f"{name}/a")
    one.answers.get(timeout=PATIENCE)
    one.publish(f"{name}/a", b"unwanted", 1)
    one.publish(f"{name}/b", b"wanted", 1)
    assert one.next().payload == b"wanted"


def test_a_shared_subscription_divides_the_work(
    client: Callable[..., Client], place: Place, name: str
) -> None:
    workers = [client(place, f"{name}-{number}", V5) for number in range(2)]
    for worker in workers:
        worker.connect()
        worker.subscribe(subscription(V5, f"$share/{name}/{name}/#", 1))
    sender = client(place, f"{name}-sender", V5)
    sender.connect()
    shared: Queue[mqtt.MQTTMessage] = Queue()
    for worker in workers:
        worker.paho.on_message = lambda _client, _data, message: shared.put(message)
    for number in range(20):
        sender.publish(f"{name}/t", b"%d" % number, 1)
    numbers = sorted(int(shared.get(timeout=PATIENCE).payload) for _ in range(20))
    assert numbers == list(range(20))
    assert shared.empty()
