"""The event calendar: when does each timer of the network go off next.

Every source has one timer and every station two, so the timers are few and known. A tournament tree
keeps the earliest at its root: setting a timer replays the matches on one path, about four
comparisons for sixteen timers. Messages in pure delays, which may be many at once, wait in a
binary heap whose earliest is one more timer.
"""

# mypy: disable-error-code="no-any-return"
# The records of the kernel have no types that mypy knows.

from __future__ import annotations

from typing import Any

from headgate.model.simulation.philox import compiled, inlined


@inlined
def set_timer(times: Any, winners: Any, timer: int, time: float) -> None:
    """`winners[1]` is the earliest timer afterwards; of two at one time, the lower."""
    times[timer] = time
    half = winners.size
    node = (timer + half) >> 1
    left = timer & ~1
    winner = left if times[left] <= times[left + 1] else left + 1
    winners[node] = winner
    node >>= 1
    while node >= 1:
        left = winners[2 * node]
        right = winners[2 * node + 1]
        winners[node] = left if times[left] <= times[right] else right
        node >>= 1


@compiled
def push_delayed(keys: Any, slots: Any, count: int, key: float, slot: int) -> None:
    position = count
    while position > 0:
        parent = (position - 1) >> 1
        if keys[parent] <= key:
            break
        keys[position] = keys[parent]
        slots[position] = slots[parent]
        position = parent
    keys[position] = key
    slots[position] = slot


@compiled
def pop_delayed(keys: Any, slots: Any, count: int) -> int:
    """Remove and return the slot of the earliest; `count` is the number before."""
    result = slots[0]
    last = count - 1
    key, slot = keys[last], slots[last]
    position = 0
    while True:
        child = 2 * position + 1
        if child >= last:
            break
        if child + 1 < last and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[position] = keys[child]
        slots[position] = slots[child]
        position = child
    keys[position] = key
    slots[position] = slot
    return result
