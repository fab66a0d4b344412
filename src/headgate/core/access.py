"""What the data plane asks of whoever guards it.

The core knows no passwords, tokens or lists: it asks a `Gatekeeper`. The package `headgate.access`
is one; a user's own package can be another (docs/hooks.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from headgate.wire.reasons import Reason


class Peer(msgspec.Struct, frozen=True, gc=False):
    """Who is at the other end of a connection, as far as the transport knows."""

    address: str = ""
    """Network address without the port; empty for a Unix socket."""
    port: int = 0
    listener: str = ""
    """Name of the listener that accepted the connection."""
    certificate_name: str | None = None
    """Common name of the verified client certificate."""
    local: bool = False
    """Loopback or Unix socket."""


class Login(msgspec.Struct, frozen=True, gc=False):
    """What a CONNECT says about who is asking."""

    peer: Peer
    client_id: str
    username: str | None = None
    password: bytes | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a client turned out to be. An anonymous one has no user name."""

    user: str | None = None
    roles: frozenset[str] = field(default_factory=frozenset)
    own: bool = False
    """It is the broker's own controller: beside it, and so behind no link."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a login: an identity, or the reason for the refusal."""

    identity: Identity | None = None
    reason: Reason = Reason.SUCCESS
    text: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One answer within an enhanced authentication; `verdict` is set on the last one."""

    data: bytes
    verdict: Verdict | None = None


class Exchange(Protocol):
    """A running enhanced authentication (MQTT 5 §4.12), for one connection."""

    def step(self, data: bytes) -> Step:
        """Take what the client sent. A failed proof is a `Verdict` without identity."""


class Gatekeeper(Protocol):
    """Decides who may enter and who may do what. Called in the broker's only thread."""

    def authenticate(self, login: Login, answer: Callable[[Verdict], None]) -> None:
        """Judge a login and call `answer` once, now or later, always in the broker's thread."""

    def exchange(self, method: str, login: Login) -> Exchange | None:
        """Begin the enhanced authentication `method`; None if it is not offered."""

    def may_publish(self, identity: Identity, client_id: str, topic: str) -> bool:
        """May this client publish to this topic?"""

    def may_subscribe(self, identity: Identity, client_id: str, topic_filter: str) -> bool:
        """May this client subscribe to this filter (without any `$share/group/`)?

        True only if everything the filter can match may be received, except what
        `may_receive` then refuses topic by topic.
        """

    def may_claim(
        self, identity: Identity, client_id: str, what: str, topic: str | None = None
    ) -> bool:
        """May it call a message on `topic` `urgent` or `critical`, or `claim` a category?"""

    def may_receive(self, identity: Identity, client_id: str, topic: str) -> bool:
        """May a message on this topic be delivered to this client?"""

    def may_receive_all(self, identity: Identity, client_id: str, topic_filter: str) -> bool:
        """May everything that this filter matches be, until `access_changed`?

        False is always right: then `may_receive` is asked about each topic.
        """
