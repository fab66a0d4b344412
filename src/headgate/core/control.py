"""The control channel: `$CONTROL/headgate/…`, for clients with the role `admin`.

A command is a JSON payload. It is answered on the MQTT 5 response topic if the request names one,
and always on `$SYS/headgate/control`; the acknowledgement of the request carries the reason code.
A command takes effect between two messages. A policy that is much work is prepared first, in slices
between which messages of others pass (`core.preparing`); meanwhile the connection that sent it
waits, and commands that come later stand in line. Every answer waits until what was commanded would
survive a crash: after it, the broker never obeys an older command again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec

from headgate.contract import Application, Policy
from headgate.contract.period import ANNOUNCED
from headgate.contract.schema import Count, Duration
from headgate.core.message import Message
from headgate.core.policies import Enforcer
from headgate.core.preparing import (
    APPLICATIONS,
    PAUSE,
    POLICY,
    SLICE,
    Preparation,
    Recognition,
    check_period,
    read_applications,
)
from headgate.core.publication import response_of
from headgate.core.repetition import refuse_repeated_keys
from headgate.core.session import Session
from headgate.errors import ConfigurationError
from headgate.wire.reasons import Reason

if TYPE_CHECKING:
    from headgate.core.broker import Broker
    from headgate.core.publishing import Publisher

log = logging.getLogger("headgate")

ANSWERS = "$SYS/headgate/control"
LEASE = b"$CONTROL/headgate/lease"
PLAN = b"$CONTROL/headgate/plan"
IN_FORCE = "$SYS/headgate/policy"
KNOWN = "$SYS/headgate/applications"

LONGEST_LEASE = 60.0

FURTHEST = 10**13
"""How far above the version in force the next may be. It leaves room for milliseconds since 1970,
and one slip does not use the numbers up: a hundred of them would."""


Command = Callable[[bytes, Preparation | None, float], dict[str, object]]
"""Takes a payload, what was prepared for it, and the time; returns what is answered."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is said once the journal is durable up to `position`."""

    position: int
    payload: bytes
    response_topic: str
    correlation: bytes
    announcements: tuple[tuple[str, bytes], ...]
    """Topics and payloads that say what is so from now on, retained; an empty one takes back."""


class Lease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which controller plans now. It binds controllers only: a person may always set a policy."""

    holder: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    seconds: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_LEASE)]
    """0 gives it back."""


class Planned(msgspec.Struct, frozen=True):
    """What a controller decided, for the record; there may be more of it than this."""

    event: str
    why: str
    version: Count
    rules: Count = 0
    seconds: Duration = 0.0


class Control:
    """Obeys commands, and remembers them across restarts."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.applications: list[Application] = []
        """Those that came by command."""
        self._commands: dict[bytes, Command] = {
            POLICY: self._set_policy,
            APPLICATIONS: self._set_applications,
            LEASE: self._lease,
            PLAN: self._note_plan,
        }
        self._holder = ""
        self._held_until = 0.0
        self._answers: deque[Answer] = deque()
        self._line: deque[Preparation] = deque()
        """Commands that are not ready, in the order in which they came."""
        self._alarmed = False
        self._ready: Preparation | None = None
        """What the next command is to be obeyed with."""
        self._renewal: tuple[Recognition, Iterator[int]] | None = None
        """What a reload has yet to do."""
        self._renewing = False
        self._announcements: list[tuple[str, bytes]] = []
        self._periods: dict[str, float] = {}
        """Those that are announced."""

    # Before a command is obeyed

    def is_ready(self, channel: Publisher, topic: bytes, payload: bytes, now: float) -> bool:
        """May a command be obeyed now? If not, `channel.go_on` is called when it may."""
        ready = self._ready
        if ready is not None and ready.channel is channel and ready.is_for(topic, payload):
            return True
        preparation = Preparation(self.broker, topic, payload, channel)
        if not self._line and preparation.advance(SLICE):
            self._ready = preparation
            return True
        self._line.append(preparation)
        self._continue_later(now)
        return False

    def hurry(self, channel: Publisher, now: float) -> None:
        """A connection that waits is at its end: obey all that it said, and what comes before."""
        while channel.waits:
            self._finish(self._line.popleft(), now)

    def _continue_later(self, now: float) -> None:
        if self._line and not self._alarmed:
            self._alarmed = True
            self.broker.schedule(now + PAUSE, self._continue)

    def _continue(self, now: float) -> None:
        """Prepare the first in line a little further."""
        self._alarmed = False
        try:
            if self._line and (not self._line[0].is_wanted() or self._line[0].advance(SLICE)):
                self._finish(self._line.popleft(), now)
        finally:
            self._continue_later(now)

    def _finish(self, preparation: Preparation, now: float) -> None:
        """Let the connection that waits for a command go on with it."""
        channel = preparation.channel
        if channel is None or not preparation.is_wanted():
            return
        preparation.advance(None)
        self._ready = preparation
        try:
            channel.go_on(now)
        finally:
            self._ready = None

    # After a reload

    def reconfigured(self, now: float) -> None:
        """Another configuration holds: find out in slices whose the flows are by it."""
        self._renewal = None
        self._renew(now)

    def _renew(self, now: float) -> None:
        broker = self.broker
        if self._renewal is None or self._renewal[0].added is not self.applications:
            planned = broker.enforcer.policy.version > 0  # that stays in force
            first = None if planned else Enforcer(broker.config.first_policy)
            recognition = Recognition(broker, self.applications, first)
            self._renewal = recognition, recognition.steps()
        recognition, steps = self._renewal
        done = 0
        for step in steps:
            done += step
            if done >= SLICE:
                if not self._renewing:
                    self._renewing = True
                    broker.schedule(now + PAUSE, self._renew_further)
                return
        self._renewal = None
        if recognition.first is not None and broker.enforcer.policy.version == 0:
            broker.enforcer = recognition.first
            self.announce(now)
        broker.recognise(recognition)

    def _renew_further(self, now: float) -> None:
        self._renewing = False
        if self._renewal is not None:
            self._renew(now)

    # Commands

    def obey(self, message: Message, sender: Session | None, now: float) -> int:
        """Carry out a command; returns the reason code of its acknowledgement."""
        broker = self.broker
        command = self._commands.get(message.topic)
        ready, self._ready = self._ready, None
        before = broker.enforcer
        self._announcements = []
        answer: dict[str, object]
        try:
            if command is None:
                known = ", ".join(topic.decode() for topic in self._commands)
                raise ConfigurationError(f"there is no such command: there are {known}")
            answer = {"ok": True, **command(message.payload, ready, now)}
            reason = Reason.SUCCESS
        except ConfigurationError as error:
            answer = {"ok": False, "reason": str(error)}
            reason = Reason.PAYLOAD_FORMAT_INVALID
        answer["command"] = message.topic.decode()
        client = "" if sender is None else sender.client_id
        answer["client"] = client
        if message.topic == PLAN and answer["ok"]:
            plan = msgspec.json.decode(message.payload, type=Planned)
            broker.observer.planned(plan, client, message.payload, now)
        else:
            broker.observer.commanded(message.topic.decode(), client, answer, message.payload, now)
        self._answers.append(
            Answer(
                broker.journal.position if answer["ok"] else 0,
                msgspec.json.encode(answer),
                *self._reply_to(message, sender),
                announcements=tuple(self._announcements),
            )
        )
        self.committed(now)
        if broker.enforcer is not before:
            # To take 10,000 rules apart takes a while too: in a turn of its own.
            broker.schedule(now + PAUSE, partial(release, before))
        return reason

    def _reply_to(self, message: Message, sender: Session | None) -> tuple[str, bytes]:
        """Where an answer is wanted, if whoever asks could have published there himself."""
        topic, correlation = response_of(message.properties)
        if (
            not topic
            or sender is None
            or topic.startswith("$")
            or topic.count("/") >= self.broker.depth
            or not self.broker.gatekeeper.may_publish(sender.identity, sender.client_id, topic)
        ):
            return "", b""
        return topic, correlation

    def committed(self, now: float) -> None:
        """Give the answers that need not wait any more, in the order of the commands."""
        broker = self.broker
        while self._answers and self._answers[0].position <= broker.pool.durable:
            answer = self._answers.popleft()
            for topic, payload in answer.announcements:
                self._say(topic, payload, now)
            broker.publish(ANSWERS, answer.payload, False, now)
            if answer.response_topic:
                broker.publish(
                    answer.response_topic, answer.payload, False, now, answer.correlation
                )

    def announce(self, now: float) -> None:
        """Tell everybody what is in force."""
        policy = self.broker.enforcer.policy
        self._say(IN_FORCE, policy.to_json(), now)
        self._say(KNOWN, msgspec.json.encode(self.applications), now)
        for topic, payload in self._new_periods(policy):
            self._say(topic, payload, now)

    def _say(self, topic: str, payload: bytes, now: float) -> None:
        if payload:
            self.broker.publish(topic, payload, True, now)
        else:
            self.broker.withdraw(topic, now)

    def _new_periods(self, policy: Policy) -> list[tuple[str, bytes]]:
        """What publishers that adapt are to be told, compared with what they were told last."""
        before, self._periods = self._periods, dict(policy.periods)
        gone = [(ANNOUNCED + topic, b"") for topic in before if topic not in self._periods]
        return gone + [
            (ANNOUNCED + topic, msgspec.json.encode({"period_s": seconds}))
            for topic, seconds in self._periods.items()
            if before.get(topic) != seconds
        ]

    def restore(self, values: dict[str, bytes]) -> None:
        """Take up what was commanded before the restart.

        An earlier version may have taken what this one refuses: that must not keep the broker from
        starting, because then nobody could command anything else.
        """
        if "applications" in values:
            try:
                self.applications = read_applications(values["applications"])
            except ConfigurationError as error:
                log.error("the applications kept from before are not taken up: %s", error)
            self.broker.recognise(Recognition(self.broker, self.applications, None))
        if "policy" in values:
            try:
                self.broker.enforce(Enforcer(self._kept_policy(values["policy"])))
            except ConfigurationError as error:
                log.error("the policy kept from before is not taken up: %s", error)

    def _kept_policy(self, data: bytes) -> Policy:
        """The policy from before a restart, without periods that cannot be announced."""
        policy = Policy.from_json(data)
        periods = {}
        for topic, seconds in policy.periods.items():
            try:
                check_period(topic, self.broker.depth)
                periods[topic] = seconds
            except ConfigurationError as error:
                log.error("a period of the policy kept from before is left out: %s", error)
        return msgspec.structs.replace(policy, periods=periods)

    def _note_plan(
        self, payload: bytes, _ready: Preparation | None, _now: float
    ) -> dict[str, object]:
        """It is only written down, if anybody does that."""
        try:
            plan = msgspec.json.decode(payload, type=Planned)
        except RecursionError:  # what is in it besides may be anything
            raise ConfigurationError("not the record of a plan: it is nested too deeply") from None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"not the record of a plan: {error}") from None
        for _ in refuse_repeated_keys(payload):
            pass
        return {"event": plan.event}

    def _set_policy(
        self, payload: bytes, ready: Preparation | None, now: float
    ) -> dict[str, object]:
        if ready is None or not ready.is_for(POLICY, payload):  # a will that is a command
            ready = Preparation(self.broker, POLICY, payload, None)
            ready.advance(None)
        enforcer, announcement = ready.result()
        policy = enforcer.policy
        in_force = self.broker.enforcer.policy.version
        if policy.version <= in_force:
            raise ConfigurationError(
                f"version {policy.version} is not above {in_force}, which is in force"
            )
        if policy.version > in_force + FURTHEST:
            raise ConfigurationError(
                f"version {policy.version} is too far above {in_force}, which is in force, and"
                f" nothing could follow it for long: expected at most {in_force + FURTHEST}"
            )
        flows = self.broker.enforce(enforcer)
        self._announcements = [(IN_FORCE, announcement), *self._new_periods(policy)]
        self._keep("policy", payload)
        return {"version": policy.version, "flows": flows}

    def _set_applications(
        self, payload: bytes, ready: Preparation | None, now: float
    ) -> dict[str, object]:
        if ready is None or not ready.is_for(APPLICATIONS, payload):  # a will that is a command
            ready = Preparation(self.broker, APPLICATIONS, payload, None)
            ready.advance(None)
        recognition = ready.recognition()
        self.applications = recognition.added
        flows = self.broker.recognise(recognition)
        self._keep("applications", payload)
        self._announcements = [(KNOWN, msgspec.json.encode(recognition.added))]
        return {"applications": len(recognition.added), "flows": flows}

    def _lease(self, payload: bytes, _ready: Preparation | None, now: float) -> dict[str, object]:
        try:
            asked = _LEASES.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"not a lease: {error}") from None
        for _ in refuse_repeated_keys(payload):
            pass
        if self._holder != asked.holder and now < self._held_until:
            raise ConfigurationError(
                f"{self._holder} has the lease for another {self._held_until - now:.0f} s"
            )
        self._holder, self._held_until = asked.holder, now + asked.seconds
        return {"holder": asked.holder, "seconds": asked.seconds}

    def _keep(self, name: str, payload: bytes) -> None:
        self.broker.journal.save_value(name, payload)
        self.broker.pool.kept = self.broker.journal.position


def release(enforcer: Enforcer, now: float) -> None:
    """Nobody needs an enforcer any more: with the end of this call it is gone."""


_LEASES = msgspec.json.Decoder(Lease)
