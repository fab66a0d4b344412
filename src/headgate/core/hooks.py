"""Hooks: where a user's own Python package takes part (docs/hooks.md).

All are called in the broker's only thread: a hook that waits makes everybody wait.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headgate.core.access import Identity, Login, Verdict
from headgate.core.message import Message
from headgate.core.session import Session

log = logging.getLogger(__name__)


class Hook:
    """Override what you need; the others leave everything as it is."""

    def authenticate(self, login: Login) -> Verdict | None:
        """Judge a login; None leaves it to the next hook and then to the configuration."""
        return None

    def authorise(self, identity: Identity, client_id: str, action: str, topic: str) -> bool | None:
        """May a client `publish` to, `subscribe` to or `receive` a topic? None: no opinion."""
        return None

    def on_connect(self, session: Session) -> None:
        """A client is connected."""

    def on_disconnect(self, session: Session) -> None:
        """A client's connection is over."""

    def on_publish(self, session: Session | None, message: Message) -> bool:
        """A message arrived; False keeps it from everybody. Its payload may be changed.

        To override it takes the broker's hot path away: each message is then looked at by itself.
        """
        return True

    def on_subscribe(self, session: Session, topic_filter: str, qos: int) -> None:
        """A client subscribed."""

    def on_unsubscribe(self, session: Session, topic_filter: str) -> None:
        """A client unsubscribed."""


class Hooks:
    """All hooks of a broker, asked in the order of the configuration."""

    def __init__(self, hooks: Sequence[Hook] = ()) -> None:
        self.hooks = tuple(hooks)
        self.watching = any(type(hook).on_publish is not Hook.on_publish for hook in hooks)
        """Does anybody want to see each message?"""

    def on_connect(self, session: Session) -> None:
        self._tell("on_connect", session)

    def on_disconnect(self, session: Session) -> None:
        self._tell("on_disconnect", session)

    def on_publish(self, session: Session | None, message: Message) -> bool:
        """Do all hooks let the message pass? One that fails does not."""
        try:
            return all(hook.on_publish(session, message) for hook in self.hooks)
        except Exception:
            log.exception("a hook failed in on_publish: the message is kept from everybody")
            return False

    def on_subscribe(self, session: Session, topic_filter: str, qos: int) -> None:
        self._tell("on_subscribe", session, topic_filter, qos)

    def on_unsubscribe(self, session: Session, topic_filter: str) -> None:
        self._tell("on_unsubscribe", session, topic_filter)

    def _tell(self, event: str, *arguments: object) -> None:
        for hook in self.hooks:
            try:
                getattr(hook, event)(*arguments)
            except Exception:  # a guest's mistake must not bring down the house
                log.exception("a hook failed in %s", event)
