"""Topic names and filters (MQTT 5 §4.7 and §4.8.2): are they legal, do they match."""

from __future__ import annotations

import re

from headgate.errors import ProtocolViolation
from headgate.wire.fields import MAXIMUM_LENGTH
from headgate.wire.reasons import Reason

_SHARED = "$share/"
_WELL_FORMED = re.compile(r"(?:(?:\+|[^+#/]*)/)*(?:\+|#|[^+#/]*)")
"""Wildcards alone in their levels, # in the last one: what is otherwise is looked at to say why."""


def validate_topic(topic: str) -> None:
    """Raise 0x90 unless one may publish to `topic`."""
    _check_text(topic, "topic name", Reason.TOPIC_NAME_INVALID)
    if "+" in topic or "#" in topic:  # [MQTT-3.3.2-2]
        raise ProtocolViolation(
            f"the topic name {topic!r} contains a wildcard", Reason.TOPIC_NAME_INVALID
        )


def validate_filter(f: str) -> None:
    """Raise 0x8F unless one may subscribe to `f`, be it plain or `$share/{group}/{filter}`."""
    _check_text(f, "topic filter", Reason.TOPIC_FILTER_INVALID)
    _, plain = parse_shared(f)
    if _WELL_FORMED.fullmatch(plain):
        return
    levels = plain.split("/")
    for index, level in enumerate(levels):
        if "#" in level and (level != "#" or index != len(levels) - 1):  # [MQTT-4.7.1-1]
            raise ProtocolViolation(
                f"in the filter {f!r}, # is not alone in the last level",
                Reason.TOPIC_FILTER_INVALID,
            )
        if "+" in level and level != "+":  # [MQTT-4.7.1-2]
            raise ProtocolViolation(
                f"in the filter {f!r}, + is not alone in its level", Reason.TOPIC_FILTER_INVALID
            )


def parse_shared(f: str) -> tuple[str | None, str]:
    """The share group (None for a plain filter) and the filter without it."""
    if not f.startswith(_SHARED):
        return None, f
    group, _, plain = f[len(_SHARED) :].partition("/")
    # One or more characters, none of / + # [MQTT-4.8.2-1]; a slash and a filter [MQTT-4.8.2-2].
    if not group or "+" in group or "#" in group or not plain:
        raise ProtocolViolation(
            f"the filter {f!r} is not of the form $share/group/filter", Reason.TOPIC_FILTER_INVALID
        )
    return group, plain


def matches(filter: str, topic: str) -> bool:  # noqa: A002
    """Does a legal plain filter match a legal topic name?"""
    if filter == topic:
        return True
    if topic.startswith("$") and filter.startswith(("+", "#")):  # [MQTT-4.7.2-1]
        return False
    wanted = filter.split("/")
    levels = topic.split("/")
    if wanted[-1] == "#":
        # `a/#` matches `a` too: the multi-level wildcard includes its parent (§4.7.1.2).
        wanted.pop()
        if len(levels) < len(wanted):
            return False
    elif len(levels) != len(wanted):
        return False
    return all(w in ("+", level) for w, level in zip(wanted, levels, strict=False))


def covers(wide: str, narrow: str) -> bool:
    """Is every topic name that the plain filter `narrow` matches matched by `wide`? Exact."""
    if narrow.startswith("$") and wide.startswith(("+", "#")):  # [MQTT-4.7.2-1]
        return False
    outer = _levels(wide)
    inner = _levels(narrow)
    if outer[-1] == "#":
        outer.pop()
        if inner[-1] == "#":
            inner.pop()
        if len(inner) < len(outer):
            return False
    elif inner[-1] == "#" or len(inner) != len(outer):
        return False
    return all(o in ("+", i) for o, i in zip(outer, inner, strict=False))


def _levels(f: str) -> list[str]:
    # A topic name has at least one level, so that `#` alone means the same as `+/#`.
    return ["+", "#"] if f == "#" else f.split("/")


def _check_text(text: str, what: str, reason: Reason) -> None:
    if not text:  # [MQTT-4.7.3-1]
        raise ProtocolViolation(f"the {what} is empty", reason)
    if "\0" in text:  # [MQTT-4.7.3-2]
        raise ProtocolViolation(f"the {what} contains U+0000", reason)
    try:
        size = len(text) if text.isascii() else len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise ProtocolViolation(f"the {what} is not Unicode text", reason) from None
    if size > MAXIMUM_LENGTH:  # [MQTT-4.7.3-3]
        raise ProtocolViolation(f"the {what} is {size} bytes, more than {MAXIMUM_LENGTH}", reason)
