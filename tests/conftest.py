"""Fixtures for every test that needs a running broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import BrokerProcess, StartBroker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker with default settings for all tests: use topics and client ids of your own."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    process.stop_if_running()


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts brokers of this test's own, with YAML text as their configuration."""
    processes: list[BrokerProcess] = []

    def start(config: str = "") -> BrokerProcess:
        process = BrokerProcess(tmp_path / f"broker-{len(processes)}", config)
        processes.append(process)
        process.start()
        return process

    yield start
    for process in processes:
        process.stop_if_running()
