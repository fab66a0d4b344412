"""aiomqtt: asyncio around paho, as many applications use it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

import aiomqtt
import pytest

from .place import TRANSPORTS, Place

PATIENCE = 30.0
VERSIONS = [aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5]


def client(place: Place, **options: Any) -> aiomqtt.Client:
    if place.websocket:
        options |= {"transport": "websockets", "websocket_path": "/mqtt"}
    elif place.transport == "unix":
        options |= {"transport": "unix"}
    return aiomqtt.Client(
        place.host,
        place.port or 1,
        timeout=PATIENCE,
        tls_context=place.tls_context(),
        **options,
    )


async def take(from_client: aiomqtt.Client, count: int) -> list[aiomqtt.Message]:
    messages = []
    async with asyncio.timeout(PATIENCE):
        async for message in from_client.messages:
            messages.append(message)
            if len(messages) == count:
                break
    return messages


@pytest.mark.parametrize("place", TRANSPORTS, indirect=True)
@pytest.mark.parametrize("version", VERSIONS)
def test_messages_of_every_qos_over_every_transport(
    place: Place, version: aiomqtt.ProtocolVersion, name: str
) -> None:
    async def scenario() -> None:
        async with client(place, identifier=name, protocol=version) as one:
            for qos in range(3):
                await one.subscribe(f"{name}/{qos}", qos=qos)
                for number in range(5):
                    await one.publish(f"{name}/{qos}", f"{number}", qos=qos)
                got = await take(one, 5)
                assert [m.payload for m in got] == [b"%d" % number for number in range(5)]
                assert {(str(m.topic), m.qos) for m in got} == {(f"{name}/{qos}", qos)}

    asyncio.run(scenario())


@pytest.mark.parametrize("version", VERSIONS)
def test_retained_messages_and_wills(
    place: Place, version: aiomqtt.ProtocolVersion, name: str
) -> None:
    async def scenario() -> None:
        will = aiomqtt.Will(f"{name}/will", "gone", qos=1)
        async with client(place, identifier=f"{name}-heir", protocol=version) as heir:
            await heir.publish(f"{name}/state", "on", qos=1, retain=True)
            await heir.subscribe(f"{name}/#", qos=1)
            (state,) = await take(heir, 1)
            assert (state.payload, state.retain) == (b"on", True)
            mortal = client(place, identifier=f"{name}-mortal", protocol=version, will=will)
            await mortal.__aenter__()
            mortal._client.socket().shutdown(socket.SHUT_RDWR)  # no goodbye: it just ends
            (message,) = await take(heir, 1)
            assert (str(message.topic), message.payload) == (f"{name}/will", b"gone")
            with suppress(aiomqtt.MqttError):
                await mortal.__aexit__(None, None, None)
            await heir.publish(f"{name}/state", None, qos=1, retain=True)

    asyncio.run(scenario())


def test_many_clients_at_once(place: Place, name: str) -> None:
    """Each of 20 sends to all: 400 messages, none missing."""

    async def member(number: int, everybody: asyncio.Barrier) -> None:
        async with client(place, identifier=f"{name}-{number}") as one:
            await one.subscribe(f"{name}/#", qos=1)
            await everybody.wait()
            await one.publish(f"{name}/{number}", f"{number}", qos=1)
            got = await take(one, 20)
            assert sorted(int(message.payload) for message in got) == list(range(20))
            await everybody.wait()  # nobody leaves before all have theirs

    async def scenario() -> None:
        everybody = asyncio.Barrier(20)
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(member(number, everybody))

    asyncio.run(scenario())
