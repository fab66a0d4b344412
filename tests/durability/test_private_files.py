"""What the broker writes is for its owner's eyes, whatever the shell's default is."""

from __future__ import annotations

import os
from pathlib import Path

from broker_process import BrokerProcess
from paho.mqtt import publish

RECORDED = "recorder: {segment_age: 100ms, captures: [{topics: '#', capture: guaranteed}]}"


def test_files_and_folders_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        broker = BrokerProcess(tmp_path / "broker", RECORDED)
        broker.start()
        try:
            publish.single("state", "secret", 1, retain=True, port=broker.port)
        finally:
            broker.stop()
    finally:
        os.umask(before)
    made = [
        path
        for folder in ("data", "records")
        for path in [tmp_path / "broker" / folder, *(tmp_path / "broker" / folder).rglob("*")]
    ]
    assert len(made) > 8  # journal, lock, segments and their folders
    seen = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o077 for path in made}
    assert not any(seen.values()), {path: oct(mode) for path, mode in seen.items() if mode}
