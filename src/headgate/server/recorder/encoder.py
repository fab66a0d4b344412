"""The encoder: a process that turns frames into segments (started by feeder.py).

A process and not a thread, because encoding would take the interpreter's lock from the loop. It
ends when its input does: also if the broker was killed, what had been handed over is published.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sys
import time
from io import FileIO
from mmap import PROT_READ, mmap

import msgspec
import numpy as np

from headgate.contract.records import CAPTURES, MESSAGES
from headgate.core.tape import ROWS
from headgate.server.recorder import frames
from headgate.server.recorder.captures import Unloader
from headgate.server.recorder.frames import ROW, Frame
from headgate.server.recorder.places import place_of
from headgate.server.recorder.rows import Part
from headgate.server.recorder.segments import Segments
from headgate.server.recorder.settings import Settings
from headgate.server.recorder.tables import events

log = logging.getLogger("headgate.recorder")


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    os.nice(10)  # messages before records
    try:
        segments = Segments(place_of(settings.place), settings)
    except (OSError, ValueError) as error:
        log.error("records cannot be written to %s: %s", settings.place, error)
        sys.exit(1)
    arena = Arena(settings.arena, settings.returns)
    # Unbuffered: what Python had read ahead would not show in `select`.
    with open(sys.stdin.fileno(), "rb", buffering=0) as stream:  # noqa: PTH123 (a descriptor)
        encode(stream, arena, segments, Unloader(settings.spool, segments), settings.broker)


class Arena:
    """The broker's rows, and the pipe by which it learns which it can use again."""

    def __init__(self, descriptor: int, returns: int) -> None:
        self._returns = returns
        self._rows = np.empty(0, dtype=ROW)
        if descriptor >= 0:
            memory = mmap(descriptor, 0, prot=PROT_READ)
            self._rows = np.frombuffer(memory, dtype=ROW)

    def take(self, frame: Frame) -> np.ndarray:
        """The rows of a frame; they stay as they are until they are given back."""
        start = frame.block * ROWS
        return self._rows[start : start + frame.rows]

    def give_back(self, frame: Frame) -> None:
        with contextlib.suppress(BrokenPipeError):  # the broker was killed
            os.write(self._returns, bytes([frame.block]))


def encode(
    stream: FileIO, arena: Arena, segments: Segments, unloader: Unloader, broker: str
) -> None:
    """Until the end of the stream. A disk that is full loses records, and is told of.

    What was captured is not in the stream: it waits in the spool until it is published.
    """
    while True:
        try:
            patience = segments.tick(time.time())
        except OSError as error:
            log.error("a segment is lost: %s", error)
            patience = 1.0
        if not select.select([stream], [], [], patience)[0]:
            continue
        frame = frames.read(stream)
        if frame is None:
            break
        if frame.kind == CAPTURES.kind:
            unloader.look()
            continue
        try:
            if frame.kind == MESSAGES.kind:
                segments.add(frame.kind, Part(frame, arena.take(frame)), time.time())
            else:
                segments.add(frame.kind, events(frame, broker), time.time())
        except OSError as error:
            log.error("%d records of kind %s are lost: %s", frame.rows, frame.kind, error)
        finally:
            if frame.kind == MESSAGES.kind:
                arena.give_back(frame)
    try:
        segments.close()
    except OSError as error:
        log.error("a segment is lost: %s", error)
    finally:
        unloader.close()  # or else its thread would keep this process, and its pipes, for ever


if __name__ == "__main__":
    main()
