"""Hooks: where a user's own Python package takes part (docs/hooks.md).

All are called in the broker's only thread: a hook that waits makes everybody wait.
"""

from __future__ import annotations

from headgate.core.message import Message
from headgate.core.session import Session


class Hooks:
    """What happens in the broker. Override what you need; the others do nothing."""

    watching = False
    """Set to True to be asked about every message; costs the hot path."""

    def on_connect(self, session: Session) -> None:
        """A client is connected."""

    def on_disconnect(self, session: Session, reason: str) -> None:
        """A client is gone."""

    def on_publish(self, session: Session | None, message: Message) -> bool:
        """A message arrived; False keeps it from everybody. Its fields may be changed."""
        return True

    def on_subscribe(self, session: Session, topic_filter: str, qos: int) -> None:
        """A client subscribed."""

    def on_unsubscribe(self, session: Session, topic_filter: str) -> None:
        """A client unsubscribed."""
