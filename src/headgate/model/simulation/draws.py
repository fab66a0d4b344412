"""Variates of every distribution, and the next arrival of every process."""

# mypy: disable-error-code="no-any-return"
# The records of the kernel have no types that mypy knows.

from __future__ import annotations

import math
from typing import Any

from headgate.model.distributions import Kind
from headgate.model.simulation.layout import ArrivalKind
from headgate.model.simulation.philox import compiled, exponential, uniform

_CONSTANT = int(Kind.CONSTANT)
_EXPONENTIAL = int(Kind.EXPONENTIAL)
_UNIFORM = int(Kind.UNIFORM)
_ERLANG = int(Kind.ERLANG)
_HYPEREXPONENTIAL = int(Kind.HYPEREXPONENTIAL)
_LOGNORMAL = int(Kind.LOGNORMAL)

_POISSON = int(ArrivalKind.POISSON)
_PERIODIC = int(ArrivalKind.PERIODIC)
_JITTERED = int(ArrivalKind.JITTERED)
_BURSTS = int(ArrivalKind.BURSTS)


@compiled
def draw(
    draws: Any, index: int, table: Any, rng: Any, stream: int, seed: Any, replication: Any
) -> float:
    what = draws[index]
    kind = what.kind
    if kind == _CONSTANT:
        return what.mean
    if kind == _EXPONENTIAL:
        return what.mean * exponential(rng, stream, seed, replication)
    if kind == _UNIFORM:
        return what.mean + what.a * (2 * uniform(rng, stream, seed, replication) - 1)
    if kind == _ERLANG:
        total = 0.0
        for _ in range(int(what.a)):
            total += exponential(rng, stream, seed, replication)
        return what.mean / what.a * total
    if kind == _HYPEREXPONENTIAL:
        p = what.a
        if uniform(rng, stream, seed, replication) >= p:
            p = 1 - p
        return what.mean / (2 * p) * exponential(rng, stream, seed, replication)
    if kind == _LOGNORMAL:
        # Box and Muller; the second variate is not kept, so that one draw is two numbers always.
        radius = math.sqrt(2 * exponential(rng, stream, seed, replication))
        angle = 2 * math.pi * uniform(rng, stream, seed, replication)
        return math.exp(what.b + what.a * radius * math.cos(angle))
    place = what.low + int(uniform(rng, stream, seed, replication) * (what.high - what.low))
    return table[place]


@compiled
def next_arrival(
    source: Any, table: Any, now: float, rng: Any, seed: Any, replication: Any
) -> float:
    """When the source publishes again; infinity at the end of a trace."""
    kind = source.kind
    stream = source.arrival_rng
    if kind == _POISSON:
        return now + source.interval * exponential(rng, stream, seed, replication)
    if kind == _PERIODIC:
        source.nominal += source.interval
        return source.nominal
    if kind == _JITTERED:
        # Around the nominal times, so that delays do not add up; never before now.
        source.nominal += source.interval
        shift = source.jitter * (uniform(rng, stream, seed, replication) - 0.5)
        return max(now, source.nominal + shift)
    if kind == _BURSTS:
        # Poisson while ON; memoryless, so a gap that outlasts the ON period starts anew in the
        # next.
        time = now
        while True:
            following = time + source.interval * exponential(rng, stream, seed, replication)
            if following <= source.phase_end:
                return following
            time = source.phase_end + source.off * exponential(rng, stream, seed, replication)
            source.phase_end = time + source.on * exponential(rng, stream, seed, replication)
    source.position += 1
    if source.position >= source.high:
        return math.inf
    return table[source.position]


@compiled
def first_arrival(source: Any, table: Any, rng: Any, seed: Any, replication: Any) -> float:
    """Stationary where it can be: periodic sources start at a random point of their period."""
    kind = source.kind
    stream = source.arrival_rng
    if kind in (_PERIODIC, _JITTERED):
        source.nominal = -source.interval * uniform(rng, stream, seed, replication)
    elif kind == _BURSTS:
        odds = uniform(rng, stream, seed, replication) * (source.on + source.off)
        start = (
            0.0 if odds < source.on else source.off * exponential(rng, stream, seed, replication)
        )
        source.phase_end = start + source.on * exponential(rng, stream, seed, replication)
        following = start + source.interval * exponential(rng, stream, seed, replication)
        if following <= source.phase_end:
            return following
        return next_arrival(source, table, source.phase_end, rng, seed, replication)
    else:
        source.position = source.low - 1
    return next_arrival(source, table, 0.0, rng, seed, replication)
