"""Making a policy ready, in slices between which messages pass.

Reading 10,000 rules and finding those of 10,000 flows takes longer than a message may wait. None of
it has an effect: what comes out is an enforcer that knows its answer for every flow that there was.
Putting it in force is then one short pass over the flows (`Broker.enforce`), and what changed in
the meantime is no more than a question that the enforcer has not been asked yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headgate.contract import Policy
from headgate.core.channel import OPEN, Channel
from headgate.core.policies import Enforcer
from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.core.broker import Broker

SLICE = 1000
"""Rules or flows looked at in one turn: some milliseconds."""
PAUSE = 0.001

BYTES = 500
"""Bytes of JSON that are read in the time of one rule or flow."""

Prepared = tuple[Enforcer, bytes]
"""An enforcer, and its policy as it is announced."""


class Preparation:
    """One command on its way to being obeyed; only a policy has anything to prepare."""

    def __init__(
        self, broker: Broker, topic: bytes, payload: bytes, is_policy: bool, channel: Channel | None
    ) -> None:
        self.broker = broker
        self.topic = topic
        self.payload = payload
        self.channel = channel
        self._prepared: Prepared | None = None
        self._error: ConfigurationError | None = None
        self._steps = self._work() if is_policy else iter(())

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

    def _work(self) -> Iterator[int]:
        """Yields how much was done each time."""
        policy = Policy.decoded(self.payload)
        yield len(self.payload) // BYTES
        enforcer = Enforcer(policy, at_once=False)
        for rank in range(len(policy.rules)):
            policy.check(rank)
            enforcer.add(rank)
            yield 1
        announcement = policy.to_json()
        yield len(announcement) // BYTES
        for session in list(self.broker.sessions.values()):
            for flow in session.flows.values():
                enforcer.settings_of(flow)
            yield len(session.flows)
        self._prepared = (enforcer, announcement)
