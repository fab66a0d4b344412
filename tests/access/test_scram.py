"""SCRAM-SHA-256 against another implementation of the client's side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scramp import ScramClient, ScramException

from headgate.access import Guard, PasswordFile
from headgate.access.scram import ScramExchange
from headgate.config import Auth
from headgate.core.access import Identity, Step, Verdict
from headgate.wire.reasons import Reason

from .conftest import login


def run(exchange: ScramExchange, client: ScramClient) -> Step:
    """The whole exchange; the client believes the server only if its signature is right."""
    first = exchange.step(client.get_client_first().encode())
    assert first.verdict is None
    client.set_server_first(first.data.decode())
    final = exchange.step(client.get_client_final().encode())
    if final.verdict is not None and final.verdict.identity is not None:
        client.set_server_final(final.data.decode())
    return final


def client(user: str, password: str) -> ScramClient:
    return ScramClient(["SCRAM-SHA-256"], user, password)


def refused(verdict: Verdict | None) -> bool:
    return (
        verdict is not None and verdict.identity is None and verdict.reason is Reason.NOT_AUTHORIZED
    )


@pytest.fixture
def passwords(users: Path) -> PasswordFile:
    return PasswordFile.load(users)


def test_the_right_password(passwords: PasswordFile) -> None:
    final = run(ScramExchange(passwords, login()), client("alice", "wonder"))
    assert final.verdict == Verdict(Identity(user="alice"))


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "builder"), ("mallory", "wonder"), ("bob", "wonder")]
)
def test_a_wrong_password_and_an_unknown_user_fail_alike(
    passwords: PasswordFile, user: str, password: str
) -> None:
    final = run(ScramExchange(passwords, login()), client(user, password))
    assert refused(final.verdict)
    assert final.data == b""


def test_a_user_name_in_connect_must_be_the_same(passwords: PasswordFile) -> None:
    same = run(ScramExchange(passwords, login("alice")), client("alice", "wonder"))
    other = run(ScramExchange(passwords, login("bob")), client("alice", "wonder"))
    assert same.verdict == Verdict(Identity(user="alice"))
    assert refused(other.verdict)


def test_a_proof_cannot_be_guessed_twice(passwords: PasswordFile) -> None:
    exchange = ScramExchange(passwords, login())
    good = client("alice", "wonder")
    first = exchange.step(good.get_client_first().encode())
    good.set_server_first(first.data.decode())
    final = good.get_client_final().encode()
    assert refused(exchange.step(final[:-8] + b"AAAAAAA=").verdict)
    assert refused(exchange.step(final).verdict)


def test_a_recorded_exchange_cannot_be_replayed(passwords: PasswordFile) -> None:
    good = client("alice", "wonder")
    exchange = ScramExchange(passwords, login())
    first = good.get_client_first().encode()
    good.set_server_first(exchange.step(first).data.decode())
    final = good.get_client_final().encode()
    assert exchange.step(final).verdict == Verdict(Identity(user="alice"))
    replayed = ScramExchange(passwords, login())
    replayed.step(first)
    assert refused(replayed.step(final).verdict)


def test_nothing_comes_after_success(passwords: PasswordFile) -> None:
    exchange = ScramExchange(passwords, login())
    run(exchange, client("alice", "wonder"))
    assert refused(exchange.step(b"n,,n=alice,r=x").verdict)


def test_a_client_notices_a_server_that_does_not_know_the_password(
    passwords: PasswordFile,
) -> None:
    exchange = ScramExchange(passwords, login())
    good = client("alice", "wonder")
    good.set_server_first(exchange.step(good.get_client_first().encode()).data.decode())
    good.get_client_final()
    with pytest.raises(ScramException):
        good.set_server_final("v=" + "A" * 43 + "=")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.binary(max_size=60) | st.text("nrcpvsi=,ab1", max_size=30).map(str.encode), max_size=4
    )
)
def test_whatever_is_sent_never_authenticates_nor_raises(
    passwords: PasswordFile, messages: list[bytes]
) -> None:
    exchange = ScramExchange(passwords, login())
    for message in messages:
        verdict = exchange.step(message).verdict
        assert verdict is None or verdict.identity is None


class TestOffer:
    def test_it_is_offered_where_configured(
        self, users: Path, make_guard: Callable[..., Guard]
    ) -> None:
        guard = make_guard(Auth(password_file=users, scram=True))
        exchange = guard.exchange("SCRAM-SHA-256", login())
        assert isinstance(exchange, ScramExchange)
        assert run(exchange, client("bob", "builder")).verdict == Verdict(Identity(user="bob"))
        assert guard.exchange("SCRAM-SHA-1", login()) is None
        assert guard.exchange("", login()) is None

    def test_and_nowhere_else(self, users: Path, make_guard: Callable[..., Guard]) -> None:
        assert make_guard(Auth(password_file=users)).exchange("SCRAM-SHA-256", login()) is None
        assert make_guard(Auth()).exchange("SCRAM-SHA-256", login()) is None
