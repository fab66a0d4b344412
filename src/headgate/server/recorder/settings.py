"""What the encoder is told when it starts."""

from __future__ import annotations

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    place: str
    """A folder's absolute path, or a URL that Arrow knows."""
    broker: str
    """The run of the broker that records."""
    segment_size: int
    segment_age: float
    keep: float
    """Seconds after which a segment is removed; 0 keeps all."""
    keep_size: int
    """Bytes of all segments; 0 is no limit."""
    guaranteed: bool = False
    """What was captured is removed by age alone."""
    spool: str = ""
    """The folder in which captured messages wait; empty if nothing is captured."""
    arena: int = -1
    """The descriptor of the memory that holds rows of messages; -1 if none are recorded."""
    returns: int = -1
    """The descriptor to which the numbers of blocks go that were read."""
