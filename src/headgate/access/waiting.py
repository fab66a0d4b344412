"""Logins that wait for a slow check, in an order that is fair to those who do no harm.

To check a password is slow on purpose, so that whoever sends many wrong ones could keep everybody
else out. Nobody has more than a turn at a time: ranks take turns, within a rank addresses, and
within an address user names.

    rank ──▶ address ──▶ user name ──▶ first come, first served
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, TypeVar

T = TypeVar("T")

PASSED_OVER = 3
"""Turns that a rank waits behind better ones before it has one: a quarter of all at least."""

RECENTLY_S = 60.0
"""For how long an address counts as one that was wrong."""

REMEMBERED = 10_000
"""Addresses, and users at addresses, of which something is remembered."""


class Rank(IntEnum):
    """Who waits before whom."""

    KNOWN = 0
    """This user was right from this address before, and not wrong since."""
    NEW = 1
    DOUBTED = 2
    """Somebody at this address was wrong not long ago."""


@dataclass(frozen=True, slots=True)
class Applicant:
    """Who wants to be checked."""

    address: str
    name: str
    rank: Rank = Rank.NEW


class Reputation:
    """Who was right and who was wrong. In memory only: after a start everybody is new."""

    def __init__(self) -> None:
        self._wrong: OrderedDict[str, float] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()

    def applicant(self, address: str, name: str, now: float) -> Applicant:
        """How an attempt from this address by this user is to wait."""
        house = neighbourhood(address)
        if (house, name) in self._known:
            return Applicant(house, name, Rank.KNOWN)
        if now - self._wrong.get(house, -RECENTLY_S) < RECENTLY_S:
            return Applicant(house, name, Rank.DOUBTED)
        return Applicant(house, name, Rank.NEW)

    def was_right(self, applicant: Applicant) -> None:
        """Neighbours that are wrong do not hold this user up any more."""
        self._known[applicant.address, applicant.name] = None
        self._known.move_to_end((applicant.address, applicant.name))
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def was_wrong(self, applicant: Applicant, now: float) -> None:
        self._known.pop((applicant.address, applicant.name), None)
        self._wrong[applicant.address] = now
        self._wrong.move_to_end(applicant.address)
        if len(self._wrong) > REMEMBERED:
            self._wrong.popitem(last=False)


def neighbourhood(address: str) -> str:
    """What counts as one address: whoever has one of IPv6 has 2⁶⁴ of them (RFC 6177)."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed), 64), strict=False))


@dataclass(slots=True)
class _House(Generic[T]):
    """Those who wait at one address."""

    names: OrderedDict[str, deque[T]] = field(default_factory=OrderedDict)
    size: int = 0

    def add(self, name: str, item: T) -> None:
        self.names.setdefault(name, deque()).append(item)
        self.size += 1

    def take(self) -> T:
        """The first of the name whose turn it is, which then goes to the end."""
        name, items = self.names.popitem(last=False)
        item = items.popleft()
        if items:
            self.names[name] = items
        self.size -= 1
        return item

    def give_way(self, name: str) -> T | None:
        """Take the last of the name that has most, if `name` has fewer than that by two."""
        most = max(self.names, key=lambda each: len(self.names[each]))
        if len(self.names[most]) < len(self.names.get(name, ())) + 2:
            return None
        item = self.names[most].pop()
        self.size -= 1
        return item


class Line(Generic[T]):
    """Those who wait. It is bounded for each address of a rank, and as a whole."""

    def __init__(self, per_address: int, in_all: int) -> None:
        self._per_address = per_address
        self._in_all = in_all
        self._ranks: list[OrderedDict[str, _House[T]]] = [OrderedDict() for _ in Rank]
        self._passed = [0] * len(Rank)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, applicant: Applicant, item: T) -> T | None:
        """Stand in line; returns who has to leave for it, which may be the newcomer itself."""
        houses = self._ranks[applicant.rank]
        house = houses.get(applicant.address)
        leaves: T | None = None
        if house is not None and house.size >= self._per_address:
            leaves = house.give_way(applicant.name)
            if leaves is None:
                return item
        elif self._size >= self._in_all:
            leaves = self._make_room(applicant)
            if leaves is None:
                return item
            house = houses.get(applicant.address)
        else:
            self._size += 1
        if house is None:
            house = houses[applicant.address] = _House()
        house.add(applicant.name, item)
        return leaves

    def take(self) -> T | None:
        """Whose turn it is; None if nobody waits."""
        waiting = [rank for rank in Rank if self._ranks[rank]]
        if not waiting:
            return None
        turn = next((rank for rank in waiting if self._passed[rank] >= PASSED_OVER), waiting[0])
        for rank in waiting:
            self._passed[rank] = 0 if rank is turn else self._passed[rank] + 1
        houses = self._ranks[turn]
        address, house = houses.popitem(last=False)
        item = house.take()
        if house.size:
            houses[address] = house
        self._size -= 1
        return item

    def _make_room(self, newcomer: Applicant) -> T | None:
        """Somebody of the address with most in the worst rank, if the newcomer is no worse."""
        worst = next(rank for rank in reversed(Rank) if self._ranks[rank])
        if worst < newcomer.rank:
            return None
        houses = self._ranks[worst]
        address = max(houses, key=lambda each: houses[each].size)
        house = houses[address]
        own = houses.get(newcomer.address) if worst == newcomer.rank else None
        if worst == newcomer.rank and house.size < (own.size if own else 0) + 2:
            return None
        longest = max(house.names, key=lambda each: len(house.names[each]))
        item = house.names[longest].pop()
        if not house.names[longest]:
            del house.names[longest]
        house.size -= 1
        if not house.size:
            del houses[address]
        return item
