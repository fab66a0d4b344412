"""MQTT.js, the client of Node and of browsers. Installed into a cache outside the repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from .place import Place

PACKAGE = "mqtt@5"
INSTALL = 120.0
PATIENCE = 60.0
CACHE = Path(
    os.environ.get("HEADGATE_NODE_CACHE", Path(tempfile.gettempdir()) / "headgate-test-mqttjs")
)
SCRIPT = Path(__file__).with_name("mqttjs.cjs")


@pytest.fixture(scope="module")
def modules() -> Path:
    """The folder of node modules with MQTT.js in it."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    found = CACHE / "node_modules"
    if not (found / "mqtt" / "package.json").exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--prefix", str(CACHE), "--no-audit", "--no-fund", PACKAGE]
        try:
            subprocess.run(command, check=True, timeout=INSTALL, capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm did not install {PACKAGE} within {INSTALL:.0f} s")
        except subprocess.CalledProcessError as error:
            last = error.stderr.strip().splitlines()[-1:]
            pytest.skip(f"npm could not install {PACKAGE}: {last}")
    return found


@pytest.mark.parametrize("place", ["tcp", "tls", "ws", "wss"], indirect=True)
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.timeout(200)
def test_everything_that_mqttjs_does(modules: Path, place: Place, version: int, name: str) -> None:
    """The scenario is in mqttjs.cjs; it tells what it saw as JSON."""
    scheme = {"tcp": "mqtt", "tls": "mqtts"}.get(place.transport, place.transport)
    path = "/mqtt" if place.websocket else ""
    url = f"{scheme}://{place.host}:{place.port}{path}"
    result = subprocess.run(
        ["node", str(SCRIPT), url, str(version), name, str(place.ca)],
        env={**os.environ, "NODE_PATH": str(modules)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    seen = json.loads(result.stdout)
    expected = [[f"{name}/{qos}", str(n), qos, False] for qos in range(3) for n in range(5)]
    assert seen["messages"] == expected
    assert seen["retained"] == [[f"{name}/kept", "kept", 1, True]]
    assert seen["will"] == [f"{name}/will", "gone", 2, False]
    assert seen["away"] == [str(number) for number in range(10)]
    assert seen["sessionPresent"] == [False, True]
    if version == 5:
        assert seen["userProperties"] == {"a": "1", "b": ["2", "3"]}
