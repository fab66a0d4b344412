"""The gatekeeper that the configuration describes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headgate.access.passwords import MECHANISM, PasswordFile
from headgate.access.permissions import AccessList, Permissions
from headgate.access.scram import ScramExchange
from headgate.access.tokens import TokenVerifier, looks_like_token
from headgate.access.verifier import Check, Post, RecentLogins, Verifier
from headgate.access.waiting import Reputation
from headgate.config import Action, Auth, Configuration
from headgate.contract.schema import IllegibleError
from headgate.core.access import Exchange, Gatekeeper, Identity, Login, Verdict
from headgate.errors import ConfigurationError
from headgate.wire.reasons import Reason

log = logging.getLogger(__name__)

STRANGER = Verdict(Identity())
WRONG = Verdict(reason=Reason.BAD_USER_NAME_OR_PASSWORD, text="wrong user name or password")
ANONYMOUS_REFUSED = Verdict(reason=Reason.NOT_AUTHORIZED, text="a user name is required")
BUSY = Verdict(reason=Reason.SERVER_BUSY, text="too many logins at once, try again")
CHANGED = Verdict(reason=Reason.SERVER_BUSY, text="the configuration changed, try again")
FAILED = Verdict(reason=Reason.UNSPECIFIED_ERROR, text="the login could not be judged")


@dataclass(frozen=True)
class _State:
    """All that a reload replaces, in one piece."""

    auth: Auth
    access: AccessList
    passwords: PasswordFile | None
    tokens: TokenVerifier | None
    local: Verdict
    """For anonymous clients on this machine."""

    @classmethod
    def of(cls, auth: Auth) -> _State:
        return cls(
            auth=auth,
            access=AccessList(auth.acl, auth.roles),
            passwords=_passwords(auth),
            tokens=_tokens(auth),
            local=Verdict(Identity(roles=frozenset(auth.local_roles))),
        )


def _passwords(auth: Auth) -> PasswordFile | None:
    return None if auth.password_file is None else PasswordFile.load(auth.password_file)


def _tokens(auth: Auth) -> TokenVerifier | None:
    return None if auth.jwt is None else TokenVerifier(auth.jwt)


def examine(configuration: Configuration) -> Iterator[ConfigurationError]:
    """Read all that a guard would read, and say what could not be used; a draft will do."""
    for read in (_passwords, _tokens):
        try:
            read(configuration.auth)
        except ConfigurationError as error:
            yield error
        except IllegibleError:
            continue  # its mistake is known


class Guard(Gatekeeper):
    """A `Gatekeeper`: passwords, tokens, certificates, SCRAM, and the access list.

    All methods belong to the broker's thread. Whatever cannot be judged is refused.
    """

    def __init__(
        self,
        configuration: Configuration,
        post: Post,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = _State.of(configuration.auth)
        self._verifier = Verifier(post)
        self._recent = RecentLogins()
        self._reputation = Reputation()
        self._clock = clock

    def reload(self, configuration: Configuration) -> None:
        """Obey a new configuration from now on; if it cannot be used, raise and keep the old."""
        self._state = _State.of(configuration.auth)

    def close(self) -> None:
        """Stop the threads; logins that still wait get no answer."""
        self._verifier.close()

    def authenticate(self, login: Login, answer: Callable[[Verdict], None]) -> None:
        try:
            verdict = self._judge(login, answer)
        except Exception:
            log.exception("a login could not be judged")
            verdict = FAILED
        if verdict is not None:
            answer(verdict)

    def exchange(self, method: str, login: Login) -> Exchange | None:
        state = self._state
        if method != MECHANISM or not state.auth.scram or state.passwords is None:
            return None
        return ScramExchange(state.passwords, login)

    def may_publish(self, identity: Identity, client_id: str, topic: str) -> bool:
        return self.permissions(identity, client_id).may_publish(topic)

    def may_subscribe(self, identity: Identity, client_id: str, topic_filter: str) -> bool:
        return self.permissions(identity, client_id).may_subscribe(topic_filter)

    def may_receive(self, identity: Identity, client_id: str, topic: str) -> bool:
        return self.permissions(identity, client_id).may_receive(topic)

    def may_receive_all(self, identity: Identity, client_id: str, topic_filter: str) -> bool:
        return self.permissions(identity, client_id).may_receive_all(topic_filter)

    def may_claim(
        self, identity: Identity, client_id: str, what: str, topic: str | None = None
    ) -> bool:
        """May it call a message on `topic` `urgent` or `critical`, or `claim` a category?"""
        return self.permissions(identity, client_id).may_claim(Action(what), topic)

    def permissions(self, identity: Identity, client_id: str) -> Permissions:
        """All that a client may do, until the next reload."""
        state = self._state
        # Roles of the file and of the configuration are looked up, not kept in the identity, so
        # that a reload takes them from a connected client too.
        user = None
        if state.passwords is not None and identity.user is not None:
            user = state.passwords.user(identity.user)
        if user is None:
            return state.access.permissions(identity, client_id)
        return state.access.permissions(identity, client_id, user.roles)

    def _judge(self, login: Login, answer: Callable[[Verdict], None]) -> Verdict | None:
        """The verdict, or None if it comes later."""
        state = self._state
        if state.auth.certificates and login.peer.certificate_name:
            return Verdict(Identity(user=login.peer.certificate_name))
        if login.password is not None and state.tokens and looks_like_token(login.password):
            return self._judge_token(state.tokens, login)
        if not login.username and not login.password:
            return self._judge_anonymous(login)
        if state.passwords is not None and login.username and login.password is not None:
            return self._judge_password(state.passwords, login, answer)
        if not state.auth.verifies_users:
            return self._judge_anonymous(login)
        return WRONG

    def _judge_token(self, tokens: TokenVerifier, login: Login) -> Verdict:
        identity = tokens.verify(login.password or b"")
        # MQTT 3.1.1 has no password without a user name [MQTT-3.1.2-22]: it may be empty, but if
        # it says something, it says the same as the token.
        if identity is None or login.username not in (None, "", identity.user):
            return WRONG
        return Verdict(identity)

    def _judge_anonymous(self, login: Login) -> Verdict:
        auth = self._state.auth
        allowed = auth.allow_anonymous
        if allowed is None:
            # Once there is a way to log in, being local is no proof: it may be a local proxy.
            allowed = login.peer.local and not auth.verifies_users
        if not allowed:
            return ANONYMOUS_REFUSED
        # A user name that nothing proved is not taken over: a rule might come to trust it.
        return self._state.local if login.peer.local else STRANGER

    def _judge_password(
        self, passwords: PasswordFile, login: Login, answer: Callable[[Verdict], None]
    ) -> Verdict | None:
        name, password = login.username or "", login.password or b""
        user = passwords.user(name)
        if user is not None and self._recent.holds(user.hash, password, self._clock()):
            return Verdict(Identity(user=name))

        applicant = self._reputation.applicant(login.peer.address, name, self._clock())

        def done(verified: bool) -> None:
            current = self._state.passwords
            if user is None or not verified:
                self._reputation.was_wrong(applicant, self._clock())
                answer(WRONG)
            elif current is None or current.user(name) != user:
                answer(CHANGED)
            else:
                self._reputation.was_right(applicant)
                self._recent.add(user.hash, password, self._clock())
                answer(Verdict(Identity(user=name)))

        self._verifier.submit(
            applicant,
            Check(
                run=lambda: passwords.verify(name, password),
                done=done,
                turned_away=lambda: answer(BUSY),
            ),
        )
        return None
