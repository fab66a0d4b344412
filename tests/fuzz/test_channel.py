"""Mutated streams straight into the core: nothing but answers and closed connections comes out."""

from __future__ import annotations

import os
import random
import time
from typing import cast

from core.stage import Stage, Wire
from durability.peer import Peer as Client

from headgate.config import Configuration
from headgate.config.limits import Limits
from headgate.core.access import Peer
from headgate.core.link import MESSAGE
from headgate.core.states import CLOSING

from .streams import Streams

SECONDS = float(os.environ.get("HEADGATE_FUZZ_SECONDS", "5"))


class Deaf(Client):
    """Takes whatever comes and does not look at it."""

    def feed(self, data: bytes) -> None:
        assert data


def test_no_stream_of_bytes_breaks_the_core() -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")  # shown if the test fails
    streams = Streams(seed)
    rng = random.Random(seed)
    stage = Stage(Configuration(limits=Limits(queued_messages=50, inflight=5, connections=40)))
    wires: list[Wire] = []
    deadline = time.monotonic() + SECONDS
    count = 0
    while time.monotonic() < deadline:
        count += 1
        stage.now += rng.choice([0.0, 0.001, 0.5, 30.0])
        wire = Wire(stage, Deaf(f"wire-{count}"), stage.broker.open(Peer("x"), stage.now))
        wire.stalled = rng.random() < 0.1
        wires.append(wire)
        for piece in streams.pieces(streams.next()):
            if wire.open and wire.channel.state < CLOSING:
                wire.channel.receive(piece, stage.now)
            if rng.random() < 0.3:
                flush(stage)
        if rng.random() < 0.3:
            stage.commit()
        stage.broker.timers.run(stage.now)
        flush(stage)
        wires = [one for one in wires if one.open]
        while len(wires) > 20:
            wires.pop(rng.randrange(len(wires))).close()
        if rng.random() < 0.005:
            stage.crash()  # what was kept of all this must be readable, too
            wires.clear()
    for wire in wires:
        wire.close()
    stage.broker.timers.run(stage.now + 1e9)  # every session that can end has ended
    pool = stage.broker.pool
    queued = sum(session.queued_size for session in stage.broker.sessions.values())
    assert pool.size == queued + pool.messages * MESSAGE
    assert not stage.broker.channels
    assert count > 20 * SECONDS


def flush(stage: Stage) -> None:
    """The end of a turn."""
    broker = stage.broker
    while broker.board or broker.closing:
        waiting = broker.board[:]
        broker.board.clear()
        for outlet in waiting:
            outlet.listed = False
            if outlet.connection is not None:
                cast(Wire, outlet.connection).flush()
        ending, broker.closing = broker.closing, []
        for channel in ending:
            cast(Wire, channel.connection).close()
