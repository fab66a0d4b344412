"""Debian's Mosquitto, for what must work with any broker."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MOSQUITTO = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

no_mosquitto = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")


@contextmanager
def mosquitto(folder: Path) -> Iterator[int]:
    """One with its defaults, but for the number of messages that it queues; yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 10000\n"
    )
    folder.chmod(0o755)
    assert MOSQUITTO is not None
    process = subprocess.Popen([MOSQUITTO, "-c", config], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(30)
