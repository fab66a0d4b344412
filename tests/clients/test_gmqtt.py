"""gmqtt: an asyncio client with a protocol implementation of its own."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import gmqtt
import pytest

from .place import Place

PATIENCE = 30.0
VERSIONS = {"3.1.1": 4, "5.0": 5}


@dataclass
class Message:
    topic: str
    payload: bytes
    qos: int
    properties: dict[str, Any]


class Client:
    """A gmqtt client whose messages wait in a queue."""

    def __init__(self, client_id: str, **options: Any) -> None:
        self.inbox: asyncio.Queue[Message] = asyncio.Queue()
        self.subscribed = asyncio.Event()
        self.gmqtt = gmqtt.Client(client_id, **options)
        self.gmqtt.on_message = self._on_message
        self.gmqtt.on_subscribe = lambda *_: self.subscribed.set()

    async def _on_message(
        self, _client: Any, topic: str, payload: bytes, qos: int, properties: dict[str, Any]
    ) -> int:
        self.inbox.put_nowait(Message(topic, payload, qos, properties))
        return 0

    async def connect(self, place: Place, version: int) -> None:
        context = place.tls_context()
        await asyncio.wait_for(
            self.gmqtt.connect(place.host, place.port, ssl=context or False, version=version),
            PATIENCE,
        )

    async def subscribe(self, topic_filter: str, qos: int) -> None:
        self.subscribed.clear()
        self.gmqtt.subscribe(topic_filter, qos=qos)
        await asyncio.wait_for(self.subscribed.wait(), PATIENCE)

    async def next(self) -> Message:
        return await asyncio.wait_for(self.inbox.get(), PATIENCE)


@asynccontextmanager
async def connected(
    place: Place, version: int, client_id: str, **options: Any
) -> AsyncIterator[Client]:
    client = Client(client_id, **options)
    await client.connect(place, version)
    try:
        yield client
    finally:
        # With TLS, asyncio complains of what the broker sent before it heard of the goodbye.
        with suppress(ssl.SSLError):
            await client.gmqtt.disconnect()


@pytest.mark.parametrize("place", ["tcp", "tls"], indirect=True)
@pytest.mark.parametrize("version", VERSIONS)
def test_messages_of_every_qos(place: Place, version: str, name: str) -> None:
    async def scenario() -> None:
        async with connected(place, VERSIONS[version], name) as client:
            for qos in range(3):
                await client.subscribe(f"{name}/{qos}", qos)
                for number in range(5):
                    client.gmqtt.publish(f"{name}/{qos}", b"%d" % number, qos=qos)
                got = [await client.next() for _ in range(5)]
                assert [(m.topic, m.payload, m.qos) for m in got] == [
                    (f"{name}/{qos}", b"%d" % number, qos) for number in range(5)
                ]

    asyncio.run(scenario())


@pytest.mark.parametrize("version", VERSIONS)
def test_retained_messages(place: Place, version: str, name: str) -> None:
    async def scenario() -> None:
        async with connected(place, VERSIONS[version], f"{name}-a") as sender:
            await sender.subscribe(f"{name}/#", 1)
            for qos in range(3):
                sender.gmqtt.publish(f"{name}/{qos}", b"kept", qos=qos, retain=True)
            for _ in range(3):
                await sender.next()
            async with connected(place, VERSIONS[version], f"{name}-b") as late:
                await late.subscribe(f"{name}/#", 2)
                got = [await late.next() for _ in range(3)]
                assert {(m.topic, m.qos) for m in got} == {(f"{name}/{q}", q) for q in range(3)}
                assert all(message.properties["retain"] for message in got)

    asyncio.run(scenario())


@pytest.mark.parametrize("version", VERSIONS)
def test_wills(place: Place, version: str, name: str) -> None:
    async def scenario() -> None:
        async with connected(place, VERSIONS[version], f"{name}-heir") as heir:
            await heir.subscribe(f"{name}/#", 2)
            will = gmqtt.Message(f"{name}/will", b"gone", qos=2)
            mortal = Client(f"{name}-mortal", will_message=will)
            mortal.gmqtt.set_config({"reconnect_retries": 0})
            await mortal.connect(place, VERSIONS[version])
            mortal.gmqtt._connection._transport.abort()  # no goodbye: the connection just ends
            message = await heir.next()
            assert (message.topic, message.payload, message.qos) == (f"{name}/will", b"gone", 2)

    asyncio.run(scenario())


def test_properties_of_mqtt_5(place: Place, name: str) -> None:
    async def scenario() -> None:
        async with connected(place, 5, name) as client:
            await client.subscribe(f"{name}/t", 1)
            client.gmqtt.publish(
                f"{name}/t",
                b"text",
                qos=1,
                content_type="text/plain",
                response_topic="answer",
                correlation_data=b"\x00\x01",
                user_property=[("a", "1"), ("b", "2")],
                message_expiry_interval=100,
            )
            properties = (await client.next()).properties
            assert properties["content_type"] == ["text/plain"]
            assert properties["response_topic"] == ["answer"]
            assert properties["correlation_data"] == [b"\x00\x01"]
            assert properties["user_property"] == [("a", "1"), ("b", "2")]
            assert 0 < properties["message_expiry_interval"][0] <= 100

    asyncio.run(scenario())
