"""Section `auth`: who may connect, and who may do what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from headgate.config.listeners import File
from headgate.contract.schema import Kind, Name, Problem, Record, TopicPattern, legible, rule

ADMIN = "admin"
"""The role that alone reaches `$CONTROL/#`."""


class Algorithm(StrEnum):
    """Signatures of tokens. `none` is not one."""

    HS256 = "HS256"
    HS384 = "HS384"
    HS512 = "HS512"
    RS256 = "RS256"
    RS384 = "RS384"
    RS512 = "RS512"
    PS256 = "PS256"
    PS384 = "PS384"
    PS512 = "PS512"
    ES256 = "ES256"
    ES384 = "ES384"
    ES512 = "ES512"
    EDDSA = "EdDSA"

    @property
    def is_symmetric(self) -> bool:
        return self.value.startswith("HS")


class Jwt(Record, frozen=True):
    """JSON Web Tokens, carried in the password field of CONNECT."""

    secret_file: File | None = None
    """File with the shared secret, for HS256 and its kin."""
    public_key_file: File | None = None
    """PEM file with the issuer's public key."""
    algorithms: tuple[Algorithm, ...] = ()
    """Accepted signatures; by default HS256 with a secret, RS256, ES256 and EdDSA with a key."""
    issuer: str | None = None
    audience: str | None = None
    username_claim: Name = "sub"
    roles_claim: Name = "roles"

    @property
    def accepted(self) -> tuple[Algorithm, ...]:
        """The accepted signatures, with the default resolved."""
        if self.algorithms:
            return self.algorithms
        if self.secret_file is not None:
            return (Algorithm.HS256,)
        return (Algorithm.RS256, Algorithm.ES256, Algorithm.EDDSA)

    @rule("secret_file", "public_key_file")
    def _one_key(self) -> Iterator[Problem]:
        if (self.secret_file is None) == (self.public_key_file is None):
            yield Problem((), "needs one of secret_file and public_key_file, not both")

    @rule("secret_file", "public_key_file", "algorithms")
    def _algorithms_fit_the_key(self) -> Iterator[Problem]:
        # A token signed with HS256 and the *public* key as its secret must never be checked as one.
        for number, algorithm in legible(self.algorithms):
            if algorithm.is_symmetric and self.public_key_file is not None:
                yield Problem(
                    ("algorithms", number),
                    f"{algorithm} needs a secret_file; a public key goes with RS256, ES256, EdDSA",
                )
            if not algorithm.is_symmetric and self.secret_file is not None:
                yield Problem(
                    ("algorithms", number),
                    f"{algorithm} needs a public_key_file; a secret goes with HS256",
                )


class Action(StrEnum):
    """What an access rule is about."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    ALL = "all"
    """publish and subscribe."""
    URGENT = "urgent"
    """Publish a message as urgent."""
    CRITICAL = "critical"
    """Publish a message as critical."""
    CLAIM = "claim"
    """Name one's own application and category in CONNECT or SUBSCRIBE."""


Actions = Annotated[tuple[Action, ...], Kind.ONE_OR_MORE, Meta(min_length=1)]


class AccessRule(Record, frozen=True):
    """One line of the access list. It speaks to clients that meet every selector given."""

    allow: Actions | None = None
    deny: Actions | None = None
    topics: Annotated[tuple[TopicPattern, ...], Kind.ONE_OR_MORE, Meta(min_length=1)] = ("#",)
    users: tuple[str, ...] = ()
    """Globs of user names."""
    clients: tuple[str, ...] = ()
    """Globs of client ids."""
    roles: tuple[Name, ...] = ()

    @property
    def actions(self) -> tuple[Action, ...]:
        return self.allow or self.deny or ()

    @property
    def names_users(self) -> bool:
        """Does it ask for a user name?"""
        return bool(self.users) or any("%u" in topic for topic in self.topics)

    @rule("allow", "deny")
    def _one_verdict(self) -> Iterator[Problem]:
        if (self.allow is None) == (self.deny is None):
            yield Problem((), "needs one of allow and deny, such as allow: publish")


class Auth(Record, frozen=True):
    """Ways to prove who one is, and the access list."""

    allow_anonymous: bool | None = None
    """None, which is not written: only from this machine, and only if there is no way to log in."""
    password_file: File | None = None
    scram: bool = False
    """SCRAM-SHA-256 with the credentials of the password file."""
    certificates: bool = False
    """The common name of a verified client certificate is the user name."""
    jwt: Jwt | None = None
    acl: tuple[AccessRule, ...] | None = None
    roles: Mapping[Name, tuple[str, ...]] = {}
    """Role to globs of user names."""
    local_roles: tuple[Name, ...] = ()
    """Roles of anonymous clients on this machine: loopback or a Unix socket."""

    @property
    def verifies_users(self) -> bool:
        """Is there any way to log in?"""
        return self.password_file is not None or self.jwt is not None or self.certificates

    @rule("scram", "password_file")
    def _scram_has_credentials(self) -> Iterator[Problem]:
        if self.scram and self.password_file is None:
            yield Problem(("scram",), "its credentials come from a password_file: add one")
