"""A broker's thread to answer in, and passwords that are quick to hash."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from pathlib import Path

import argon2
import pytest

from headgate.access import Guard, set_password
from headgate.config import Auth, Configuration
from headgate.core.access import Login, Peer, Verdict

QUICK = argon2.Parameters(
    type=argon2.Type.ID,
    version=19,
    salt_len=16,
    hash_len=32,
    time_cost=1,
    memory_cost=8,
    parallelism=1,
)


class BrokerThread:
    """The test's own thread in the broker's place: runs what other threads post to it."""

    def __init__(self) -> None:
        self._posted: queue.Queue[Callable[[], None]] = queue.Queue()

    def post(self, function: Callable[[], None]) -> None:
        self._posted.put(function)

    def run_one(self) -> None:
        self._posted.get(timeout=30)()

    @property
    def is_idle(self) -> bool:
        return self._posted.empty()


@pytest.fixture
def thread() -> BrokerThread:
    return BrokerThread()


@pytest.fixture
def make_guard(thread: BrokerThread) -> Iterator[Callable[..., Guard]]:
    guards: list[Guard] = []

    def make(auth: Auth, **settings: object) -> Guard:
        guard = Guard(Configuration(auth=auth), thread.post, **settings)  # type: ignore[arg-type]
        guards.append(guard)
        return guard

    yield make
    for guard in guards:
        guard.close()


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """alice (roles admin, ops) with the password `wonder`, bob with `builder`."""
    path = tmp_path / "users"
    roles = frozenset({"admin", "ops"})
    set_password(path, "alice", "wonder", roles=roles, cost=QUICK, iterations=4096)
    set_password(path, "bob", "builder", cost=QUICK, iterations=4096)
    return path


def login(
    username: str | None = None,
    password: bytes | None = None,
    *,
    local: bool = False,
    certificate: str | None = None,
) -> Login:
    peer = Peer(address="10.0.0.1", local=local, certificate_name=certificate)
    return Login(peer, "client", username, password)


def judge(guard: Guard, thread: BrokerThread, who: Login) -> Verdict:
    """Log in, and wait for the answer if it comes later."""
    answers: list[Verdict] = []
    guard.authenticate(who, answers.append)
    if not answers:
        thread.run_one()
    (verdict,) = answers
    return verdict
