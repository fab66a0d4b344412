"""Blocks of message records as a broker might have made them."""

from __future__ import annotations

from random import Random

import numpy as np

from headgate.core.tape import facets
from headgate.server.recorder.frames import ROW, Frame


def block(rng: Random, first: int, size: int) -> tuple[Frame, np.ndarray]:
    """Some flows and topics, under numbers of the block's own, and rows of all kinds."""
    flows = [
        (f"client-{rng.randrange(5)}", f"f/{number}", rng.choice(["", "film"]), "AN", "", number)
        for number in range(rng.choice([1, 3, 300]))
    ]
    topics = [
        f"t/{rng.randrange(10_000)}/{number}".encode() for number in range(rng.choice([1, 50]))
    ]
    rows = np.zeros(size, dtype=ROW)
    source = np.random.default_rng(first)
    rows["arrived"] = 1.7e9 + first * 1e-5 + np.arange(size) * 1e-5
    rows["at"] = rows["arrived"] + 0.01
    rows["flow"] = source.integers(0, len(flows), size)
    rows["topic"] = source.integers(0, len(topics), size)
    rows["count"] = source.integers(1, 5, size)
    rows["size"] = source.integers(1, 1 << 20, size)
    looks = [
        facets(0, 0, 2, 0, False),
        facets(1, 0, 1, 1, False),
        facets(2, 0, 0, 2, True),
        facets(3, 0, 2, 1, False),
    ]
    rows["facets"] = np.array(looks, dtype="u4")[source.integers(0, 4, size)]
    rows["since"] = np.where(rows["facets"] & 0xFF == 1, rows["at"] - 0.005, 0.0)
    frame = Frame(kind="messages", first=first, rows=size, flows=flows, topics=topics)
    return frame, rows
