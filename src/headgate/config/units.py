"""Sizes, rates and durations as people write them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

_QUANTITY = re.compile(r"([0-9][0-9_]{0,17}(?:\.[0-9]{1,17})?)\s*([A-Za-z]*)", re.ASCII)

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

SIZES: Mapping[str, float] = {
    "": 1, "B": 1,
    "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9,
    "KiB": KIB, "MiB": MIB, "GiB": GIB,
}  # fmt: skip
RATES: Mapping[str, float] = {"": 1, "bit": 1, "kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9}
DURATIONS: Mapping[str, float] = {
    "": 1, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400,
}  # fmt: skip


def size(text: str) -> int:
    """Bytes in `16MiB`, `64KB` or `4096`; ValueError if it is none."""
    value = _quantity(text, SIZES)
    if 0 < value < 1:  # it would be 0, which is no limit
        raise ValueError(text)
    return round(value)


def rate(text: str) -> int:
    """Bits per second in `10Mbit`, `1.5Gbit` or `800kbit`; decimal, as networks are measured."""
    return round(_quantity(text, RATES))


def duration(text: str) -> float:
    """Seconds in `10s`, `5min`, `1h`, `250ms` or `30`."""
    return _quantity(text, DURATIONS)


def format_size(value: int) -> str:
    """The shortest exact form."""
    for unit in ("GiB", "MiB", "KiB", "GB", "MB", "KB"):
        if value and value % SIZES[unit] == 0:
            return f"{value // int(SIZES[unit])}{unit}"
    return str(value)


def format_rate(value: int) -> str:
    """The shortest exact form."""
    for unit in ("Gbit", "Mbit", "kbit"):
        if value % RATES[unit] == 0:
            return f"{value // int(RATES[unit])}{unit}"
    return f"{value}bit"


def format_duration(value: float) -> str:
    """The shortest exact form."""
    if value == 0:
        return "0s"
    for unit in ("d", "h", "min", "s"):
        if value % DURATIONS[unit] == 0:
            return f"{int(value // DURATIONS[unit])}{unit}"
    milliseconds = value * 1000
    return f"{milliseconds:.0f}ms" if milliseconds == round(milliseconds) else f"{value:.15f}s"


def _quantity(text: str, units: Mapping[str, float]) -> float:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[2] not in units:
        raise ValueError(text)
    value = float(match[1]) * units[match[2]]
    if not math.isfinite(value) or value > 2**63:
        raise ValueError(text)
    return value
