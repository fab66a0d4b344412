"""Random numbers that depend on their place, not on their history.

Philox4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) maps a
counter and a key to 128 random bits. Here the key is the seed, and the counter says which number
is wanted:

    words 0, 1  which pair of numbers of the stream
    word  2     the stream: one for each random quantity of each part of the network
    word  3     the replication

So no two streams or replications overlap, a replication gives the same result on any worker and
in any order, and two policies on one scenario see the same arrivals and sizes.
"""

# mypy: disable-error-code="no-any-return"
# The records of the kernel have no types that mypy knows.

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

# Typed, so that strict checking sees through the decorators; nogil lets replications run in
# threads. The kernel allocates nothing, so numba's reference counting is left out, and its hot
# functions are inlined: passing some twenty arrays from call to call costs ten times what the
# calls do (docs/decisions/0012-simulator-kernel.md).
_OPTIONS: Any = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}
compiled = cast(Callable[[F], F], numba.njit(**_OPTIONS))
inlined = cast(Callable[[F], F], numba.njit(**_OPTIONS, forceinline=True))

RNG = np.dtype([("counter", np.uint64), ("spare", np.float64), ("ready", np.int8)], align=True)

_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_MANTISSA = np.uint64(11)
_ONE = np.uint64(1)


@inlined
def philox(
    c0: np.uint64,
    c1: np.uint64,
    c2: np.uint64,
    c3: np.uint64,
    k0: np.uint64,
    k1: np.uint64,
) -> tuple[np.uint64, np.uint64]:
    """The block of a counter as two 64-bit words, low words first."""
    for _ in range(10):
        p0 = _MULTIPLIER_0 * c0
        p1 = _MULTIPLIER_1 * c2
        c0 = (p1 >> _SHIFT) ^ c1 ^ k0
        c2 = (p0 >> _SHIFT) ^ c3 ^ k1
        c1 = p1 & _LOW
        c3 = p0 & _LOW
        k0 = (k0 + _WEYL_0) & _LOW
        k1 = (k1 + _WEYL_1) & _LOW
    return c0 | (c1 << _SHIFT), c2 | (c3 << _SHIFT)


@inlined
def uniform(rng: Any, stream: int, seed: np.uint64, replication: np.uint64) -> float:
    """The next number of a stream, strictly between 0 and 1."""
    state = rng[stream]
    if state.ready:
        state.ready = 0
        return state.spare
    counter = state.counter
    low, high = philox(
        counter & _LOW,
        counter >> _SHIFT,
        np.uint64(stream),
        replication,
        seed & _LOW,
        seed >> _SHIFT,
    )
    state.counter = counter + _ONE
    state.spare = (np.float64(high >> _MANTISSA) + 0.5) * 2.0**-53
    state.ready = 1
    return (np.float64(low >> _MANTISSA) + 0.5) * 2.0**-53


@inlined
def exponential(rng: Any, stream: int, seed: np.uint64, replication: np.uint64) -> float:
    """An exponential variate of mean 1."""
    return -math.log(uniform(rng, stream, seed, replication))
