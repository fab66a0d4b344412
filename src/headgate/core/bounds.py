"""What clients may have the broker remember of them: ids, filters, wills, sessions (decision 0031).

None of it can be evicted, as a message can: whatever is granted stays for as long as the session
does. So each is bounded, and all together by a part of `limits.memory`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.core.link import FREE
from headgate.core.router import NODE
from headgate.core.session import Session
from headgate.core.wills import WILL
from headgate.wire.packets import Connect, Will
from headgate.wire.reasons import Reason

if TYPE_CHECKING:
    from headgate.core.broker import Broker

PART = 4
"""Sessions may take one of so many parts of the memory; messages need the rest."""

SESSION = 2816
"""Bytes that a session takes besides its texts while its client is connected (measured, as all of
these, by `python -m bench memory`)."""

FLOW = 832
"""The same for a subscription, without the levels of its filter in the tree (`core/router.py`)."""

Refusal = tuple[Reason, str]


def session_size(client_id: str) -> int:
    """What a session without subscriptions counts."""
    return SESSION + len(client_id.encode())


def flow_size(topic_filter: str) -> int:
    """What a subscription counts: its filter stands in the session as text and as bytes."""
    return FLOW + 2 * len(topic_filter.encode())


def tree_size(topic_filter: str) -> int:
    """What its levels count in the tree, if no other filter has any of them."""
    levels = topic_filter.encode().split(b"/")
    return sum(NODE + len(level) for level in levels)


def will_size(will: Will) -> int:
    """What a will counts: its topic, payload and user properties."""
    pairs = will.properties.user_properties or ()
    texts = sum(len(name.encode()) + len(value.encode()) for name, value in pairs)
    data = will.properties.correlation_data or b""
    return len(will.topic.encode()) + len(will.payload) + texts + len(data)


def judge_connect(broker: Broker, packet: Connect) -> Refusal | None:
    """Why a client cannot be remembered, if it cannot.

    0x85: an id that is a valid string but not allowed; 0x97: a limit that the administrator
    imposed (§3.2.2.2). Before MQTT 5 that is return code 2 and 3.
    """
    limits = broker.limits
    if limits.client_id_size and len(packet.client_id.encode()) > limits.client_id_size:
        return (
            Reason.CLIENT_IDENTIFIER_NOT_VALID,
            f"the client id is longer than {limits.client_id_size} bytes",
        )
    will = 0 if packet.will is None else will_size(packet.will)
    if limits.will_size and will > limits.will_size:
        return Reason.QUOTA_EXCEEDED, f"the will is larger than {limits.will_size} bytes"
    return None


def judge_session(broker: Broker, packet: Connect) -> Refusal | None:
    """Why there is no room for another session, if there is none. One that exists has its place."""
    before = broker.sessions.get(packet.client_id)
    if before is None and 0 < broker.limits.sessions <= len(broker.sessions):
        return Reason.QUOTA_EXCEEDED, "the broker has no room for more sessions"
    more = session_size(packet.client_id) + (WILL + will_size(packet.will) if packet.will else 0)
    if not has_room(broker, more - (0 if before is None else before.standing)):
        return Reason.QUOTA_EXCEEDED, "the broker has no memory for more sessions"
    return None


def judge_filter(broker: Broker, session: Session, topic_filter: str) -> Reason | None:
    """Why a filter cannot be remembered, if it cannot (§3.9.3).

    0x8F: well formed but not allowed; 0x97: a limit that the administrator imposed.
    """
    limits = broker.limits
    if limits.filter_size and len(topic_filter.encode()) > limits.filter_size:
        return Reason.TOPIC_FILTER_INVALID
    if topic_filter in session.flows:
        return None
    if limits.subscriptions and len(session.flows) >= limits.subscriptions:
        return Reason.QUOTA_EXCEEDED
    most = flow_size(topic_filter) + tree_size(topic_filter)
    return None if has_room(broker, most) else Reason.QUOTA_EXCEEDED


def has_room(broker: Broker, more: int) -> bool:
    """May sessions take so many bytes more? To take less is always possible."""
    return more <= 0 or broker.pool.standing + more <= max(broker.pool.limit // PART, FREE)
