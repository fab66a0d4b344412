"""Whose flows these are: applications, by configuration, by claim, or by the control channel.

An application decides a flow's category and how much loss it tolerates; the policy then selects
flows by both. A client's own words count only where the access rules let it claim them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate

from headgate.contract import Application, Category, Requirement


@dataclass(frozen=True, slots=True)
class Membership:
    """What is known of the application behind a flow."""

    application: str
    """Its name; empty if the flow belongs to none."""
    category: str
    loss: float
    """Fraction of its messages that it may lose; 1 if nothing was said."""
    response_ms: float | None = None
    """What it asked for itself, by MQTT 5 properties."""


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
        self._globs = [
            (application, globs(application.clients), globs(application.users))
            for application in self.known.values()
        ]

    def of(self, client_id: str, user: str | None, claims: Iterable[tuple[str, str]]) -> Membership:
        """The membership of a client that makes `claims` (user properties it is allowed)."""
        claimed = dict(claims)
        application = self.known.get(claimed.get("application", ""))
        if application is None:
            application = self._match(client_id, user)
        name = application.name if application else claimed.get("application", "")
        category = claimed.get("category") or (application and application.category)
        requirement = self._requirement(application, category or self._default)
        loss = 1.0 if requirement is None else requirement.loss
        return Membership(
            name,
            category or self._default,
            fraction(claimed.get("max-loss"), loss),
            positive(claimed.get("max-response-ms")),
        )

    def _match(self, client_id: str, user: str | None) -> Application | None:
        for application, clients, users in self._globs:
            if clients and clients.match(client_id):
                return application
            if users and user is not None and users.match(user):
                return application
        return None

    def _requirement(self, application: Application | None, category: str) -> Requirement | None:
        if application is not None and application.requirement is not None:
            return application.requirement
        return self._categories.get(category)


def globs(patterns: Iterable[str]) -> re.Pattern[str] | None:
    """One expression for several globs; None for none."""
    expressions = [translate(pattern) for pattern in patterns]
    return re.compile("|".join(expressions)) if expressions else None


def fraction(text: str | None, otherwise: float) -> float:
    """A claimed fraction, if it is one."""
    number = positive(text, zero=True)
    return otherwise if number is None or number > 1.0 else number


def positive(text: str | None, zero: bool = False) -> float | None:
    """A claimed number above zero, if it is one."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if number > 0.0 or (zero and number == 0.0) else None
