"""Making a policy or a list of applications ready, in slices between which messages pass.

Reading 10,000 rules and finding those of 10,000 flows takes longer than a message may wait. None of
it has an effect: what comes out is an enforcer that knows its answer for every flow that there was.
Putting it in force is then one short pass over the flows (`Broker.enforce`), and what changed in
the meantime is no more than a question that the enforcer has not been asked yet. With other
applications it is the same: whose each flow will be is found out before any of them changes hands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from headgate.contract import Application, Policy
from headgate.contract.period import ANNOUNCED
from headgate.core.applications import known_applications
from headgate.core.policies import Enforcer
from headgate.core.publishing import Publisher
from headgate.core.repetition import refuse_repeated_keys
from headgate.core.states import OPEN
from headgate.errors import ConfigurationError, MqttError
from headgate.wire.topics import validate_topic

if TYPE_CHECKING:
    from headgate.core.broker import Broker

POLICY = b"$CONTROL/headgate/policy"
APPLICATIONS = b"$CONTROL/headgate/applications"

SLICE = 1000
"""Rules or flows looked at in one turn: some milliseconds."""
PAUSE = 0.001

BYTES = 500
"""Bytes of JSON that are read in the time of one rule or flow."""

SHOWN = 60
"""Characters of a topic that a refusal repeats."""

Prepared = tuple[Enforcer, bytes]
"""An enforcer, and its policy as it is announced."""


class Recognition:
    """Finding out whose the flows are, with other applications than are known now."""

    def __init__(self, broker: Broker, added: list[Application], first: Enforcer | None) -> None:
        """`added` by command, besides those of the configuration; `first` is its policy, if that is
        new and nothing was planned since."""
        self.broker = broker
        self.config = broker.config
        self.added = added
        self.first = first
        self.known = known_applications(broker.config, added)

    def steps(self) -> Iterator[int]:
        """Yields how much was done each time."""
        yield len(self.known.known)
        for session in list(self.broker.sessions.values()):
            enforcer = self.first or self.broker.enforcer
            for flow in session.flows.values():
                claims = (*session.claims, *flow.claims)
                membership = self.known.find_out(session.client_id, session.user, claims)
                enforcer.settings_as(flow, membership)
            yield len(session.flows)

    def is_valid(self) -> bool:
        """Is the configuration still the one that it began with?"""
        return self.config is self.broker.config


class Preparation:
    """One command on its way to being obeyed; a policy and applications have to be prepared."""

    def __init__(
        self,
        broker: Broker,
        topic: bytes,
        payload: bytes,
        channel: Publisher | None,
    ) -> None:
        self.broker = broker
        self.topic = topic
        self.payload = payload
        self.channel = channel
        self._prepared: Prepared | None = None
        self._recognition: Recognition | None = None
        self._error: ConfigurationError | None = None
        self._steps: Iterator[int] = iter(())
        if topic == POLICY:
            self._steps = self._ready_policy()
        elif topic == APPLICATIONS:
            self._steps = self._recognise()

    def is_for(self, topic: bytes, payload: bytes) -> bool:
        """Is this what makes such a command ready?"""
        return self.topic == topic and self.payload == payload

    def is_wanted(self) -> bool:
        """Does its connection still wait for it? One that was ended from our side does not."""
        return self.channel is not None and self.channel.state == OPEN

    def advance(self, most: int | None) -> bool:
        """Do a part of it, or all; True if there is nothing left."""
        done = 0
        try:
            for step in self._steps:
                done += step
                if most is not None and done >= most:
                    return False
        except ConfigurationError as error:
            self._error = error
        return True

    def result(self) -> Prepared:
        """What was prepared; `ConfigurationError` if it cannot be obeyed."""
        if self._error is not None:
            raise self._error
        assert self._prepared is not None
        return self._prepared

    def recognition(self) -> Recognition:
        """The same for applications."""
        if self._error is not None:
            raise self._error
        assert self._recognition is not None
        if not self._recognition.is_valid():  # the configuration was read again meanwhile
            return Recognition(self.broker, self._recognition.added, None)
        return self._recognition

    def _recognise(self) -> Iterator[int]:
        """Yields how much was done each time."""
        applications = read_applications(self.payload)
        check_names(applications)
        yield len(self.payload) // BYTES
        yield from refuse_repeated_keys(self.payload)
        self._recognition = Recognition(self.broker, applications, None)
        yield from self._recognition.steps()

    def _ready_policy(self) -> Iterator[int]:
        """Yields how much was done each time."""
        policy = Policy.decoded(self.payload)
        if not policy.rules and not Policy.says_rules(self.payload):
            # What was left out by mistake must not take every rule out of force.
            raise ConfigurationError(
                'not a policy: it has no rules; if that is meant, say so with "rules": []'
            )
        yield len(self.payload) // BYTES
        yield from refuse_repeated_keys(self.payload)
        enforcer = Enforcer(policy, at_once=False)
        for rank in range(len(policy.rules)):
            policy.check(rank)
            enforcer.add(rank)
            yield 1
        for topic in policy.periods:
            check_period(topic, self.broker.depth)
            yield 1
        announcement = policy.to_json()
        yield len(announcement) // BYTES
        for session in list(self.broker.sessions.values()):
            for flow in session.flows.values():
                enforcer.settings_of(flow)
            yield len(session.flows)
        self._prepared = (enforcer, announcement)


def check_period(topic: str, depth: int) -> None:
    """Can publishers of a topic be told their period? `ConfigurationError` if not."""
    if not topic:
        wrong = "is empty"
    elif topic.startswith("$"):
        wrong = "is no topic of publishers, because it begins with $"
    elif "+" in topic or "#" in topic:
        wrong = "contains a wildcard"
    elif topic.count("/") >= depth:
        wrong = f"has more than {depth} levels"
    else:
        try:
            validate_topic(ANNOUNCED + topic)
            return
        except MqttError as error:
            wrong = f"cannot be announced on {ANNOUNCED}<topic>: {error}"
    shown = topic if len(topic) <= SHOWN else topic[: SHOWN - 1] + "…"
    raise ConfigurationError(f"not a policy: periods: the topic {shown!r} {wrong}")


def read_applications(payload: bytes) -> list[Application]:
    try:
        return _DECODER.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"not a list of applications: {error}") from None


def check_names(applications: list[Application]) -> None:
    """Every application has a name of its own, or it would not be said which of two is meant."""
    names: set[str] = set()
    for application in applications:
        if application.name in names:
            raise ConfigurationError(f"there are two applications called {application.name!r}")
        names.add(application.name)


_DECODER = msgspec.json.Decoder(list[Application])
