"""The encoder: a process that turns frames into segments (started by feeder.py).

A process and not a thread, because encoding would take the interpreter's lock from the loop. It
ends when its input does: also if the broker was killed, what had been handed over is published.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import time
from io import FileIO

import msgspec

from headgate.contract.records import CAPTURES
from headgate.server.recorder import frames
from headgate.server.recorder.captures import Unloader
from headgate.server.recorder.places import place_of
from headgate.server.recorder.segments import Segments
from headgate.server.recorder.settings import Settings
from headgate.server.recorder.tables import table_of

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
    # Unbuffered: what Python had read ahead would not show in `select`.
    with open(sys.stdin.fileno(), "rb", buffering=0) as stream:  # noqa: PTH123 (a descriptor)
        encode(stream, segments, Unloader(settings.spool, segments), settings.broker)


def encode(stream: FileIO, segments: Segments, unloader: Unloader, broker: str) -> None:
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
        taken = frames.read(stream)
        if taken is None:
            break
        frame, columns = taken
        if frame.kind == CAPTURES.kind:
            unloader.look()
            continue
        try:
            segments.add(frame.kind, table_of(frame, columns, broker), time.time())
        except OSError as error:
            log.error("%d records of kind %s are lost: %s", frame.rows, frame.kind, error)
    segments.close()
    unloader.close()


if __name__ == "__main__":
    main()
