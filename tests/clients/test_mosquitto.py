"""mosquitto_pub and mosquitto_sub, if they are installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from .place import Place

PATIENCE = 30.0
VERSIONS = {"3.1": "mqttv31", "3.1.1": "mqttv311", "5.0": "mqttv5"}

pytestmark = pytest.mark.skipif(
    not all(shutil.which(name) for name in ("mosquitto_pub", "mosquitto_sub", "stdbuf")),
    reason="mosquitto_pub, mosquitto_sub or stdbuf is not installed",
)


def options(place: Place, version: str) -> list[str]:
    found = ["-h", place.host, "-p", str(place.port), "-V", VERSIONS[version]]
    return [*found, "--cafile", str(place.ca)] if place.secure else found


def publish(place: Place, version: str, *arguments: str) -> None:
    command = ["mosquitto_pub", *options(place, version), *arguments]
    subprocess.run(command, check=True, timeout=PATIENCE)


@contextmanager
def subscriber(place: Place, version: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """mosquitto_sub that has subscribed; it prints QoS, retained and payload of each message."""
    command = ["mosquitto_sub", *options(place, version), "-d", "-F", "got %q %r %p", *arguments]
    command = ["stdbuf", "-oL", *command]  # into a pipe, it would keep its lines to itself
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if "SUBACK" in line or "Subscribed" in line:
                    break
            yield process
            process.wait(PATIENCE)
        finally:
            process.kill()


def messages(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return [line[4:].rstrip("\n") for line in process.stdout if line.startswith("got ")]


@pytest.mark.parametrize("place", ["tcp", "tls"], indirect=True)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_a_message_there_and_back(place: Place, version: str, qos: str, name: str) -> None:
    with subscriber(place, version, "-t", f"{name}/#", "-q", qos, "-C", "2") as process:
        publish(place, version, "-t", f"{name}/a", "-m", "first", "-q", qos)
        publish(place, version, "-t", f"{name}/b", "-m", "second", "-q", qos, "-r")
        assert messages(process) == [f"{qos} 0 first", f"{qos} 0 second"]
    with subscriber(place, version, "-t", f"{name}/#", "-q", qos, "-C", "1") as process:
        assert messages(process) == [f"{qos} 1 second"]


def test_request_and_response(place: Place, name: str) -> None:
    """mosquitto_rr speaks MQTT 5 with response topics."""
    if not shutil.which("mosquitto_rr"):
        pytest.skip("mosquitto_rr is not installed")
    arguments = ["-t", f"{name}/request", "-e", f"{name}/response", "-m", "question"]
    command = ["mosquitto_rr", *options(place, "5.0"), "-W", "30", *arguments]
    with subscriber(place, "5.0", "-t", f"{name}/request", "-C", "1", "-q", "1") as process:
        asking = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert messages(process) == ["0 0 question"]
        publish(place, "5.0", "-t", f"{name}/response", "-m", "answer", "-q", "1")
        output, _ = asking.communicate(timeout=PATIENCE)
        assert output.strip() == "answer"
