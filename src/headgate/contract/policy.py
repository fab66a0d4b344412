"""What the planner decided, as data.

A policy selects flows and sets what the data plane does with their messages. Rules apply in order:
each setting of a flow comes from the last rule that selects the flow and has that setting. So a
policy reads from the general to the particular, and one flow's exception is one rule at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec

from headgate.contract.schema import (
    Count,
    Duration,
    Fraction,
    Name,
    Positive,
    Priority,
    Problem,
    Record,
    TopicFilter,
    problems,
    rule,
)
from headgate.errors import ConfigurationError

SETTINGS = ("priority", "drop", "join", "threshold_s", "lifetime", "capacity")


class FlowSelector(Record, frozen=True):
    """Exactly one flow: one subscription of one client."""

    client: Annotated[str, msgspec.Meta(min_length=1)]
    """The client's id, as it is: not a glob."""
    filter: TopicFilter
    """The subscription's filter, with any `$share/group/` before it."""


class PolicyRule(Record, frozen=True, omit_defaults=True):
    """Settings for the flows that match every selector given; with none, for all flows."""

    application: Name | None = None
    category: Name | None = None
    topic: TopicFilter | None = None
    """Selects the subscriptions whose filter this filter covers."""
    flow: FlowSelector | None = None

    priority: Priority | None = None
    """0 is the highest."""
    drop: Fraction | None = None
    """Fraction of the messages to leave out (PlanEMQX §IV-D)."""
    join: Fraction | None = None
    """Probability that a message queues while the client is disconnected (ON/OFF: ζ)."""
    threshold_s: Positive | None = None
    """Without `join`: the mean response from which the broker computes it, in seconds."""
    lifetime: Duration | None = None
    """Seconds after which a waiting message is dropped."""
    capacity: Count | None = None
    """Messages that may wait."""

    @rule(*SETTINGS)
    def _sets_something(self) -> Iterator[Problem]:
        if (  # one by one, because a policy may have 10,000 rules
            self.priority is None
            and self.drop is None
            and self.join is None
            and self.threshold_s is None
            and self.lifetime is None
            and self.capacity is None
        ):
            yield Problem((), f"sets nothing: add one of {', '.join(SETTINGS)}")


class Policy(Record, frozen=True):
    """A numbered set of rules; it replaces the one before as a whole."""

    version: Count = 0
    rules: tuple[PolicyRule, ...] = ()
    periods: Mapping[str, Positive] = {}
    """Topic to the seconds between two of its messages, for publishers that adapt. The broker does
    not enforce them: it announces them (`$SYS/headgate/period/<topic>`)."""

    def to_json(self) -> bytes:
        """The form in which it travels on `$CONTROL/headgate/policy`.

        Brokers from before there were periods take a policy that has none.
        """
        if self.periods:
            return _ENCODER.encode(self)
        return _ENCODER.encode({"version": self.version, "rules": self.rules})

    @classmethod
    def from_json(cls, data: bytes) -> Policy:
        """Read it back; a `ConfigurationError` says what is wrong.

        Topic filters are taken as text: whoever routes by them judges them.
        """
        policy = cls.decoded(data)
        for number in range(len(policy.rules)):
            policy.check(number)
        return policy

    @classmethod
    def decoded(cls, data: bytes) -> Policy:
        """The first half of `from_json`; the other half is to `check` each rule."""
        try:
            return _DECODER.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"not a policy: {error}") from None

    @staticmethod
    def says_rules(data: bytes) -> bool:
        """Does a policy that can be `decoded` speak of its rules, be it to say that it has none?"""
        return "rules" in _KEYS.decode(data)

    def check(self, number: int) -> None:
        """Does a rule keep its own rules? `ConfigurationError` if not."""
        for path, message in problems(self.rules[number]):
            key = "".join(f".{part}" for part in path)
            raise ConfigurationError(f"not a policy: rules[{number}]{key}: {message}")


_DECODER = msgspec.json.Decoder(Policy)
_KEYS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER = msgspec.json.Encoder()
