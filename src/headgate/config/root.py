"""The whole configuration. A new section is a record in its own module and a field here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from headgate.config.addresses import Address
from headgate.config.auth import Auth
from headgate.config.broker import Durability, Metrics, Overflow, Urgency
from headgate.config.limits import Limits
from headgate.config.listeners import Listener, ListenerType
from headgate.config.planner import Planner
from headgate.config.recorder import Capture, RecorderConfig
from headgate.contract import Application, Category, LinkSpec, Policy, PolicyRule, Requirement
from headgate.contract.schema import MOST, Kind, Name, Problem, Record, legible, rule

Factory = Annotated[str, Kind.FACTORY]

LOOPBACK = Listener(type=ListenerType.TCP, address=Address(host="127.0.0.1", port=1883))


class Configuration(Record, frozen=True):
    """What the operator wrote, with every default filled in."""

    listeners: Annotated[tuple[Listener, ...], Meta(min_length=1)] = (LOOPBACK,)
    data_dir: Annotated[Path, Kind.FOLDER] = Path("data")
    durability: Durability = Durability.FSYNC
    store: Factory | None = None
    """A store of one's own, in place of the embedded one."""
    hooks: tuple[Factory, ...] = ()

    auth: Auth = Auth()
    limits: Limits = Limits()
    overflow: Overflow = Overflow.OLDEST
    sys_interval: Annotated[float, Kind.DURATION, Meta(ge=0, le=MOST)] = 10.0
    """Between two updates of `$SYS`; 0 turns it off."""
    snapshot_interval: Annotated[float, Kind.DURATION, Meta(gt=0, le=MOST)] = 1.0
    """Between two snapshots for the controller; made only while somebody subscribes to them."""
    metrics: Metrics | None = None
    recorder: RecorderConfig | None = None
    """Nothing is recorded unless it is asked for."""
    urgency: Urgency = Urgency()

    applications: Annotated[tuple[Application, ...], Kind.KEYED] = ()
    categories: Annotated[tuple[Category, ...], Kind.KEYED] = ()
    default_category: Name = "default"
    """Category of flows that belong to no application."""
    links: tuple[LinkSpec, ...] = ()
    policy: tuple[PolicyRule, ...] = ()
    """The policy at start, when nothing was planned yet."""
    planner: Planner = Planner()

    @property
    def first_policy(self) -> Policy:
        """The written policy as version 0: anything planned is newer."""
        return Policy(version=0, rules=self.policy)

    def requirement_of(self, application: Application) -> Requirement | None:
        """Its own requirement, or else its category's."""
        if application.requirement is not None:
            return application.requirement
        for category in self.categories:
            if category.name == application.category:
                return category.requirement
        return None

    @rule("listeners")
    def _listeners_differ(self) -> Iterator[Problem]:
        seen: dict[str, int] = {}
        for number, listener in legible(self.listeners, "name"):
            if listener.name is not None:
                if listener.name in seen:
                    yield Problem(
                        ("listeners", number, "name"),
                        f"listeners[{seen[listener.name]}] has this name already",
                    )
                seen.setdefault(listener.name, number)
        taken: dict[str, int] = {}
        for number, listener in legible(self.listeners, "address"):
            place = str(listener.address)
            if not listener.address.path and listener.address.port == 0:
                continue
            if place in taken:
                yield Problem(
                    ("listeners", number, "address"),
                    f"listeners[{taken[place]}] listens here already",
                )
            taken.setdefault(place, number)

    @rule("links")
    def _links_differ(self) -> Iterator[Problem]:
        seen: dict[str, int] = {}
        for number, link in legible(self.links, "name"):
            if link.name in seen:
                yield Problem(
                    ("links", number, "name"), f"links[{seen[link.name]}] has this name already"
                )
            seen.setdefault(link.name, number)

    @rule("recorder", "durability")
    def _guarantees_are_kept(self) -> Iterator[Problem]:
        if self.durability is not Durability.NONE or self.recorder is None:
            return
        for number, one in legible(self.recorder.captures, "capture"):
            if one.capture is Capture.GUARANTEED:
                yield Problem(
                    ("recorder", "captures", number, "capture"),
                    "nothing is guaranteed with durability: none; use fsync, or os",
                )

    @rule("listeners", "auth", "hooks")
    def _nobody_enters_unasked(self) -> Iterator[Problem]:
        if self.hooks or self.auth.verifies_users:
            return  # a hook may well be what asks
        if self.auth.allow_anonymous is None:
            for number, listener in legible(self.listeners, "address"):
                if not listener.address.is_local:
                    yield Problem(
                        ("listeners", number, "address"),
                        f"anyone who reaches {listener.address} could connect without a password: "
                        "add auth: {allow_anonymous: true} if this is meant, or a password_file",
                    )
        elif not self.auth.allow_anonymous:
            yield Problem(
                ("auth", "allow_anonymous"),
                "nobody could connect: add a password_file, jwt, or certificates: true",
            )

    @rule("auth", "hooks")
    def _user_names_are_verified(self) -> Iterator[Problem]:
        if self.hooks or self.auth.verifies_users:
            return
        reason = "nothing verifies user names: add a password_file, jwt, or certificates: true"
        if self.auth.roles:
            yield Problem(("auth", "roles"), reason)
        for number, entry in legible(self.auth.acl or (), "users", "topics"):
            if entry.names_users:
                yield Problem(("auth", "acl", number), reason)

    @rule("auth", "listeners")
    def _certificates_are_asked_for(self) -> Iterator[Problem]:
        if self.auth.certificates and not any(
            listener.tls is not None and listener.tls.client_ca is not None
            for _, listener in legible(self.listeners, "tls")
        ):
            yield Problem(
                ("auth", "certificates"),
                "no listener asks for client certificates: add client_ca: FILE to the tls of one",
            )
