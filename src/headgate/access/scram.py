"""SCRAM-SHA-256 as an enhanced authentication (MQTT 5 §4.12, RFC 5802, RFC 7677)."""

from __future__ import annotations

from scramp import ScramException, ScramMechanism

from headgate.access.passwords import MECHANISM, PasswordFile
from headgate.core.access import Exchange, Identity, Login, Step, Verdict
from headgate.wire.reasons import Reason

REFUSED = Step(b"", Verdict(reason=Reason.NOT_AUTHORIZED, text="authentication failed"))


class ScramExchange(Exchange):
    """The server's side of one exchange: two messages in, two messages out."""

    def __init__(self, passwords: PasswordFile, login: Login) -> None:
        self._passwords = passwords
        self._login = login
        self._server = ScramMechanism(MECHANISM).make_server(self._look_up)
        self._user = ""
        self._steps = 0

    def step(self, data: bytes) -> Step:
        """Take the client's next message. Whatever is wrong with it, the answer is the same."""
        self._steps += 1
        try:
            text = data.decode("utf-8")
            if self._steps == 1:
                self._server.set_client_first(text)
                return Step(self._server.get_server_first().encode())
            if self._steps == 2:
                self._server.set_client_final(text)
                return self._welcome(self._server.get_server_final().encode())
        except (ScramException, ValueError):
            return REFUSED
        return REFUSED  # a third message: there is no second guess at the proof

    def _welcome(self, data: bytes) -> Step:
        user = self._passwords.user(self._user)
        if user is None or user.scram is None or self._login.username not in (None, "", user.name):
            return REFUSED
        return Step(data, Verdict(Identity(user=user.name)))

    def _look_up(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        self._user = name
        found = self._passwords.credential(name)
        return found.salt, found.stored_key, found.server_key, found.iterations
