"""Listeners of every kind, and peers for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from headgate.config.addresses import Address
from headgate.config.listeners import Listener as ListenerConfig
from headgate.config.listeners import ListenerType, Tls
from headgate.server.transport.listener import Listener, open_listener

from .certificates import TestCertificates, make_test_certificates
from .clients import (
    Client,
    DuplexTlsClient,
    PlainClient,
    TlsClient,
    WebSocketClient,
    client_context,
    connect_socket,
)
from .loop import Loop

Result = TypeVar("Result")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> TestCertificates:
    return make_test_certificates(tmp_path_factory.mktemp("certificates"))


class Stage:
    """Opens listeners, runs them in a loop, and runs peers beside them."""

    def __init__(self, folder: Path, certificates: TestCertificates) -> None:
        self.folder = folder
        self.certificates = certificates
        self.loops: list[Loop] = []
        self.clients: list[Client] = []
        self.threads = ThreadPoolExecutor(4)

    def config(self, kind: str, **fields: object) -> ListenerConfig:
        kind_of = ListenerType(kind)
        if kind_of is ListenerType.UNIX:
            fields.setdefault("address", Address(path=str(self.folder / "broker.sock")))
        fields.setdefault("address", Address(host="127.0.0.1", port=0))
        if kind_of.is_secure:
            fields.setdefault("tls", self.tls())
        return ListenerConfig(type=kind_of, **fields)  # type: ignore[arg-type]

    def tls(self, **fields: object) -> Tls:
        return Tls(
            certificate=self.certificates.server,
            key=self.certificates.server_key,
            **fields,  # type: ignore[arg-type]
        )

    def listen(self, kind: str, *, echo: bool = False, **fields: object) -> Loop:
        return self.run(open_listener(self.config(kind, **fields)), echo=echo)

    def run(self, listener: Listener, *, echo: bool = False) -> Loop:
        loop = Loop(listener, echo=echo)
        self.loops.append(loop)
        return loop

    def start(self, work: Callable[[], Result]) -> Future[Result]:
        """Run a peer in a thread."""
        return self.threads.submit(work)

    def finish(self, loop: Loop, work: Callable[[], Result]) -> Result:
        """Run a peer in a thread and the loop beside it until the peer is done."""
        future = self.start(work)
        loop.until(future.done, "the peer")
        return future.result()

    def connect(self, loop: Loop, *, small: bool = False, duplex: bool = False) -> Client:
        """A peer that fits the listener, its handshakes done."""
        client = self.finish(loop, lambda: self.dial(loop.listener, small, duplex))
        self.clients.append(client)
        return client

    def dial(self, listener: Listener, small: bool = False, duplex: bool = False) -> Client:
        kind = listener.config.type
        below = PlainClient(connect_socket(listener.address, small))
        if kind.is_secure:
            context = client_context(self.certificates)
            below = (DuplexTlsClient if duplex else TlsClient)(below.socket, context)
        return WebSocketClient(below, listener.config.path) if kind.is_websocket else below

    def close(self) -> None:
        for client in self.clients:
            client.close()
        for loop in self.loops:
            loop.close()
        self.threads.shutdown()


@pytest.fixture
def stage(tmp_path: Path, certificates: TestCertificates) -> Iterator[Stage]:
    made = Stage(tmp_path, certificates)
    yield made
    made.close()
