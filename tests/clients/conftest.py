from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from durability.process import MortalBroker
from server.transport.certificates import make_test_certificates

from .place import TRANSPORTS, Place

_numbers = count()


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    """A broker that listens in every way there is."""
    folder = tmp_path_factory.mktemp("clients")
    certificates = make_test_certificates(folder / "certificates")
    tls = f"tls: {{certificate: {certificates.server}, key: {certificates.server_key}}}"
    with tempfile.TemporaryDirectory(prefix="hg") as short:  # a socket's path has 107 bytes at most
        socket = Path(short) / "mqtt"
        config = "\n".join(
            [
                "listeners:",
                '  - {type: tcp, address: "127.0.0.1:0"}',
                f'  - {{type: tls, address: "127.0.0.1:0", {tls}}}',
                '  - {type: ws, address: "127.0.0.1:0"}',
                f'  - {{type: wss, address: "127.0.0.1:0", {tls}}}',
                f"  - {{type: unix, address: {socket}}}",
            ]
        )
        with MortalBroker(folder / "broker", config) as broker:
            yield {
                kind: Place(kind, str(socket), 0, certificates.ca)
                if kind == "unix"
                else Place(kind, "localhost", broker.port_of(kind), certificates.ca)
                for kind in TRANSPORTS
            }
            broker.stop()


@pytest.fixture
def place(request: pytest.FixtureRequest, places: dict[str, Place]) -> Place:
    """Where a test connects: its parameter, or plain TCP."""
    return places[getattr(request, "param", "tcp")]


@pytest.fixture
def name() -> str:
    """A client id or topic that no other test uses."""
    return f"client-{next(_numbers)}"
