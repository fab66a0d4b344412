"""A histogram of durations: eight buckets to the octave, from a microsecond to an hour.

A quantile read from it errs by at most 1/16 of its value. Adding costs a few nanoseconds, and two
histograms add up bucket by bucket.
"""

from __future__ import annotations

from array import array

OCTAVES = 32
BUCKETS = OCTAVES * 8


class Histogram:
    def __init__(self) -> None:
        self.counts = memoryview(array("Q", bytes(8 * BUCKETS)))
        self.count = 0
        self.total = 0.0

    def add(self, seconds: float, count: int) -> None:
        """Count `count` durations of `seconds`."""
        self.count += count
        self.total += seconds * count
        self.counts[bucket(seconds)] += count

    def clear(self) -> None:
        """Forget everything."""
        self.count = 0
        self.total = 0.0
        for index in range(BUCKETS):
            self.counts[index] = 0

    def quantile(self, fraction: float) -> float:
        """The duration that `fraction` of all do not exceed, in seconds; 0 if there are none."""
        if self.count == 0:
            return 0.0
        wanted = fraction * self.count
        seen = 0
        for index in range(BUCKETS):
            seen += self.counts[index]
            if seen and seen >= wanted:
                return middle(index)
        return 0.0

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0


def bucket(seconds: float) -> int:
    """The bucket of a duration. Below 8 µs each microsecond has its own."""
    if seconds <= 0.0:
        return 0
    micros = int(seconds * 1e6) if seconds < 4000.0 else 4_000_000_000
    octave = 0
    while micros >= 16:
        micros >>= 1
        octave += 1
    return octave * 8 + micros


def middle(index: int) -> float:
    """The duration in the middle of a bucket, in seconds."""
    if index < 16:
        return (index + 0.5) * 1e-6
    octave = index // 8 - 1
    return ((index - octave * 8) + 0.5) * (1 << octave) * 1e-6
