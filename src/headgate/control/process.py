"""The controller's process: an ordinary MQTT client around the loop.

It connects, takes the lease, feeds snapshots to the `Controller` and sends what it decides. If the
broker goes away it waits and comes back; if it crashes, the broker keeps the last policy.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import msgspec
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.subscribeoptions import SubscribeOptions

from headgate.config import Address, Configuration, PlannerMode
from headgate.contract import Application, Policy, Snapshot
from headgate.control.archive import Archive
from headgate.control.history import History, Record
from headgate.control.knowledge import Learned, Refused, watch
from headgate.control.loop import Controller
from headgate.control.planning import Plan
from headgate.errors import ConfigurationError
from headgate.model import Scenario

log = logging.getLogger("headgate.control")

SNAPSHOT = "$SYS/headgate/snapshot"
IN_FORCE = "$SYS/headgate/policy"
ANSWERS = "$SYS/headgate/control"
APPLICATIONS = "$SYS/headgate/applications"
SET_POLICY = "$CONTROL/headgate/policy"
LEASE = "$CONTROL/headgate/lease"
PLAN = "$CONTROL/headgate/plan"

AGAIN = "configuration"
"""Not a topic either: the configuration is to be read again."""
LEARNED = "knowledge"
"""Not a topic: what the pipeline left is put into the same queue."""

HUNG_AFTER = 30.0
"""Seconds without a turn after which the process ends itself; the broker starts it again."""
LEASE_SECONDS = 5.0
"""After a crash another controller waits this long at most."""
RENEW_EVERY = 1.5


@dataclass(frozen=True)
class Door:
    """Where the broker is, and how to get in."""

    address: Address
    username: str | None = None
    password: str | None = None
    tls: ssl.SSLContext | None = None


class Heartbeat:
    """Ends the process when its turns stop coming: one that hangs is worse than one that is gone,
    because nobody starts another."""

    def __init__(self, end: Callable[[], None] = lambda: os._exit(70)) -> None:
        self._end = end
        self._last = time.monotonic()
        self._stopped = threading.Event()

    def turn(self) -> None:
        self._last = time.monotonic()

    def stop(self) -> None:
        self._stopped.set()

    def watch(self, limit: float) -> None:
        def look() -> None:
            while not self._stopped.wait(limit / 10):
                if time.monotonic() - self._last > limit:
                    log.critical("the controller hangs: it ends itself")
                    self._end()
                    return

        threading.Thread(target=look, name="heartbeat", daemon=True).start()


class ControllerProcess:
    """Runs until `stop` is called."""

    def __init__(
        self,
        config: Configuration,
        door: Door,
        history: Path,
        read: Callable[[], Configuration] | None = None,
    ) -> None:
        self.controller = Controller(config, rehearse=in_short if config.planner.simulate else None)
        self.history = History(history)
        self.archive = Archive(history)
        self.name = f"headgate-controller-{os.getpid()}-{os.urandom(3).hex()}"
        self.holds_lease = False
        self._door = door
        self._read = read
        """Reads the configuration again."""
        self._lamented = ""
        """Why it cannot connect, as it was last told: once is enough."""
        self._asked_for_lease = 0.0
        self._inbox: queue.Queue[tuple[str, bytes | Learned | Refused]] = queue.Queue()
        self._folder = config.planner.knowledge or config.data_dir / "knowledge"
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
        if door.tls is not None:
            client.tls_set_context(door.tls)
        client.reconnect_delay_set(min_delay=1, max_delay=5)
        client.on_connect = self._connected
        client.on_connect_fail = self._not_connected
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
        self._lamented = ""
        client.subscribe([(topic, SubscribeOptions(qos=0)) for topic in _READS])

    def _not_connected(self, _client: mqtt.Client, _data: Any) -> None:
        """Not even as far as a refusal; paho tries again, and so tells nobody why."""
        address = self._door.address
        where = address.path or f"{address.host}:{address.port or 1883}"
        told = f"{where} cannot be reached: {sys.exc_info()[1] or 'it does not answer'}"
        if told != self._lamented:
            log.error(told)
        self._lamented = told

    def stop(self) -> None:
        self._stopped.set()
        self._inbox.put(("", b""))

    def read_again(self, *_: object) -> None:
        """On SIGHUP; what a signal interrupts is not the moment to do it."""
        self._inbox.put((AGAIN, b""))

    def _configure(self) -> None:
        if self._read is None:
            return
        try:
            config = self._read()
            if config.planner.mode is PlannerMode.OFF:
                raise ConfigurationError("planner.mode is off: stop the controller instead")
        except ConfigurationError as error:
            log.error("the configuration stays as it was: %s", error)
            return
        self.controller.configure(config)
        log.info("the configuration was read again")

    def run(self) -> None:
        """Work until told to stop."""
        address = self._door.address
        self._client.connect_async(address.path or address.host, address.port or 1883)
        self._client.loop_start()
        watch(self._folder, lambda news: self._inbox.put((LEARNED, news)), self._stopped)
        beat = Heartbeat()
        beat.watch(HUNG_AFTER)
        try:
            while not self._stopped.is_set():
                beat.turn()
                self._renew_lease()
                try:
                    first = self._inbox.get(timeout=RENEW_EVERY)
                except queue.Empty:
                    continue
                self._handle_all([first, *self._waiting()])
        finally:
            beat.stop()
            if self.holds_lease:
                self._publish(LEASE, self._lease(0.0))
            self._client.disconnect()
            self._client.loop_stop()

    def _waiting(self) -> Iterator[tuple[str, bytes | Learned | Refused]]:
        """What else came while the last turn lasted."""
        with suppress(queue.Empty):
            while True:
                yield self._inbox.get_nowait()

    def _handle_all(self, messages: Sequence[tuple[str, bytes | Learned | Refused]]) -> None:
        """All that waited. Of several snapshots the newest is decided upon: the others tell how
        things were, and an answer to them would come too late."""
        snapshots = [n for n, (topic, _) in enumerate(messages) if topic == SNAPSHOT]
        for number, (topic, payload) in enumerate(messages):
            if topic == SNAPSHOT and isinstance(payload, bytes):
                snapshot = Snapshot.from_json(payload)
                if number == snapshots[-1]:
                    self._see(snapshot)
                else:
                    self.controller.watch(snapshot)
            else:
                self._handle(topic, payload)

    def _handle(self, topic: str, payload: bytes | Learned | Refused) -> None:
        if isinstance(payload, (Learned, Refused)):
            record = self.controller.learned(payload, time.time())
            if self.holds_lease:
                self._note(record)
            log.info("%s: %s", record.event, record.why)
        elif topic == AGAIN:
            self._configure()
        elif topic == IN_FORCE:
            self.controller.policy_is(Policy.from_json(payload))
        elif topic == APPLICATIONS:
            self.controller.applications_are(msgspec.json.decode(payload, type=list[Application]))
        elif topic == ANSWERS:
            self._hear(msgspec.json.decode(payload))

    def _see(self, snapshot: Snapshot) -> None:
        if not self.holds_lease:
            self.controller.watch(snapshot)
            return
        try:
            answer = self.controller.see(snapshot, time.monotonic())
        except Exception:  # a mistake of ours must not end the watch
            log.exception("a snapshot could not be dealt with")
            return
        if answer.policy is not None:
            self._publish(SET_POLICY, answer.policy.to_json())
        for record in answer.before:
            self._note(record)
            log.info("%s: %s", record.event, record.why)
        if answer.record is not None:
            self._note(answer.record)
            if answer.planned_for is not None:
                policy = answer.policy or self.controller.in_force
                self.archive.keep(
                    answer.record.pddl,
                    answer.planned_for,
                    policy,
                    self.controller.config.links,
                )
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


_READS = (SNAPSHOT, IN_FORCE, ANSWERS, APPLICATIONS)


def in_short(scenario: Scenario, made: Plan) -> Sequence[str]:
    """Half a minute of simulated time: a fraction of a second, after the first."""
    from headgate.control.rehearsal import rehearse  # noqa: PLC0415 - it compiles when imported

    short = msgspec.structs.replace(scenario, duration=35.0, warmup=5.0)
    return rehearse(short, made, replications=1).broken


def run(
    config: Configuration,
    door: Door,
    parent: TextIO | None = None,
    read: Callable[[], Configuration] | None = None,
) -> None:
    """Control the broker at `door`. With `parent`, end when that stream does: it is gone.

    SIGHUP makes it `read` its configuration again.
    """
    if config.planner.mode is PlannerMode.OFF:
        raise ConfigurationError("planner.mode is off: set it to advise or auto")
    process = ControllerProcess(config, door, config.data_dir, read)
    signal.signal(signal.SIGHUP, process.read_again)
    if parent is not None:

        def watch() -> None:
            parent.read()
            process.stop()

        threading.Thread(target=watch, daemon=True).start()
    try:
        process.run()
    except KeyboardInterrupt:
        process.stop()
