"""Which client is behind which link, from the configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from headgate.contract import Discipline, LinkSpec
from headgate.core.applications import globs
from headgate.core.link import DRR, LEVELS, NORMAL_LEVEL, STRICT, STRICT_MIN, Link
from headgate.core.session import Session

MARGIN = 0.98
"""A link with a rate is paced just below it, so that the queue is ours and not the path's."""

DISCIPLINES = {Discipline.STRICT: STRICT, Discipline.STRICT_MIN: STRICT_MIN, Discipline.DRR: DRR}


@dataclass(slots=True)
class Behind:
    """Who is behind a link."""

    link: Link
    clients: re.Pattern[str] | None
    users: re.Pattern[str] | None
    networks: tuple[IPv4Network | IPv6Network, ...]

    def holds(self, session: Session, address: str) -> bool:
        if self.clients and self.clients.match(session.client_id):
            return True
        if self.users and session.user is not None and self.users.match(session.user):
            return True
        if not self.networks or not address:
            return False
        place = ip_address(address)
        if isinstance(place, IPv6Address) and place.ipv4_mapped is not None:
            place = place.ipv4_mapped  # as a socket for both versions sees it
        return any(place in network for network in self.networks)


class Links:
    """All links, found by client; the first that holds it wins."""

    def __init__(self, specs: Iterable[LinkSpec]) -> None:
        self._behind: list[Behind] = []
        self.change(specs)

    def change(self, specs: Iterable[LinkSpec]) -> None:
        """Obey new specifications; a link that keeps its name keeps what waits on it."""
        known = {link.name: link for link in self}
        self._behind = [
            Behind(
                equip(known.get(spec.name) or Link(spec.name), spec),
                globs(spec.clients),
                globs(spec.users),
                tuple(ip_network(text) for text in spec.addresses),
            )
            for spec in specs
        ]

    def __iter__(self) -> Iterator[Link]:
        return (behind.link for behind in self._behind)

    def of(self, session: Session, address: str) -> Link | None:
        """The link behind which a client is.

        Never the broker's own controller, whatever the globs say: behind a full link it would hear
        of the trouble when it is over.
        """
        if session.identity.own:
            return None
        for behind in self._behind:
            if behind.holds(session, address):
                return behind.link
        return None


def equip(link: Link, spec: LinkSpec) -> Link:
    """Give a link what its specification says."""
    if spec.rate is not None:
        link.pace(spec.rate / 8 * MARGIN)
    elif not link.estimated:
        link.pace(0.0)
    link.estimated = spec.rate is None
    link.shares = [0.0] * LEVELS
    link.weights = [1.0] * LEVELS
    link.discipline = DISCIPLINES[spec.discipline]
    for priority, share in spec.shares.items():
        link.shares[NORMAL_LEVEL + priority] = share
    for priority, weight in spec.weights.items():
        link.weights[NORMAL_LEVEL + priority] = weight
    return link
