"""The broker process: configuration, storage, listeners and signals around the core."""

from __future__ import annotations

import ctypes
import gc
import logging
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom
from types import FrameType

from msgspec.structs import replace

from headgate.access import Guard, HookedGatekeeper, examine
from headgate.config import Configuration, Durability, PlannerMode, load
from headgate.core.access import Gatekeeper
from headgate.core.broker import Broker
from headgate.core.hooks import Hook, Hooks
from headgate.core.restoring import restore
from headgate.core.snapshots import Snapshots
from headgate.core.states import OPEN
from headgate.core.statistics import Statistics
from headgate.errors import ConfigurationError, HeadgateError, StorageError
from headgate.server.companion import LOOK_EVERY, Companion, CompanionsDoor
from headgate.server.estimator import Estimator
from headgate.server.factories import make
from headgate.server.metrics import MetricsServer
from headgate.server.reactor import Reactor
from headgate.server.recorder import Recorder, run_name
from headgate.server.store import LogStore, Store
from headgate.server.store.spool import Settings as SpoolSettings
from headgate.server.store.spool import Spool
from headgate.server.transport.listener import Listener, open_listener
from headgate.server.transport.tls_context import examine_tls
from headgate.server.watch import Watch
from headgate.wire.reasons import Reason

log = logging.getLogger("headgate")

# malloc.h
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3

STARTS_WITH = (
    "listeners",
    "data_dir",
    "durability",
    "store",
    "hooks",
    "metrics",
    "recorder",
    "sys_interval",
    "snapshot_interval",
)
"""Sections that are read once; all others are obeyed when the file is read again."""

FAREWELL = 5.0
"""Seconds that clients have to take what is left when the broker shuts down."""


class Server:
    """Everything of one broker process. `run` returns when it was told to stop."""

    def __init__(
        self,
        config: Configuration,
        source: Path | None = None,
        companion: Companion | None = None,
    ) -> None:
        self.config = config
        self.started = config
        """What it started with: of `STARTS_WITH`, that is what runs, whatever was read since."""
        self.source = source
        """The file that SIGHUP reads again."""
        self.reactor = Reactor()
        self.clock = self.reactor.clock
        self.failure: Exception | None = None
        self.guard = Guard(config, self.reactor.post)
        self.listeners: list[Listener] = []
        self.metrics: MetricsServer | None = None
        self.recorder: Recorder | None = None
        hooks: list[Hook] = [make(name, config) for name in config.hooks]
        gatekeeper: Gatekeeper = HookedGatekeeper(self.guard, hooks) if hooks else self.guard
        self.companion = companion
        """The controller's process, if the broker is to have one."""
        self._door: Listener | None = None
        if companion is not None:
            gatekeeper = CompanionsDoor(gatekeeper, companion)
        self.name = run_name(self.clock())
        self.store = self._open_store()
        self._open_spool()
        self.broker = Broker(config, gatekeeper, self.store, SystemRandom(), Hooks(hooks))
        self.statistics = Statistics(self.broker, self.clock())

    def _open_store(self) -> Store:
        def committed(position: int) -> None:
            self.broker.committed(position, self.clock())

        if self.config.store is not None:
            store: Store = make(
                self.config.store, self.config, self.reactor.post, committed, self._storage_failed
            )
            return store
        try:
            self.config.data_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"cannot make the folder {self.config.data_dir}: {error.strerror}"
            ) from None
        return LogStore(
            self.config.data_dir,
            self.config.durability.value,
            self.reactor.post,
            committed,
            self._storage_failed,
        )

    def _open_spool(self) -> None:
        """What is captured waits in the data folder until it is in a segment."""
        recorder = self.config.recorder
        folder = self.config.data_dir / "captures"
        if recorder is None or (not recorder.captures and not folder.exists()):
            return
        self.store.spool = Spool(
            SpoolSettings(
                folder,
                self.name,
                synced=self.config.durability is Durability.FSYNC,
                file_size=recorder.segment_size,
                file_age=recorder.segment_age,
                limit=recorder.capture_size,
            )
        )

    def run(self, ready: Callable[[Server], None]) -> None:
        """Serve until a signal or a failure; `ready` is called when every listener accepts."""
        raise_descriptor_limit()
        try:
            saved = self.store.load()
            self.broker.control.restore(saved.values)
            restore(self.broker, saved, self.clock())
            if self.config.durability is Durability.NONE:
                self.broker.pool.durable = 1 << 62
            self.listeners = [open_listener(spec) for spec in self.config.listeners]
            for listener in self.listeners:
                self.reactor.listen(listener)
            if self.config.metrics is not None:
                self.metrics = MetricsServer(
                    self.config.metrics.address, self.statistics, self.clock, self.reactor.post
                )
            if self.config.recorder is not None:
                self.recorder = Recorder(
                    self.config.recorder, self.broker, self.store, self.name, self.clock()
                )
            self._catch_signals()
            if self.config.sys_interval:
                self.statistics.start(self.config.sys_interval, self.clock())
            self.broker.control.announce(self.clock())
            Watch(self.broker, Estimator(self.broker, self.clock()), self.clock())
            Snapshots(self.broker, self.config.snapshot_interval, self.clock())
            self.reactor.after_turn = self.store.flush
            tame_allocator()
            tame_collector()
            self._open_door()
            ready(self)
            self.reactor.run(self.broker)
        finally:
            if self.companion is not None:
                self.companion.close()
            if self._door is not None:
                self._door.close()
            if self.metrics is not None:
                self.metrics.close()
            for listener in self.listeners:
                listener.close()
            self.guard.close()
            self.store.close()  # its thread still reports to the reactor
            if self.recorder is not None:
                self.recorder.close(self.clock())
            self.reactor.close()
        if self.failure is not None:
            raise StorageError(f"the broker stopped: {self.failure}") from self.failure

    def _open_door(self) -> None:
        """Let the companion in, and look after it."""
        if self.companion is None:
            return
        self._door = open_listener(self.companion.listener, mode=0o600)
        self.reactor.listen(self._door)
        self._look_after_companion(self.clock())

    def _look_after_companion(self, now: float) -> None:
        assert self.companion is not None
        try:
            self.companion.look(now)
        except OSError as error:
            log.error("the controller cannot be started: %s", error)
        self.broker.schedule(now + LOOK_EVERY, self._look_after_companion)

    # Signals

    def _catch_signals(self) -> None:
        def ask(call: Callable[[], None]) -> Callable[[int, FrameType | None], None]:
            return lambda _number, _frame: self.reactor.post(call)

        signal.signal(signal.SIGTERM, ask(self.shut_down))
        signal.signal(signal.SIGINT, ask(self.shut_down))
        signal.signal(signal.SIGHUP, ask(self.reload))

    def reload(self) -> None:
        """Read the configuration file again; if it cannot be used, the old one stays."""
        if self.source is None:
            log.warning("there is no configuration file to read again")
            return
        try:
            fresh = load(self.source)
            if fresh == replace(Configuration(), data_dir=fresh.data_dir):
                # Half-written files look like this, and it would let everybody in.
                raise ConfigurationError(f"{self.source} says nothing")
            for flaw in (*examine(fresh), *examine_tls(fresh)):
                raise flaw
            self.guard.reload(fresh)
            for listener in self.listeners:
                for spec in fresh.listeners:
                    if spec.address == listener.config.address:
                        listener.reload_tls(spec.tls)
        except HeadgateError as error:
            log.error("the configuration stays as it was: %s", error)
            return
        # Listeners have taken up their certificates.
        running = replace(self.started, listeners=tuple(one.config for one in self.listeners))
        for name in STARTS_WITH:
            if getattr(fresh, name) != getattr(running, name):
                log.warning("%s changed: that takes a restart", name)
        off = PlannerMode.OFF
        if (fresh.planner.mode is off) != (self.started.planner.mode is off):
            log.warning("planner.mode changed from or to off: that takes a restart")
        elif self.companion is not None:
            self.companion.read_again()
        self.config = fresh
        self.broker.reconfigure(fresh, self.clock())
        log.info("the configuration was read again from %s", self.source)

    def shut_down(self) -> None:
        """Say goodbye to every client, let what is left be written, then stop."""
        for listener in self.listeners:
            self.reactor.deafen(listener)
        if self._door is not None:
            self.reactor.deafen(self._door)
        now = self.clock()
        for channel in self.reactor.channels():
            if channel.state == OPEN:
                self.broker.dismiss(
                    channel, Reason.SERVER_SHUTTING_DOWN, "the broker is shutting down", now
                )
            else:
                self.broker.shut(channel)
        self.broker.schedule(now + FAREWELL, lambda _: self.reactor.stop())
        self._stop_when_empty()

    def _stop_when_empty(self) -> None:
        if not self.reactor.channels():
            self.reactor.stop()
        else:
            self.broker.schedule(self.clock() + 0.02, lambda _: self._stop_when_empty())

    def _storage_failed(self, error: Exception) -> None:
        """What cannot be kept must not be acknowledged: stop, loudly."""
        log.critical("the store failed, the broker stops: %s", error)
        self.failure = error
        self.reactor.stop()


def tame_collector() -> None:
    """Look for reference cycles seldom: messages make none, and closed connections break theirs."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def tame_allocator() -> None:
    """Keep freed memory rather than give it back after every large read or write.

    glibc maps blocks above 128 KiB afresh each time; the page faults cost more than the work.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # not glibc
    mallopt(M_MMAP_THRESHOLD, 32 * 1024 * 1024)
    mallopt(M_TRIM_THRESHOLD, 64 * 1024 * 1024)


def raise_descriptor_limit() -> None:
    """Allow as many connections as the system lets us."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"cannot raise the limit of open files: {error}") from None
