"""The broker's side of the recorder: what happens in the loop's thread."""

from __future__ import annotations

import importlib.util
import logging
import os
import time
import uuid
from mmap import mmap
from typing import TYPE_CHECKING

from headgate.config import RecorderConfig
from headgate.config.recorder import Capture
from headgate.contract.records import CAPTURES, CONNECTIONS, PLANS, POLICIES, Coming, Schema
from headgate.core.broker import Broker
from headgate.core.observing import Captured, Observer, Parting
from headgate.core.tape import BLOCK_SIZE, Block, Tape
from headgate.errors import ConfigurationError
from headgate.server.recorder import frames
from headgate.server.recorder.feeder import Feeder
from headgate.server.recorder.settings import Settings
from headgate.server.store.spool import Spool
from headgate.server.store.store import Store

if TYPE_CHECKING:
    from headgate.core.control import Planned
    from headgate.core.session import Session

log = logging.getLogger(__name__)

BLOCKS = 32
"""Blocks of message records in all, 1.5 MB each: a million rows, if the encoder is behind."""

EVENT_KINDS = (CONNECTIONS.kind, POLICIES.kind, PLANS.kind)

TICK = 1.0
"""Seconds after which a block is handed over though it is not full."""

EVENTS = 100_000
"""Events that may wait for the encoder; beyond it they are lost, and counted."""


class Recorder(Observer):
    """Gathers, numbers and hands over. Nothing here waits for the encoder."""

    def __init__(
        self, config: RecorderConfig, broker: Broker, store: Store, run: str, now: float
    ) -> None:
        if importlib.util.find_spec("pyarrow") is None:
            raise ConfigurationError(
                "recorder: pyarrow is missing: pip install 'headgate[recorder]'"
            )
        self._broker = broker
        self._store = store
        self._arena = os.memfd_create("headgate-records") if config.messages else -1
        self._feeder = Feeder(settings(config, run, store.spool, self._arena))
        self._sequence = dict.fromkeys(("messages", *EVENT_KINDS), 0)
        self._events: dict[str, list[tuple[object, ...]]] = {kind: [] for kind in EVENT_KINDS}
        self._under_way = 0
        self._lost_events = 0
        self._tape: Tape | None = None
        if config.messages:
            every = max(1, round(1 / config.messages))
            os.ftruncate(self._arena, BLOCKS * BLOCK_SIZE)
            arena = mmap(self._arena, BLOCKS * BLOCK_SIZE)
            self._tape = Tape(self._hand_over, BLOCKS, every, self._reclaim, arena)
            broker.pool.tape = self._tape
        broker.observer = self
        self._event(CONNECTIONS, now, Coming.STARTED, "", "", "", "", "", None, None, None)
        document = broker.enforcer.policy.to_json().decode()
        version = broker.enforcer.policy.version
        self._event(POLICIES, now, "start", "", True, "", version, None, document)
        self._nudging = False
        self._told = False
        broker.captures.begin(config.captures)
        broker.schedule(now + TICK, self._tick)

    def captures(self) -> Captured:
        spool = self._store.spool
        if spool is None:
            return super().captures()
        lost = self._store.crowded_out + self._store.captures_lost
        taken = self._broker.captures.taken
        stalled = self._store.stalled or bool(self._broker.captures.held)
        return Captured(taken - lost, lost, spool.waiting, stalled)

    def tally(self) -> tuple[int, int]:
        handed_over = sum(self._sequence.values())
        lost = self._feeder.lost
        crowded_out = 0 if self._tape is None else self._tape.lost
        return handed_over - lost, lost + crowded_out + self._lost_events

    def close(self, now: float) -> None:
        """The broker ends: publish what there is."""
        self._event(CONNECTIONS, now, Coming.STOPPED, "", "", "", "", "", None, None, None)
        self._flush()
        self._broker.pool.tape = None
        self._broker.observer = Observer()
        if self._tape is not None:
            self._tape.finish()
        self._feeder.close()
        if self._arena >= 0:
            os.close(self._arena)

    # What happens

    def connected(self, session: Session, present: bool, now: float) -> None:
        self._connection(session, Coming.CONNECTED, "", present, now)

    def parted(self, session: Session, why: Parting, now: float) -> None:
        self._connection(session, Coming.PARTED, why, None, now)

    def session_ended(self, session: Session, now: float) -> None:
        self._connection(session, Coming.ENDED, "", None, now)

    def commanded(
        self, command: str, client: str, answer: dict[str, object], payload: bytes, now: float
    ) -> None:
        self._event(
            POLICIES,
            now,
            command,
            client,
            answer["ok"],
            answer.get("reason", ""),
            answer.get("version"),
            answer.get("flows"),
            payload.decode(errors="replace"),
        )

    def planned(self, plan: Planned, client: str, payload: bytes, now: float) -> None:
        self._event(
            PLANS,
            now,
            client,
            plan.event,
            plan.why,
            plan.version,
            plan.rules,
            plan.seconds,
            payload.decode(errors="replace"),
        )

    def _connection(
        self, session: Session, event: Coming, reason: str, present: bool | None, now: float
    ) -> None:
        channel = session.channel
        link = session.link
        self._event(
            CONNECTIONS,
            now,
            event,
            session.client_id,
            session.identity.user or "",
            "" if channel is None else channel.peer.address,
            "" if link is None else link.name,
            reason,
            None if channel is None else channel.version,
            present,
            session.expiry,
        )

    def _event(self, schema: Schema, now: float, *values: object) -> None:
        waiting = self._events[schema.kind]
        if len(waiting) >= EVENTS:
            self._lost_events += 1
        else:
            waiting.append((now, *values))

    # Handing over

    def _tick(self, now: float) -> None:
        tape = self._tape
        if tape is not None:
            tape.deaf = 0
            if tape.place > tape.begin:
                tape.turn()
            else:
                self._reclaim()
                tape.sweep()
        self._flush()
        self._nudge()
        self._tell_of_room()
        self._broker.captures.resume(now)
        self._broker.schedule(now + TICK, self._tick)

    def _nudge(self) -> None:
        """Have files of the spool completed, and an encoder look after those that are.

        Also if the last encoder was killed: to be told something starts another.
        """
        spool = self._store.spool
        if spool is None:
            return
        self._store.look_after_spool()
        if spool.sealed and not self._nudging:
            self._nudging = True
            frame = frames.Frame(kind=CAPTURES.kind, first=0, rows=0)
            self._feeder.put(frames.header(frame), 0, self._nudged)

    def _tell_of_room(self) -> None:
        held = len(self._broker.captures.held)
        if held and not self._told:
            log.error(
                "captured messages wait for the encoder and there is no room for more: "
                "%d publishers wait (recorder.capture_size)",
                held,
            )
        elif self._told and not held:
            log.info("there is room again for captured messages")
        self._told = held > 0

    def _nudged(self) -> None:
        """In the feeder's thread."""
        self._nudging = False

    def _hand_over(self, block: Block) -> None:
        assert self._tape is not None
        records = block.rows - block.hollow
        first = self._number("messages", records)
        self._feeder.lend(frames.block_frame(block, first, self._tape.every), records, block.index)

    def _reclaim(self) -> None:
        assert self._tape is not None
        for number in self._feeder.reclaim():
            block = self._tape.blocks[number]
            block.clear()
            self._tape.free.append(block)

    def _flush(self) -> None:
        """Hand over events, unless the encoder is behind: then they wait, and are bounded."""
        if self._under_way:
            return
        for kind, events in self._events.items():
            if events:
                self._events[kind] = []
                frame = frames.Frame(
                    kind=kind,
                    first=self._number(kind, len(events)),
                    rows=len(events),
                    events=events,
                )
                self._under_way += 1
                self._feeder.put(frames.header(frame), len(events), self._arrived)

    def _arrived(self) -> None:
        """In the feeder's thread. Only ever one of each kind is under way."""
        self._under_way -= 1

    def _number(self, kind: str, rows: int) -> int:
        first = self._sequence[kind]
        self._sequence[kind] = first + rows
        return first


def run_name(now: float) -> str:
    """What a run of the broker is called, unlike any other."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now))}-{uuid.uuid4().hex[:8]}"


def settings(config: RecorderConfig, run: str, spool: Spool | None, arena: int) -> Settings:
    return Settings(
        place=config.place,
        broker=run,
        segment_size=config.segment_size,
        segment_age=config.segment_age,
        keep=config.keep,
        keep_size=config.keep_size,
        guaranteed=any(one.capture is Capture.GUARANTEED for one in config.captures),
        spool="" if spool is None else str(spool.settings.folder.absolute()),
        arena=arena,
    )
