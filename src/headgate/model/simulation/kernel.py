"""The compiled simulation: events in order of time, until a pause, a full buffer or the end.

All state lives in the arrays of `Memory`, so that Python may enlarge a buffer, show progress or
stop between two calls, and the result does not depend on where the calls were cut.

Expiry costs no events. A message in a queue whose lifetime ended is taken out when the server
comes to it, when the queue is found full, or at the end, and is counted at its deadline: to
everyone else it makes no difference that it lay there. A message in service is cut off at its
deadline on time.
"""

# mypy: disable-error-code="no-any-return"
# The records of the kernel have no types that mypy knows.

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from headgate.model.simulation.calendar import pop_delayed, push_delayed, set_timer
from headgate.model.simulation.draws import draw, first_arrival, next_arrival
from headgate.model.simulation.layout import (
    NONE,
    OCTAVES,
    SMALLEST_OCTAVE,
    Outcome,
    Status,
)
from headgate.model.simulation.philox import compiled, inlined, uniform

_DELIVERED = int(Outcome.DELIVERED)
_THINNED = int(Outcome.THINNED)
_REFUSED = int(Outcome.REFUSED)
_OVERFLOW = int(Outcome.OVERFLOW)
_OVERFLOW_OFF = int(Outcome.OVERFLOW_OFF)
_EXPIRED = int(Outcome.EXPIRED)

_DONE = int(Status.DONE)
_PAUSED = int(Status.PAUSED)
_MESSAGES_FULL = int(Status.MESSAGES_FULL)
_RECORDS_FULL = int(Status.RECORDS_FULL)

_LOWEST = float(2.0**SMALLEST_OCTAVE)
_BIAS = 1023 + SMALLEST_OCTAVE


class Memory(NamedTuple):
    """Everything that the kernel reads and writes."""

    control: Any  # one CONTROL record
    draws: Any
    table: Any  # values of traces and empirical distributions
    sources: Any
    streams: Any
    path: Any  # stations of all streams, one path after the other
    stations: Any
    heads: Any  # queue of station s, level l: s * levels + l
    tails: Any
    levels: Any  # an empty array whose size is the number of levels
    messages: Any
    times: Any  # timers: sources, services of stations, switches of stations, the delay heap
    winners: Any
    delay_times: Any
    delay_slots: Any
    rng: Any
    batches: Any
    histogram: Any
    records: Any


@inlined
def bucket(seconds: float, sub_buckets: int) -> int:
    """Octave and part of the octave, from the bits of the number."""
    if seconds < _LOWEST:
        return 0
    bits = np.float64(seconds).view(np.int64)
    octave = (bits >> 52) - _BIAS
    if octave >= OCTAVES:
        return OCTAVES * sub_buckets - 1
    part = ((bits & 0xFFFFFFFFFFFFF) * sub_buckets) >> 52
    return int(octave * sub_buckets + part)


@inlined
def leave(m: Memory, stream: int, outcome: int, created: float, left: float, size: float) -> None:
    """Count a copy that leaves the network."""
    control = m.control[0]
    if left < control.warmup or (left >= control.horizon and control.drain == 0):
        return
    statistics = m.streams[stream]
    statistics.outcomes[outcome] += 1
    batch = min(m.batches.shape[1] - 1, int((left - control.warmup) * control.batches_per_second))
    if outcome == _DELIVERED:
        response = left - created
        statistics.total += response
        statistics.squares += response * response
        statistics.largest = max(statistics.largest, response)
        statistics.bytes += size
        m.batches[stream, batch].total += response
        m.batches[stream, batch].count += 1
        m.histogram[stream, bucket(response, control.sub_buckets)] += 1
    else:
        m.batches[stream, batch].lost += 1
    if control.keep_records:
        record = m.records[control.records]
        record.created = created
        record.left = left
        record.size = size
        record.stream = stream
        record.outcome = outcome
        control.records += 1


@inlined
def release(m: Memory, slot: int) -> None:
    control = m.control[0]
    m.messages[slot].next = control.free_head
    control.free_head = slot
    control.free += 1
    control.on_their_way -= 1


@compiled
def lose(m: Memory, slot: int, outcome: int, left: float) -> None:
    """A message leaves before its end; in the input queue, with all copies it would have had."""
    message = m.messages[slot]
    if message.stream != NONE:
        leave(m, message.stream, outcome, message.created, left, message.size)
    else:
        source = m.sources[message.source]
        for stream in range(source.first_stream, source.first_stream + source.streams):
            leave(m, stream, outcome, message.created, left, message.size)
    release(m, slot)


@inlined
def allocate(m: Memory, created: float, size: float, source: int, stream: int, level: int) -> int:
    control = m.control[0]
    slot = control.free_head
    message = m.messages[slot]
    control.free_head = message.next
    control.free -= 1
    control.on_their_way += 1
    message.created = created
    message.deadline = math.inf
    message.remaining = -1.0
    message.size = size
    message.source = source
    message.stream = stream
    message.hop = 0
    message.level = level
    message.next = NONE
    return slot


@compiled
def stop_serving(m: Memory, place: int) -> None:
    """Keep what is left of the service: it will be resumed."""
    station = m.stations[place]
    station_message = m.messages[station.serving]
    station_message.remaining -= m.control[0].now - station.started
    set_timer(m.times, m.winners, m.sources.size + place, math.inf)


@inlined
def serve(m: Memory, place: int, slot: int) -> None:
    """Start or resume a service; a deadline that comes first ends it."""
    control = m.control[0]
    station = m.stations[place]
    message = m.messages[slot]
    if message.remaining < 0.0:
        if station.service == NONE:
            message.remaining = (
                station.seconds_per_message + message.size * station.seconds_per_byte
            )
        else:
            message.remaining = draw(
                m.draws,
                station.service,
                m.table,
                m.rng,
                station.service_rng,
                control.seed,
                control.replication,
            )
    station.serving = slot
    station.started = control.now
    end = min(control.now + message.remaining, message.deadline)
    set_timer(m.times, m.winners, m.sources.size + place, end)


@inlined
def dispatch(m: Memory, place: int) -> None:
    """If the server is free and connected, serve the first message of the first level."""
    station = m.stations[place]
    if station.serving != NONE or not station.connected or station.present == 0:
        return
    now = m.control[0].now
    levels = m.levels.size
    queue = place * levels
    for _ in range(levels):
        while m.heads[queue] != NONE:
            slot = m.heads[queue]
            message = m.messages[slot]
            m.heads[queue] = message.next
            if message.next == NONE:
                m.tails[queue] = NONE
            if message.stream != NONE:
                m.streams[message.stream].waiting -= 1
            if message.deadline <= now:
                station.present -= 1
                lose(m, slot, _EXPIRED, message.deadline)
                continue
            serve(m, place, slot)
            return
        queue += 1


@compiled
def purge(m: Memory, place: int) -> None:
    """Take out what has expired, in queue or interrupted service."""
    now = m.control[0].now
    station = m.stations[place]
    if station.serving != NONE and m.messages[station.serving].deadline <= now:
        station.present -= 1
        slot = station.serving
        station.serving = NONE
        set_timer(m.times, m.winners, m.sources.size + place, math.inf)
        lose(m, slot, _EXPIRED, m.messages[slot].deadline)
    levels = m.levels.size
    for queue in range(place * levels, (place + 1) * levels):
        before = NONE
        slot = m.heads[queue]
        while slot != NONE:
            message = m.messages[slot]
            following = message.next
            if message.deadline <= now:
                if before == NONE:
                    m.heads[queue] = following
                else:
                    m.messages[before].next = following
                if following == NONE:
                    m.tails[queue] = before
                station.present -= 1
                if message.stream != NONE:
                    m.streams[message.stream].waiting -= 1
                lose(m, slot, _EXPIRED, message.deadline)
            else:
                before = slot
            slot = following


@inlined
def is_full(m: Memory, place: int, stream: int) -> bool:
    station = m.stations[place]
    if station.capacity != NONE and station.present >= station.capacity:
        return True
    if stream == NONE:
        return False
    flow = m.streams[stream]
    occupied = station.serving != NONE or not station.connected
    return flow.capacity != NONE and occupied and flow.waiting >= flow.capacity


@inlined
def arrive(m: Memory, slot: int, place: int) -> None:
    """A message comes to a station; `dispatch` must follow once all that come at once are there."""
    control = m.control[0]
    station = m.stations[place]
    message = m.messages[slot]
    if station.delay:
        time = control.now + draw(
            m.draws,
            station.service,
            m.table,
            m.rng,
            station.service_rng,
            control.seed,
            control.replication,
        )
        push_delayed(m.delay_times, m.delay_slots, control.delayed, time, slot)
        control.delayed += 1
        set_timer(m.times, m.winners, m.sources.size + 2 * m.stations.size, m.delay_times[0])
        return
    stream = message.stream
    if stream != NONE:
        flow = m.streams[stream]
        if not station.connected and flow.join < 1.0:
            chance = uniform(m.rng, flow.choice_rng, control.seed, control.replication)
            if chance >= flow.join:
                lose(m, slot, _REFUSED, control.now)
                return
    if is_full(m, place, stream):
        purge(m, place)
        if is_full(m, place, stream):
            lose(m, slot, _OVERFLOW if station.connected else _OVERFLOW_OFF, control.now)
            return
    station.present += 1
    levels = m.levels.size
    if station.preemptive and station.serving != NONE and station.connected:
        served = station.serving
        if m.messages[served].level > message.level:
            stop_serving(m, place)
            station.serving = NONE
            queue = place * levels + m.messages[served].level
            m.messages[served].next = m.heads[queue]
            if m.heads[queue] == NONE:
                m.tails[queue] = served
            m.heads[queue] = served
            if m.messages[served].stream != NONE:
                m.streams[m.messages[served].stream].waiting += 1
    queue = place * levels + message.level
    message.remaining = -1.0
    message.next = NONE
    if m.tails[queue] == NONE:
        m.heads[queue] = slot
    else:
        m.messages[m.tails[queue]].next = slot
    m.tails[queue] = slot
    if stream != NONE:
        m.streams[stream].waiting += 1


@inlined
def fan_out(m: Memory, number: int, created: float, size: float) -> None:
    """One copy for every subscription that the drop rate spares, all at the same instant."""
    control = m.control[0]
    source = m.sources[number]
    last = source.first_stream + source.streams
    for stream in range(source.first_stream, last):
        flow = m.streams[stream]
        if flow.drop > 0.0:
            chance = uniform(m.rng, flow.choice_rng, control.seed, control.replication)
            if chance < flow.drop:
                leave(m, stream, _THINNED, created, control.now, size)
                continue
        if flow.hops == 0:
            leave(m, stream, _DELIVERED, created, control.now, size)
            continue
        slot = allocate(m, created, size, number, stream, flow.level)
        if flow.lifetime != NONE:
            deadline = created + draw(
                m.draws,
                flow.lifetime,
                m.table,
                m.rng,
                flow.lifetime_rng,
                control.seed,
                control.replication,
            )
            m.messages[slot].deadline = deadline
            if deadline <= control.now:
                lose(m, slot, _EXPIRED, deadline)
                continue
        arrive(m, slot, m.path[flow.first_hop])
    # Only now: of copies that come together, the most urgent goes first.
    for stream in range(source.first_stream, last):
        flow = m.streams[stream]
        if flow.hops > 0:
            dispatch(m, m.path[flow.first_hop])


@inlined
def advance(m: Memory, slot: int) -> None:
    """A message has passed a station: on to the next, or out."""
    message = m.messages[slot]
    stream = message.stream
    if stream == NONE:
        fan_out(m, message.source, message.created, message.size)
        release(m, slot)
        return
    flow = m.streams[stream]
    message.hop += 1
    if message.hop < flow.hops:
        place = m.path[flow.first_hop + message.hop]
        arrive(m, slot, place)
        dispatch(m, place)
    else:
        leave(m, stream, _DELIVERED, message.created, m.control[0].now, message.size)
        release(m, slot)


@inlined
def publish(m: Memory, number: int) -> None:
    control = m.control[0]
    source = m.sources[number]
    following = next_arrival(source, m.table, control.now, m.rng, control.seed, control.replication)
    if following >= control.horizon:
        following = math.inf
    set_timer(m.times, m.winners, number, following)
    size = draw(
        m.draws, source.size, m.table, m.rng, source.size_rng, control.seed, control.replication
    )
    if source.entry == NONE:
        fan_out(m, number, control.now, size)
    else:
        slot = allocate(m, control.now, size, number, NONE, 0)
        arrive(m, slot, source.entry)
        dispatch(m, source.entry)


@inlined
def complete(m: Memory, place: int) -> None:
    """A service ends, or the deadline of the message in service has come."""
    station = m.stations[place]
    slot = station.serving
    station.serving = NONE
    station.present -= 1
    set_timer(m.times, m.winners, m.sources.size + place, math.inf)
    message = m.messages[slot]
    now = m.control[0].now
    if message.deadline <= now:
        lose(m, slot, _EXPIRED, message.deadline)
    else:
        advance(m, slot)
    dispatch(m, place)


@compiled
def switch(m: Memory, place: int) -> None:
    """The server connects or disconnects; an interrupted service is resumed (ON/OFF §III)."""
    control = m.control[0]
    station = m.stations[place]
    if station.connected:
        station.connected = 0
        if station.serving != NONE:
            stop_serving(m, place)
        period = station.off
    else:
        station.connected = 1
        period = station.on
        slot = station.serving
        if slot != NONE:
            if m.messages[slot].deadline <= control.now:
                station.serving = NONE
                station.present -= 1
                lose(m, slot, _EXPIRED, m.messages[slot].deadline)
            else:
                serve(m, place, slot)
        dispatch(m, place)
    time = control.now + draw(
        m.draws, period, m.table, m.rng, station.switch_rng, control.seed, control.replication
    )
    set_timer(m.times, m.winners, m.sources.size + m.stations.size + place, time)


@compiled
def begin(m: Memory) -> None:
    """Set the first timers. Exponential ON/OFF periods start in their stationary state."""
    control = m.control[0]
    for number in range(m.sources.size):
        time = first_arrival(m.sources[number], m.table, m.rng, control.seed, control.replication)
        set_timer(m.times, m.winners, number, time if time < control.horizon else math.inf)
    for place in range(m.stations.size):
        station = m.stations[place]
        station.connected = 1
        if station.on != NONE:
            on, off = m.draws[station.on].mean, m.draws[station.off].mean
            chance = uniform(m.rng, station.switch_rng, control.seed, control.replication)
            station.connected = 1 if chance * (on + off) < on else 0
            period = draw(
                m.draws,
                station.on if station.connected else station.off,
                m.table,
                m.rng,
                station.switch_rng,
                control.seed,
                control.replication,
            )
            set_timer(m.times, m.winners, m.sources.size + m.stations.size + place, period)


@compiled
def run(m: Memory, budget: int) -> int:
    """Process at most `budget` events; the answer is a `Status`."""
    control = m.control[0]
    sources = m.sources.size
    switches = sources + m.stations.size
    delays = switches + m.stations.size
    if control.now < 0.0:
        control.now = 0.0
        begin(m)
    for _ in range(budget):
        timer = m.winners[1]
        time = m.times[timer]
        if time >= control.horizon and (
            control.drain == 0 or control.on_their_way == 0 or time == math.inf
        ):
            control.now = control.horizon
            return _DONE
        # One event brings at most one message and its copies; it ends at most what is there.
        if control.free <= control.widest:
            return _MESSAGES_FULL
        if control.keep_records and (
            control.records + control.on_their_way + control.widest >= m.records.size
        ):
            return _RECORDS_FULL
        control.now = time
        control.events += 1
        if timer < sources:
            publish(m, timer)
        elif timer < switches:
            complete(m, timer - sources)
        elif timer < delays:
            switch(m, timer - switches)
        else:
            slot = pop_delayed(m.delay_times, m.delay_slots, control.delayed)
            control.delayed -= 1
            following = m.delay_times[0] if control.delayed > 0 else math.inf
            set_timer(m.times, m.winners, delays, following)
            if m.messages[slot].deadline <= control.now:
                lose(m, slot, _EXPIRED, m.messages[slot].deadline)
            else:
                advance(m, slot)
    return _PAUSED
