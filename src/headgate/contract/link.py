"""Links: the constrained paths that several clients share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from headgate.contract.schema import (
    Fraction,
    Name,
    Network,
    Positive,
    Priority,
    Problem,
    Rate,
    Record,
    rule,
)


class Discipline(StrEnum):
    """Which waiting flow a link serves next."""

    STRICT = "strict"
    """The highest priority first, always."""
    STRICT_MIN = "strict-min"
    """The highest first, but each level gets at least its share when it has something to send."""
    DRR = "drr"
    """Deficit round robin: each level by its weight."""


class LinkSpec(Record, frozen=True):
    """A group of clients behind one path, and how that path is shared."""

    name: Name
    clients: tuple[str, ...] = ()
    """Globs of client ids."""
    users: tuple[str, ...] = ()
    """Globs of user names."""
    addresses: tuple[Network, ...] = ()
    """Networks such as 10.1.0.0/16."""
    rate: Rate | None = None
    """Bits per second; None is `auto`: estimated from the connections, and followed."""
    discipline: Discipline = Discipline.STRICT
    shares: Mapping[Priority, Fraction] = {}
    """Level to fraction of the rate that it gets at least (strict-min)."""
    weights: Mapping[Priority, Positive] = {}
    """Level to weight (drr); a level without one weighs 1."""

    @rule("clients", "users", "addresses")
    def _selects(self) -> Iterator[Problem]:
        if not self.clients and not self.users and not self.addresses:
            yield Problem((), 'no client is behind it: add clients: ["app-*"], users or addresses')

    @rule("discipline", "shares")
    def _shares_fit(self) -> Iterator[Problem]:
        if self.shares and self.discipline is not Discipline.STRICT_MIN:
            yield Problem(("shares",), f"shares mean nothing to {self.discipline}: use strict-min")
        total = sum(self.shares.values())
        if total > 1:
            yield Problem(("shares",), f"the shares add up to {total:g}: at most 1 can be given")
        if not self.shares and self.discipline is Discipline.STRICT_MIN:
            yield Problem(
                ("discipline",), "strict-min needs the shares to keep, such as shares: {3: 0.1}"
            )

    @rule("discipline", "weights")
    def _weights_fit(self) -> Iterator[Problem]:
        if self.weights and self.discipline is not Discipline.DRR:
            yield Problem(("weights",), f"weights mean nothing to {self.discipline}: use drr")
