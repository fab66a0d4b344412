"""Who asks for what: the application behind a flow, and what its client claims for it itself.

Most flows ask for what their application does, or its category. A client may ask for something
else in MQTT 5 properties (docs/flows.md). The broker says so in its snapshots, and such flows are
planned as an application of their own. It has a name for people, `cameras (20 ms, loss 0.1)`; rules
select its flows as what the broker knows them by, `cameras`. Who belongs to no application is `-`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from headgate.config import Configuration
from headgate.contract import Application, Claim, FlowSnapshot, Requirement

NOBODY = "-"
"""Who belongs to no application."""
ENOUGH_PERIODS = 5.0
"""As the broker itself asks for before it acts on what it knows of a client."""
MOST_KNOWN = 10_000
"""Clients make up what they claim."""


@dataclass(frozen=True, slots=True)
class Need:
    """What the flows of some clients need."""

    application: Application
    """As it is planned for."""
    known_as: str
    """The broker's name of it, by which rules select; empty for none."""

    @property
    def name(self) -> str:
        return self.application.name


class Needs:
    """Finds the need of a flow; as long as configuration and commands stay the same."""

    def __init__(self, config: Configuration, applications: Mapping[str, Application]) -> None:
        self._default = config.default_category
        self._categories = {c.name: c.requirement for c in config.categories}
        self._applications = applications
        self._found: dict[tuple[str, str, Claim | None, bool], Need] = {}

    def of(self, flow: FlowSnapshot) -> Need:
        claim = flow.claim
        key = (flow.application, flow.category, claim, claim is not None and comes_and_goes(flow))
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= MOST_KNOWN:
                self._found = {}
            found = self._found[key] = self._find(*key)
        return found

    def _find(self, name: str, category: str, claim: Claim | None, comes: bool) -> Need:
        base = self._applications.get(name, Application(name=name or NOBODY))
        # An older broker does not say the category of everything.
        category = category or base.category or self._default
        known = base.requirement or self._categories.get(category)
        asked, threshold = _asked(known, base.threshold_s, claim, comes)
        # What another category asks for makes another need, as a claim does.
        usual = base.category or self._default
        words = [category] if category != usual else []
        if claim is not None:
            words.extend(_words(claim, asked, threshold))
        application = Application(
            name=f"{base.name} ({', '.join(words)})" if words else base.name,
            category=category,
            requirement=asked,
            weight=base.weight,
            threshold_s=threshold,
        )
        return Need(application, name)


def comes_and_goes(flow: FlowSnapshot) -> bool:
    """Enough is known of when its client is there, and how fast it catches up."""
    return flow.periods >= ENOUGH_PERIODS and bool(flow.on_s and flow.off_s and flow.drain)


def _asked(
    known: Requirement | None, threshold: float | None, claim: Claim | None, comes: bool
) -> tuple[Requirement | None, float | None]:
    """A claim in place of what is known, as far as it goes.

    Nothing may be lost, unless it is said; but who comes and goes, and says nothing of loss, gives
    up what a threshold needs. The broker sees it the same way.
    """
    if claim is None:
        return known, threshold
    of_response = None if claim.response_ms is None else claim.response_ms / 1000
    threshold = claim.threshold_s or of_response or threshold
    said = {
        name: value
        for name, value in (("response_ms", claim.response_ms), ("loss", claim.loss))
        if value is not None
    }
    if not said or (known is None and claim.loss is None and comes):
        return known, threshold
    return msgspec.structs.replace(known or Requirement(), **said), threshold


def _words(claim: Claim, asked: Requirement | None, threshold: float | None) -> Iterator[str]:
    if asked is not None and claim.response_ms is not None:
        yield f"{claim.response_ms:g} ms"
    if claim.loss is not None:
        yield f"loss {claim.loss:g}"
    if threshold is not None and (claim.threshold_s is not None or asked is None):
        yield f"mean {threshold:g} s"
