"""The controller beside a real broker: it is let in, plans, survives, and leaves nobody else in."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from broker_process import BrokerProcess
from click.testing import CliRunner
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from recorder.reading import records

from headgate.cli.main import commands
from headgate.control.history import Event, History
from headgate.control.process import Heartbeat

PATIENCE = 60.0

CONFIG = """
auth: {local_roles: [admin]}
snapshot_interval: 200ms
applications:
  alarm: {clients: ["alarm-*"], requirement: {mean_ms: 30, loss: 0.0}, weight: 10}
  archive: {clients: ["archive"], requirement: {mean_ms: 5000, loss: 0.5}}
links:
  - {name: floor, clients: ["alarm-*", "archive"], rate: 1Mbit}
planner: {mode: auto}
recorder: {folder: records, messages: 0, segment_age: 100ms}
"""


class Site:
    """A broker with its controller, two subscribers, and a device that publishes."""

    def __init__(self, folder: Path, config: str = CONFIG) -> None:
        self.broker = BrokerProcess(folder, config)
        self.broker.start()
        self.policies: list[dict] = []
        self.answers: list[dict] = []
        self.got = 0
        self._stop = threading.Event()
        self._clients = [self._client(name) for name in ("alarm-1", "archive", "ops")]
        self.device = self._client("device")
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()

    def _client(self, name: str) -> mqtt.Client:
        client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=mqtt.MQTTv5)
        client.on_message = self._received
        topics = {"alarm-1": "t", "archive": "t", "ops": "$SYS/headgate/policy"}
        client.on_connect = lambda c, *_: (
            [c.subscribe(topics[name])]
            + ([c.subscribe("$SYS/headgate/control")] if name == "ops" else [])
            if name in topics
            else None
        )
        client.connect("127.0.0.1", self.broker.port)
        client.loop_start()
        return client

    def _received(self, _client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        if message.topic == "$SYS/headgate/policy":
            self.policies.append(json.loads(message.payload))
        elif message.topic == "$SYS/headgate/control":
            self.answers.append(json.loads(message.payload))
        else:
            self.got += 1

    def _publish(self) -> None:
        while not self._stop.wait(0.02):
            self.device.publish("t", b"x" * 1000)

    @property
    def version(self) -> int:
        return self.policies[-1]["version"] if self.policies else 0

    def controllers(self) -> list[int]:
        """Process ids of the broker's children that control it."""
        listing = Path(f"/proc/{self.broker.pid}/task/{self.broker.pid}/children").read_text()
        return [
            int(pid)
            for pid in listing.split()
            if b"--companion" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        for client in (*self._clients, self.device):
            client.disconnect()
            client.loop_stop()
        self.broker.stop_if_running()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_it_plans_for_what_it_sees_and_says_why(site: Site, tmp_path: Path) -> None:
    wait_until(lambda: site.version > 0, f"no policy\n{site.broker.errors}")
    rules = site.policies[-1]["rules"]
    first = {r["application"]: r["priority"] for r in rules if "application" in r}
    assert first["alarm"] < first["archive"]
    history = History(tmp_path / "data")
    wait_until(lambda: any(r.event is Event.APPLIED for r in history), "nothing in the history")
    wait_until(lambda: bool(records(tmp_path / "records", "plans")), "no plan on record")
    assert records(tmp_path / "records", "plans")[0]["event"] == "applied"


def test_a_link_for_everybody_does_not_hold_the_controller(tmp_path: Path) -> None:
    """On a full link it would hear of the trouble when it is over."""
    site = Site(tmp_path, CONFIG.replace('["alarm-*", "archive"], rate', '["*"], rate'))
    links: dict[str, str] = {}

    def note(_client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        for flow in json.loads(message.payload)["flows"]:
            links[flow["client"].partition("-controller")[0]] = flow.get("link", "")

    watcher = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="watcher")
    watcher.on_connect = lambda c, *_: c.subscribe("$SYS/headgate/snapshot")
    watcher.on_message = note
    watcher.connect("127.0.0.1", site.broker.port)
    watcher.loop_start()
    try:
        wait_until(lambda: {"headgate", "watcher"} <= links.keys(), "no snapshot tells of both")
    finally:
        watcher.disconnect()
        watcher.loop_stop()
        site.close()
    assert links["watcher"] == "floor"
    assert links["headgate"] == ""


def test_it_reads_the_configuration_again_with_the_broker(site: Site, tmp_path: Path) -> None:
    wait_until(lambda: site.version > 0, f"no policy\n{site.broker.errors}")
    changed = site.broker.text.replace("mean_ms: 30", "mean_ms: 40")
    site.broker.write_config(changed)
    os.kill(site.broker.pid, signal.SIGHUP)
    said = "controller: the configuration was read again"
    wait_until(lambda: said in site.broker.errors, f"not read again\n{site.broker.errors}")


def test_its_end_changes_nothing_and_it_comes_back(site: Site) -> None:
    wait_until(lambda: site.version > 0, f"no policy\n{site.broker.errors}")
    (pid,) = site.controllers()
    version, got = site.version, site.got
    asks_less = os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)
    assert asks_less, "the controller competes with the broker for the processor"
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: site.got > got + 50, "the device's messages do not arrive any more")
    assert site.version == version
    wait_until(lambda: bool(site.controllers()) and site.controllers() != [pid], "no new one")
    (fresh,) = site.controllers()
    site.close()  # the broker ends cleanly, and takes the controller with it
    wait_until(lambda: not Path(f"/proc/{fresh}").exists(), "the controller outlived its broker")


def test_its_door_is_for_it_alone(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "data" / "controller.sock"
    assert path.stat().st_mode & 0o777 == 0o600
    refused: list[object] = []
    for user, password in (("$controller", "guess"), (None, None), ("$controller", "")):
        client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id="intruder",
            protocol=mqtt.MQTTv5,
            transport="unix",
        )
        if user is not None:
            client.username_pw_set(user, password)
        client.on_connect = lambda _c, _d, _f, reason, _p: refused.append(reason)
        client.connect(str(path))
        deadline = time.monotonic() + PATIENCE
        seen = len(refused)
        while len(refused) == seen and time.monotonic() < deadline:
            client.loop(0.1)
        client.disconnect()
    assert len(refused) == 3
    assert all(reason.is_failure for reason in refused)  # type: ignore[attr-defined]


def test_two_controllers_do_not_plan_at_once(site: Site) -> None:
    wait_until(lambda: site.version > 0, f"no policy\n{site.broker.errors}")
    site.device.publish(
        "$CONTROL/headgate/lease", json.dumps({"holder": "another", "seconds": 10}), qos=1
    )

    def answered() -> bool:
        return any(a["client"] == "device" for a in site.answers)

    wait_until(answered, "no answer")
    answer = next(a for a in site.answers if a["client"] == "device")
    assert answer["ok"] is False
    assert "has the lease for another" in answer["reason"]


def test_commanded_applications_and_periods_are_announced(site: Site) -> None:
    wait_until(lambda: site.version > 0, f"no policy\n{site.broker.errors}")
    heard: dict[str, list[bytes]] = {}
    listener = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="listener")
    listener.on_message = lambda _c, _d, m: heard.setdefault(m.topic, []).append(m.payload)
    listener.on_connect = lambda c, *_: c.subscribe(
        [("$SYS/headgate/period/#", 0), ("$SYS/headgate/applications", 0)]
    )
    listener.connect("127.0.0.1", site.broker.port)
    listener.loop_start()
    try:
        wait_until(lambda: "$SYS/headgate/applications" in heard, "no list of applications")
        assert json.loads(heard["$SYS/headgate/applications"][0]) == []
        camera = {"name": "camera", "clients": ["cam-*"], "requirement": {"mean_ms": 9000}}
        site.device.publish("$CONTROL/headgate/applications", json.dumps([camera]), qos=1)
        wait_until(lambda: len(heard["$SYS/headgate/applications"]) > 1, "not announced")
        assert json.loads(heard["$SYS/headgate/applications"][1])[0]["name"] == "camera"
        told = {"version": 1000, "rules": [], "periods": {"a/b": 2.5}}
        site.device.publish("$CONTROL/headgate/policy", json.dumps(told), qos=1)
        wait_until(lambda: "$SYS/headgate/period/a/b" in heard, "the period is not announced")
        assert json.loads(heard["$SYS/headgate/period/a/b"][0]) == {"period_s": 2.5}
        bad = {"version": 1001, "rules": [], "periods": {"a/#": 2.5}}
        site.device.publish("$CONTROL/headgate/policy", json.dumps(bad), qos=1)

        def refused() -> bool:
            return any(not a["ok"] and "periods" in str(a.get("reason")) for a in site.answers)

        wait_until(refused, "a wildcard has no period")
        gone = {"version": 2000, "rules": []}
        site.device.publish("$CONTROL/headgate/policy", json.dumps(gone), qos=1)
        wait_until(lambda: len(heard["$SYS/headgate/period/a/b"]) > 1, "it is not taken back")
        assert heard["$SYS/headgate/period/a/b"][1] == b""
    finally:
        listener.disconnect()
        listener.loop_stop()


def test_a_controller_that_hangs_ends_itself() -> None:
    ended = threading.Event()
    beat = Heartbeat(ended.set)
    beat.watch(0.2)
    until = time.monotonic() + 0.6
    while time.monotonic() < until:
        beat.turn()
        time.sleep(0.01)
    assert not ended.is_set()
    assert ended.wait(10)
    ended.clear()
    beat = Heartbeat(ended.set)
    beat.watch(0.1)
    beat.stop()
    assert not ended.wait(0.4)


def test_off_is_off(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, CONFIG.replace("auto", "off"))
    broker.start()
    try:
        assert not (tmp_path / "data" / "controller.sock").exists()
        with socket.create_connection(("127.0.0.1", broker.port)):
            pass
    finally:
        broker.stop()


def test_what_a_client_asks_for_itself_is_planned_for(tmp_path: Path) -> None:
    """Nobody configured it; it says so in MQTT 5 properties, on a link that is too narrow."""
    config = CONFIG.replace('["alarm-*", "archive"], rate: 1Mbit', '["*"], rate: 900kbit')
    config = re.sub(r"  alarm: .*\n", "", config)
    site = Site(tmp_path, config)
    guest = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="guest", protocol=mqtt.MQTTv5)
    properties = Properties(PacketTypes.SUBSCRIBE)
    properties.UserProperty = [("application", "panel"), ("max-response-ms", "200")]
    guest.on_connect = lambda c, *_: c.subscribe("t", properties=properties)
    history = History(tmp_path / "data")
    try:
        wait_until(lambda: site.version > 0, f"no policy\n{site.broker.errors}")
        guest.connect("127.0.0.1", site.broker.port)
        guest.loop_start()
        wait_until(
            lambda: any("panel" in r.get("application", "") for r in site.policies[-1]["rules"]),
            f"not planned for\n{site.broker.errors}",
        )
        wait_until(
            lambda: any("panel (200 ms)" in r.predicted for r in history), "nothing was promised"
        )
        levels = {r.get("application"): r.get("priority") for r in site.policies[-1]["rules"]}
        assert levels["panel"] < levels["archive"]
        asked = CliRunner().invoke(
            commands, ["whatif", "--data-dir", str(tmp_path / "data"), "--link", "floor=2Mbit"]
        )
        assert "panel (200 ms)" in asked.output
    finally:
        guest.disconnect()
        guest.loop_stop()
        site.close()
