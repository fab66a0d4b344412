"""A process beside the broker that the broker starts, lets in, and starts again if it ends.

It is let in through a Unix socket of its own that only this user can open, with a secret that is
made at start and handed over through a pipe: nobody else can be taken for it
(docs/decisions/0022-the-controllers-door.md).
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from headgate.config import Address
from headgate.config.listeners import Listener, ListenerType
from headgate.core.access import Exchange, Gatekeeper, Identity, Login, Verdict
from headgate.wire.reasons import Reason

log = logging.getLogger("headgate")

USER = "$controller"
ADMIN = Identity(roles=frozenset({"admin"}), own=True)
REFUSED = Verdict(reason=Reason.BAD_USER_NAME_OR_PASSWORD, text="wrong user name or password")
LOOK_EVERY = 0.5
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
PATIENCE = 5.0
"""Seconds to end before it is killed."""
NICER = 5
"""How much less of the processor's time it asks for than the broker, in steps of nice."""
SAFE_PATH = 100
"""The path of a Unix socket has at most 107 bytes."""


class Companion:
    """One process, and the door for it."""

    def __init__(self, data_dir: Path, command: Sequence[str]) -> None:
        """`command` is followed by the path of the socket; it reads the secret from its input."""
        self.secret = secrets.token_urlsafe(32)
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        path = data_dir.absolute() / "controller.sock"
        if len(os.fsencode(path)) > SAFE_PATH:
            self._folder = tempfile.TemporaryDirectory(prefix="headgate-")
            path = Path(self._folder.name) / "controller.sock"
        self.listener = Listener(type=ListenerType.UNIX, address=Address(path=str(path)))
        self._pause = FIRST_PAUSE
        self._start_at = 0.0
        self._started = 0.0

    def look(self, now: float) -> None:
        """Start it if it does not run; the pause grows while it keeps ending."""
        process = self._process
        if process is not None:
            if process.poll() is None:
                return
            log.warning("the controller ended with status %s", process.returncode)
            self._process = None
            if now - self._started > LONGEST_PAUSE:
                self._pause = FIRST_PAUSE
            self._start_at = now + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        if now >= self._start_at:
            self._start(now)

    def _start(self, now: float) -> None:
        self._started = now
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [*self._command, self.listener.address.path],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the broker, which then ends it
        )
        _let_us_go_first(self._process.pid)
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(self.secret.encode() + b"\n")
            self._process.stdin.flush()

    def read_again(self) -> None:
        """The configuration changed. One that only just starts may end by it, and starts again."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGHUP)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """Closing its input tells it to end."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(OSError):
                assert process.stdin is not None
                process.stdin.close()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._folder is not None:
            self._folder.cleanup()


def _let_us_go_first(process: int) -> None:
    """Where both want the processor the broker gets it: on two cores the controller's start alone,
    a second of imports, delayed messages by 50 ms if it ran as the broker does."""
    with suppress(OSError, AttributeError):  # not every system has scheduling classes
        os.sched_setscheduler(process, os.SCHED_OTHER, os.sched_param(0))
    with suppress(OSError):
        own = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, process, min(19, own + NICER))


class CompanionsDoor(Gatekeeper):
    """Lets the companion in by its secret; for everybody else, asks the gatekeeper behind it."""

    def __init__(self, below: Gatekeeper, companion: Companion) -> None:
        self._below = below
        self._secret = companion.secret.encode()
        self._name = companion.listener.label
        self._path = companion.listener.address.path

    def authenticate(self, login: Login, answer: Callable[[Verdict], None]) -> None:
        if login.peer.listener != self._name:
            self._below.authenticate(login, answer)
        elif login.username == USER and hmac.compare_digest(login.password or b"", self._secret):
            answer(Verdict(ADMIN))
        else:
            answer(REFUSED)  # this door is for one

    def exchange(self, method: str, login: Login) -> Exchange | None:
        return None if login.peer.listener == self._name else self._below.exchange(method, login)

    def may_publish(self, identity: Identity, client_id: str, topic: str) -> bool:
        return self._below.may_publish(identity, client_id, topic)

    def may_subscribe(self, identity: Identity, client_id: str, topic_filter: str) -> bool:
        return self._below.may_subscribe(identity, client_id, topic_filter)

    def may_claim(
        self, identity: Identity, client_id: str, what: str, topic: str | None = None
    ) -> bool:
        return self._below.may_claim(identity, client_id, what, topic)

    def may_receive(self, identity: Identity, client_id: str, topic: str) -> bool:
        return self._below.may_receive(identity, client_id, topic)

    def may_receive_all(self, identity: Identity, client_id: str, topic_filter: str) -> bool:
        return self._below.may_receive_all(identity, client_id, topic_filter)
