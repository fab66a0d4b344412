"""The control channel: `$CONTROL/headgate/…`, for clients with the role `admin`.

A command is a JSON payload. It is answered on the MQTT 5 response topic if the request names one,
and always on `$SYS/headgate/control`; the acknowledgement of the request carries the reason code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from headgate.contract import Application, Policy
from headgate.core.message import Message
from headgate.core.policies import Enforcer
from headgate.core.publication import response_of
from headgate.core.session import Session
from headgate.errors import ConfigurationError
from headgate.wire.reasons import Reason

if TYPE_CHECKING:
    from headgate.core.broker import Broker

POLICY = b"$CONTROL/headgate/policy"
APPLICATIONS = b"$CONTROL/headgate/applications"
ANSWERS = "$SYS/headgate/control"


class Control:
    """Obeys commands, and remembers them across restarts."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.applications: list[Application] = []
        """Those that came by command."""
        self._commands: dict[bytes, Callable[[bytes, float], dict[str, object]]] = {
            POLICY: self._set_policy,
            APPLICATIONS: self._set_applications,
        }

    def obey(self, message: Message, sender: Session | None, now: float) -> int:
        """Carry out a command; returns the reason code of its acknowledgement."""
        command = self._commands.get(message.topic)
        answer: dict[str, object]
        try:
            if command is None:
                known = ", ".join(topic.decode() for topic in self._commands)
                raise ConfigurationError(f"there is no such command: there are {known}")
            answer = {"ok": True, **command(message.payload, now)}
            reason = Reason.SUCCESS
        except ConfigurationError as error:
            answer = {"ok": False, "reason": str(error)}
            reason = Reason.PAYLOAD_FORMAT_INVALID
        answer["command"] = message.topic.decode()
        answer["client"] = "" if sender is None else sender.client_id
        payload = msgspec.json.encode(answer)
        self.broker.publish(ANSWERS, payload, False, now)
        response_topic, correlation = response_of(message.properties)
        if response_topic:
            self.broker.publish(response_topic, payload, False, now, correlation)
        return reason

    def restore(self, values: dict[str, bytes]) -> None:
        """Take up what was commanded before the restart."""
        broker = self.broker
        if "applications" in values:
            self.applications = _read_applications(values["applications"])
            broker.applications = broker.known_applications(self.applications)
        if "policy" in values:
            broker.enforcer = Enforcer(Policy.from_json(values["policy"]))

    def announce(self, now: float) -> None:
        """Tell the policy in force to whoever subscribes."""
        policy = self.broker.enforcer.policy
        self.broker.publish("$SYS/headgate/policy", policy.to_json(), True, now)

    def _set_policy(self, payload: bytes, now: float) -> dict[str, object]:
        policy = Policy.from_json(payload)
        in_force = self.broker.enforcer.policy.version
        if policy.version <= in_force:
            raise ConfigurationError(
                f"version {policy.version} is not above {in_force}, which is in force"
            )
        flows = self.broker.enforce(Enforcer(policy))
        self.broker.journal.save_value("policy", payload)
        self.broker.pool.kept = self.broker.journal.position
        self.announce(now)
        return {"version": policy.version, "flows": flows}

    def _set_applications(self, payload: bytes, now: float) -> dict[str, object]:
        applications = _read_applications(payload)
        self.applications = applications
        self.broker.applications = self.broker.known_applications(applications)
        flows = self.broker.enforce(self.broker.enforcer)
        self.broker.journal.save_value("applications", payload)
        self.broker.pool.kept = self.broker.journal.position
        return {"applications": len(applications), "flows": flows}


def _read_applications(payload: bytes) -> list[Application]:
    try:
        return _DECODER.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"not a list of applications: {error}") from None


_DECODER = msgspec.json.Decoder(list[Application])
