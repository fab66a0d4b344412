"""Clients that are closed at the end of a test, and names that no other test uses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Protocol

import pytest
from broker_process import BrokerProcess

from headgate.wire.packets import Version

from .client import Client

_numbers = itertools.count(1)


class Dial(Protocol):
    def __call__(self, version: Version = Version.V5, *, port: int | None = None) -> Client: ...


class Enter(Protocol):
    def __call__(
        self,
        client_id: str = "",
        version: Version = Version.V5,
        *,
        port: int | None = None,
        **fields: Any,
    ) -> Client: ...


@pytest.fixture
def dial(broker: BrokerProcess) -> Iterator[Dial]:
    """Opens connections on which nothing was said yet."""
    clients: list[Client] = []

    def open_connection(version: Version = Version.V5, *, port: int | None = None) -> Client:
        client = Client(broker.port if port is None else port, version)
        clients.append(client)
        return client

    yield open_connection
    for client in clients:
        client.close()


@pytest.fixture
def enter(dial: Dial) -> Enter:
    """Opens connections whose CONNECT was accepted. `fields` are those of `Connect`."""

    def connected(
        client_id: str = "",
        version: Version = Version.V5,
        *,
        port: int | None = None,
        **fields: Any,
    ) -> Client:
        client = dial(version, port=port)
        client.connect(client_id, **fields)
        return client

    return connected


@pytest.fixture
def name() -> str:
    """A topic and a client id of this test's own."""
    return f"conformance-{next(_numbers)}"


@pytest.fixture(params=[Version.V311, Version.V5], ids=["3.1.1", "5.0"])
def version(request: pytest.FixtureRequest) -> Version:
    """What both versions promise, both are asked for."""
    value: Version = request.param
    return value
