"""Whose flows these are: applications, by configuration, by claim, or by the control channel.

An application decides a flow's category and how much loss it tolerates; the policy then selects
flows by both. A client's own words count only where the access rules let it claim them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from math import isfinite

from headgate.config import Configuration
from headgate.contract import Application, Category, Claim, Requirement

WILD = re.compile(r"[*?[]")


@dataclass(frozen=True, slots=True)
class Membership:
    """What is known of the application behind a flow."""

    application: str
    """Its name; empty if the flow belongs to none."""
    category: str
    loss: float
    """Fraction of its messages that it may lose; 1 if nothing was said."""
    claim: Claim | None = None
    """What the client asked for itself, by MQTT 5 properties."""
    threshold_s: float | None = None
    """Mean response to keep while the client comes and goes (ON/OFF)."""


class Applications:
    """The applications that are known, and which client belongs to which."""

    def __init__(
        self,
        applications: Iterable[Application],
        categories: Iterable[Category],
        default_category: str,
    ) -> None:
        self.known = {application.name: application for application in applications}
        self._categories = {category.name: category.requirement for category in categories}
        self._default = default_category
        # Names without wildcards are looked up, so that thousands of applications with one client
        # each cost nothing.
        self._clients: dict[str, int] = {}
        self._users: dict[str, int] = {}
        self._ranked = list(self.known.values())
        self._globs: list[tuple[int, re.Pattern[str] | None, re.Pattern[str] | None]] = []
        for rank, application in enumerate(self._ranked):
            clients = sift(application.clients, self._clients, rank)
            users = sift(application.users, self._users, rank)
            if clients is not None or users is not None:
                self._globs.append((rank, clients, users))
        self._found: dict[tuple[str, str | None, tuple[tuple[str, str], ...]], Membership] = {}
        """What was found out beforehand (`core/preparing.py`)."""

    def find_out(
        self, client_id: str, user: str | None, claims: tuple[tuple[str, str], ...]
    ) -> Membership:
        """The same as `of`, remembered until `forget`."""
        found = self._found[client_id, user, claims] = self._look(client_id, user, claims)
        return found

    def forget(self) -> None:
        """Remember nothing more: clients make up what they claim."""
        self._found = {}

    def of(self, client_id: str, user: str | None, claims: Iterable[tuple[str, str]]) -> Membership:
        """The membership of a client that makes `claims` (user properties it is allowed)."""
        if self._found:
            found = self._found.get((client_id, user, tuple(claims)))
            if found is not None:
                return found
        return self._look(client_id, user, claims)

    def _look(
        self, client_id: str, user: str | None, claims: Iterable[tuple[str, str]]
    ) -> Membership:
        claimed = dict(claims)
        application = self.known.get(claimed.get("application", ""))
        if application is None:
            application = self._match(client_id, user)
        name = application.name if application else claimed.get("application", "")
        category = claimed.get("category") or (application and application.category)
        requirement = self._requirement(application, category or self._default)
        loss = 1.0 if requirement is None else requirement.loss
        claim = _claim(claimed) if claimed else None
        threshold = None
        if claim is not None:
            threshold = claim.threshold_s
            if threshold is None and claim.response_ms is not None:
                threshold = claim.response_ms / 1e3
            if claim.loss is not None:
                loss = claim.loss
        if threshold is None and application is not None:
            threshold = application.threshold_s
        return Membership(
            name,
            category or self._default,
            loss,
            claim,
            threshold,
        )

    def _match(self, client_id: str, user: str | None) -> Application | None:
        """The first application that holds a client by its id or its user name."""
        none = len(self._ranked)
        first = self._clients.get(client_id, none)
        if user is not None:
            first = min(first, self._users.get(user, none))
        for rank, clients, users in self._globs:
            if rank > first:
                break
            if (clients is not None and clients.match(client_id)) or (
                users is not None and user is not None and users.match(user)
            ):
                first = rank
                break
        return self._ranked[first] if first < none else None

    def _requirement(self, application: Application | None, category: str) -> Requirement | None:
        if application is not None and application.requirement is not None:
            return application.requirement
        return self._categories.get(category)


def known_applications(config: Configuration, added: Iterable[Application]) -> Applications:
    """The configured applications, and those that the control channel added or changed."""
    known = {application.name: application for application in config.applications}
    known |= {application.name: application for application in added}
    return Applications(known.values(), config.categories, config.default_category)


def sift(patterns: Iterable[str], names: dict[str, int], rank: int) -> re.Pattern[str] | None:
    """Note the plain names among globs under `rank`; one expression for the others."""
    others = []
    for pattern in patterns:
        if WILD.search(pattern):
            others.append(pattern)
        else:
            names.setdefault(pattern, rank)
    return globs(others)


def globs(patterns: Iterable[str]) -> re.Pattern[str] | None:
    """One expression for several globs; None for none."""
    expressions = [translate(pattern) for pattern in patterns]
    return re.compile("|".join(expressions)) if expressions else None


def _claim(claimed: Mapping[str, str]) -> Claim | None:
    """What is asked for, as far as it can be read; None if it is nothing."""
    response_ms = positive(claimed.get("max-response-ms"))
    loss = fraction(claimed.get("max-loss"))
    threshold = positive(claimed.get("threshold-s"))
    if response_ms is None and loss is None and threshold is None:
        return None
    return Claim(response_ms=response_ms, loss=loss, threshold_s=threshold)


def fraction(text: str | None) -> float | None:
    """A claimed fraction, if it is one."""
    number = positive(text, zero=True)
    return None if number is None or number > 1.0 else number


def positive(text: str | None, zero: bool = False) -> float | None:
    """A claimed number above zero, if it is one."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    if not isfinite(number):
        return None
    return number if number > 0.0 or (zero and number == 0.0) else None
