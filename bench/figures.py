"""Summaries of response times."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Times:
    """Response times in milliseconds; not a number where there are none."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float
    most: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Times":
        """The summary of times in seconds."""
        if not seconds:
            return cls(0, math.nan, math.nan, math.nan, math.nan, math.nan)
        ordered = sorted(seconds)

        def quantile(share: float) -> float:
            return 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]

        mean = 1e3 * math.fsum(ordered) / len(ordered)
        middle, high, higher = quantile(0.5), quantile(0.95), quantile(0.99)
        return cls(len(ordered), mean, middle, high, higher, 1e3 * ordered[-1])

    @classmethod
    def read(cls, stored: dict[str, Any]) -> "Times":
        """A summary as JSON has it."""
        known = {key: math.nan if value is None else float(value) for key, value in stored.items()}
        return cls(int(known.pop("count")), **known)
