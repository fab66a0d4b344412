"""The controller's process: an ordinary MQTT client around the loop.

It connects, takes the lease, feeds snapshots to the `Controller` and sends what it decides. If the
broker goes away it waits and comes back; if it crashes, the broker keeps the last policy.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import msgspec
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.subscribeoptions import SubscribeOptions

from headgate.config import Address, Configuration, PlannerMode
from headgate.contract import Policy, Snapshot
from headgate.control.history import History, Record
from headgate.control.loop import Controller
from headgate.errors import ConfigurationError

log = logging.getLogger("headgate.control")

SNAPSHOT = "$SYS/headgate/snapshot"
IN_FORCE = "$SYS/headgate/policy"
ANSWERS = "$SYS/headgate/control"
SET_POLICY = "$CONTROL/headgate/policy"
LEASE = "$CONTROL/headgate/lease"
PLAN = "$CONTROL/headgate/plan"

LEASE_SECONDS = 5.0
"""After a crash another controller waits this long at most."""
RENEW_EVERY = 1.5


@dataclass(frozen=True)
class Door:
    """Where the broker is, and how to get in."""

    address: Address
    username: str | None = None
    password: str | None = None


class ControllerProcess:
    """Runs until `stop` is called."""

    def __init__(self, config: Configuration, door: Door, history: Path) -> None:
        self.controller = Controller(config)
        self.history = History(history)
        self.name = f"headgate-controller-{os.getpid()}-{os.urandom(3).hex()}"
        self.holds_lease = False
        self._door = door
        self._asked_for_lease = 0.0
        self._inbox: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self._stopped = threading.Event()
        self._client = self._make_client(door)

    def _make_client(self, door: Door) -> mqtt.Client:
        client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self.name,
            protocol=mqtt.MQTTv5,
            transport="unix" if door.address.path else "tcp",
        )
        if door.username is not None:
            client.username_pw_set(door.username, door.password)
        client.reconnect_delay_set(min_delay=1, max_delay=5)
        client.on_connect = self._connected
        client.on_message = lambda _client, _data, message: self._inbox.put(
            (message.topic, bytes(message.payload))
        )
        return client

    def _connected(
        self, client: mqtt.Client, _data: Any, _flags: Any, reason: Any, _properties: Any
    ) -> None:
        if reason.is_failure:
            log.error("the broker refused the controller: %s", reason)
            return
        client.subscribe([(topic, SubscribeOptions(qos=0)) for topic in _READS])

    def stop(self) -> None:
        self._stopped.set()
        self._inbox.put(("", b""))

    def run(self) -> None:
        """Work until told to stop."""
        address = self._door.address
        self._client.connect_async(address.path or address.host, address.port or 1883)
        self._client.loop_start()
        try:
            while not self._stopped.is_set():
                self._renew_lease()
                try:
                    topic, payload = self._inbox.get(timeout=RENEW_EVERY)
                except queue.Empty:
                    continue
                self._handle(topic, payload)
        finally:
            if self.holds_lease:
                self._publish(LEASE, self._lease(0.0))
            self._client.disconnect()
            self._client.loop_stop()

    def _handle(self, topic: str, payload: bytes) -> None:
        if topic == IN_FORCE:
            self.controller.policy_is(Policy.from_json(payload))
        elif topic == ANSWERS:
            self._hear(msgspec.json.decode(payload))
        elif topic == SNAPSHOT:
            self._see(Snapshot.from_json(payload))

    def _see(self, snapshot: Snapshot) -> None:
        if not self.holds_lease:
            self.controller.measurements.take(snapshot)
            return
        try:
            answer = self.controller.see(snapshot)
        except Exception:  # a mistake of ours must not end the watch
            log.exception("a snapshot could not be dealt with")
            return
        if answer.policy is not None:
            self._publish(SET_POLICY, answer.policy.to_json())
        if answer.record is not None:
            self._note(answer.record)
            log.info("%s: %s", answer.record.event, answer.record.why)

    def _note(self, record: Record) -> None:
        """For the history, and for the broker's records."""
        self.history.add(record)
        self._publish(PLAN, msgspec.json.encode(record))

    def _hear(self, answer: dict[str, Any]) -> None:
        """What the broker says to our commands."""
        if answer.get("client") != self.name:
            return
        accepted = bool(answer.get("ok"))
        if answer.get("command") == LEASE:
            if accepted != self.holds_lease:
                log.info("planning" if accepted else f"standing by: {answer.get('reason')}")
            self.holds_lease = accepted
        elif answer.get("command") == SET_POLICY and not accepted:
            record = self.controller.refused(str(answer.get("reason")), time.time())
            self._note(record)
            log.warning("the policy was refused: %s", record.why)

    def _renew_lease(self) -> None:
        now = time.monotonic()
        if now - self._asked_for_lease >= RENEW_EVERY and self._client.is_connected():
            self._asked_for_lease = now
            self._publish(LEASE, self._lease(LEASE_SECONDS))
        elif not self._client.is_connected():
            self.holds_lease = False

    def _lease(self, seconds: float) -> bytes:
        return msgspec.json.encode({"holder": self.name, "seconds": seconds})

    def _publish(self, topic: str, payload: bytes) -> None:
        if self._client.is_connected():
            self._client.publish(topic, payload, qos=1)


_READS = (SNAPSHOT, IN_FORCE, ANSWERS)


def run(config: Configuration, door: Door, parent: TextIO | None = None) -> None:
    """Control the broker at `door`. With `parent`, end when that stream does: it is gone."""
    if config.planner.mode is PlannerMode.OFF:
        raise ConfigurationError("planner.mode is off: set it to advise or auto")
    process = ControllerProcess(config, door, config.data_dir)
    if parent is not None:

        def watch() -> None:
            parent.read()
            process.stop()

        threading.Thread(target=watch, daemon=True).start()
    try:
        process.run()
    except KeyboardInterrupt:
        process.stop()
