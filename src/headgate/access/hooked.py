"""A gatekeeper that asks the user's hooks first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from headgate.core.access import Exchange, Gatekeeper, Identity, Login, Verdict
from headgate.core.hooks import Hook
from headgate.wire.reasons import Reason

log = logging.getLogger(__name__)

RESERVED = ("$CONTROL/", "$SYS/")

FAILED = Verdict(reason=Reason.UNSPECIFIED_ERROR, text="the login could not be judged")


class HookedGatekeeper:
    """Hooks in their order, then the gatekeeper below. A hook that fails refuses."""

    def __init__(self, below: Gatekeeper, hooks: Sequence[Hook]) -> None:
        self._below = below
        self._hooks = tuple(hooks)

    def authenticate(self, login: Login, answer: Callable[[Verdict], None]) -> None:
        for hook in self._hooks:
            try:
                verdict = hook.authenticate(login)
            except Exception:
                log.exception("a hook failed to judge a login")
                verdict = FAILED
            if verdict is not None:
                answer(verdict)
                return
        self._below.authenticate(login, answer)

    def exchange(self, method: str, login: Login) -> Exchange | None:
        return self._below.exchange(method, login)

    def may_publish(self, identity: Identity, client_id: str, topic: str) -> bool:
        opinion = self._opinion(identity, client_id, "publish", topic)
        return self._below.may_publish(identity, client_id, topic) if opinion is None else opinion

    def may_subscribe(self, identity: Identity, client_id: str, topic_filter: str) -> bool:
        opinion = self._opinion(identity, client_id, "subscribe", topic_filter)
        if opinion is None:
            return self._below.may_subscribe(identity, client_id, topic_filter)
        return opinion

    def may_receive(self, identity: Identity, client_id: str, topic: str) -> bool:
        opinion = self._opinion(identity, client_id, "receive", topic)
        return self._below.may_receive(identity, client_id, topic) if opinion is None else opinion

    def may_receive_all(self, identity: Identity, client_id: str, topic_filter: str) -> bool:
        return False  # each topic is for the hooks to decide

    def may_claim(
        self, identity: Identity, client_id: str, what: str, topic: str | None = None
    ) -> bool:
        return self._below.may_claim(identity, client_id, what, topic)

    def _opinion(self, identity: Identity, client_id: str, action: str, topic: str) -> bool | None:
        for hook in self._hooks:
            try:
                opinion = hook.authorise(identity, client_id, action, topic)
            except Exception:
                log.exception("a hook failed to decide about %s %s", action, topic)
                return False
            if opinion and topic.startswith(RESERVED):
                continue  # to steer and to speak for the broker is not a hook's to grant
            if opinion is not None:
                return opinion
        return None
