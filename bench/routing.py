"""Routing among many subscriptions that do not match.

A hundred connections hold the other subscriptions. They are no straw men: they share levels
with the published topics, and most have wildcards, so that a broker must walk past them.
"""

from bench.client import Client
from bench.pipelined import Group, connect_group, run_groups
from bench.target import Effort, Measurement, Target

_HOLDERS = 100
_FILTERS_PER_PACKET = 100


def run_routing(target: Target, effort: Effort, others: int, topics: int) -> Measurement:
    """One publisher over many topics, two subscribers by wildcard, `others` that never match."""
    holders = _hold(target, [other_filter(i) for i in range(others)])
    try:
        members = connect_group(
            target,
            effort,
            Group(subscribers=2, publishers=1),
            messages=[(published_topic(i), b"x" * 64) for i in range(topics)],
            topic_filter="plant/+/motor/speed",
            qos=0,
        )
        return run_groups(target, effort, [members])
    finally:
        for holder in holders:
            holder.close()


def published_topic(number: int) -> str:
    """Topics of one length, so that all packets have one size."""
    return f"plant/{number:06d}/motor/speed"


def other_filter(number: int) -> str:
    """A filter that matches no published topic, though it begins or ends like one."""
    near, far = number % 200_000, number
    return (
        f"plant/{near:06d}/+/torque",
        f"plant/+/sensor-{far}/#",
        f"+/{near:06d}/door/state",
        f"site/{far}/#",
    )[number % 4]


def _hold(target: Target, filters: list[str]) -> list[Client]:
    holders = []
    for number in range(_HOLDERS if filters else 0):
        holder = Client(target.address)
        holders.append(holder)
        own = filters[number::_HOLDERS]
        for start in range(0, len(own), _FILTERS_PER_PACKET):
            holder.subscribe(own[start : start + _FILTERS_PER_PACKET], 0)
    return holders
