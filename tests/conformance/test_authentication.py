"""Passwords and enhanced authentication (MQTT 5 §3.1.3.5, §3.15, §4.12) with SCRAM-SHA-256."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from broker_process import BrokerProcess
from scramp import ScramClient

from headgate.access import set_password
from headgate.wire.codec import encode
from headgate.wire.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Properties,
    Publish,
    Version,
)
from headgate.wire.reasons import Reason

from .client import Client
from .conftest import Dial, Enter

METHOD = "SCRAM-SHA-256"
ANNA: dict[str, Any] = {"username": "anna", "password": b"anna's secret"}
BERT: dict[str, Any] = {"username": "bert", "password": b"bert's secret"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that knows anna and bert, and lets nobody else in."""
    folder = tmp_path_factory.mktemp("authentication")
    users = folder / "users.txt"
    set_password(users, "anna", "anna's secret")
    set_password(users, "bert", "bert's secret")
    set_password(users, "carl", "carl's secret")
    process = BrokerProcess(folder, f"auth: {{password_file: {users}, scram: true}}")
    process.start()
    yield process
    process.stop()


class Prover:
    """The client's side of SCRAM, as `scramp` does it."""

    def __init__(self, user: str, password: str) -> None:
        self._scram = ScramClient([METHOD], user, password)

    def first(self) -> bytes:
        text: str = self._scram.get_client_first()
        return text.encode()

    def final(self, challenge: bytes | None) -> bytes:
        assert challenge is not None
        self._scram.set_server_first(challenge.decode())
        text: str = self._scram.get_client_final()
        return text.encode()

    def verify(self, proof: bytes | None) -> None:
        """The server knew the password too."""
        assert proof is not None
        self._scram.set_server_final(proof.decode())


def auth(reason: int, data: bytes | None = None, method: str | None = METHOD) -> Auth:
    return Auth(reason, Properties(auth_method=method, auth_data=data))


def begin(client: Client, prover: Prover, client_id: str, **fields: Any) -> bytes | None:
    """CONNECT with the first message; the broker's challenge."""
    properties = Properties(auth_method=METHOD, auth_data=prover.first(), session_expiry=60)
    client.send(Connect(client_id, properties=properties, **fields))
    challenge = client.expect(Auth, reason=Reason.CONTINUE_AUTHENTICATION)
    assert challenge.properties.auth_method == METHOD  # [MQTT-4.12.0-3]
    return challenge.properties.auth_data


def enter_by_scram(client: Client, user: str, password: str, client_id: str) -> Connack:
    prover = Prover(user, password)
    challenge = begin(client, prover, client_id)
    client.send(auth(Reason.CONTINUE_AUTHENTICATION, prover.final(challenge)))
    connack = client.expect(Connack, reason=0)
    prover.verify(connack.properties.auth_data)
    return connack


def prove_again(client: Client, prover: Prover) -> None:
    """Re-authentication, up to the proof."""
    client.send(auth(Reason.REAUTHENTICATE, prover.first()))
    challenge = client.expect(Auth, reason=Reason.CONTINUE_AUTHENTICATION).properties
    client.send(auth(Reason.CONTINUE_AUTHENTICATION, prover.final(challenge.auth_data)))


@pytest.mark.parametrize("version", list(Version), ids=lambda v: v.name)
def test_the_right_password_is_let_in(dial: Dial, name: str, version: Version) -> None:
    """§3.1.3.5, §3.1.3.6"""
    dial(version).connect(name, **ANNA)


REFUSED = {
    "wrong password": ("anna", b"bert's secret", Reason.BAD_USER_NAME_OR_PASSWORD, 4),
    "unknown user": ("carl", b"anna's secret", Reason.BAD_USER_NAME_OR_PASSWORD, 4),
    "empty password": ("anna", b"", Reason.BAD_USER_NAME_OR_PASSWORD, 4),
    "nobody": (None, None, Reason.NOT_AUTHORIZED, 5),
}


@pytest.mark.parametrize("who", REFUSED)
def test_anything_else_is_refused(dial: Dial, name: str, version: Version, who: str) -> None:
    """§3.2.2.2, [MQTT-3.2.2-7], 3.1.1 §3.2.2.3: return codes 4 and 5; then closed."""
    username, password, reason, code = REFUSED[who]
    client = dial(version)
    client.send(Connect(name, version, username=username, password=password))
    expected = reason if version is Version.V5 else code
    client.expect(Connack, session_present=False, reason=expected)
    client.expect_closed()


def test_packets_that_follow_at_once_wait_for_the_verdict(
    dial: Dial, enter: Enter, name: str
) -> None:
    """[MQTT-3.1.4-6]: nothing after a refused CONNECT is processed; after another, all is."""
    watcher = enter(f"{name}-w", **ANNA)
    watcher.subscribe(name)
    stranger = dial()
    stranger.send(
        Connect(name, username="anna", password=b"guess"), Publish(name, b"bad"), Pingreq()
    )
    stranger.expect(Connack, reason=Reason.BAD_USER_NAME_OR_PASSWORD)
    stranger.expect_closed()
    friend = dial()
    friend.send(Connect(name, username="bert", password=b"bert's secret"), Publish(name, b"good"))
    friend.expect(Connack, reason=0)
    watcher.take(payload=b"good")
    watcher.expect_nothing()


def test_a_flood_of_wrong_passwords_from_one_address_keeps_nobody_else_out(
    broker: BrokerProcess, name: str
) -> None:
    flood = []
    for number in range(400):  # more than may wait
        intruder = socket.create_connection(
            ("127.0.0.1", broker.port), source_address=("127.0.0.9", 0)
        )
        guess = Connect(f"{name}-{number}", username=f"guess-{number}", password=b"wrong")
        intruder.sendall(encode(guess, Version.V5))
        flood.append(intruder)
    client = Client(broker.port)
    client.send(Connect(name, username="carl", password=b"carl's secret"))
    client.expect(Connack, reason=Reason.SUCCESS)
    # They still wait for their turns, or were told to come again.
    unanswered = 0
    for intruder in flood:
        intruder.setblocking(False)
        try:
            assert intruder.recv(64)
        except BlockingIOError:
            unanswered += 1
        intruder.close()
    assert unanswered > 100
    client.close()


def test_a_session_is_its_users_own(dial: Dial, name: str) -> None:
    """§4.1, §5.4.2: another user with the same client id inherits nothing."""
    lasting = Properties(session_expiry=60)
    first = dial()
    first.connect(name, properties=lasting, **ANNA)
    first.subscribe(f"{name}/private", 1)
    first.disconnect()
    other = dial()
    connack = other.connect(name, clean_start=False, properties=lasting, **BERT)
    assert connack.session_present is False


def test_scram_lets_in_who_knows_the_password(dial: Dial, name: str) -> None:
    """[MQTT-4.12.0-2], [MQTT-4.12.0-3], [MQTT-4.12.0-4]: AUTH, AUTH, CONNACK with the proof."""
    client = dial()
    connack = enter_by_scram(client, "anna", "anna's secret", name)
    assert connack.properties.auth_method == METHOD  # [MQTT-4.12.0-5]
    client.expect_nothing()


def test_scram_refuses_a_wrong_password(dial: Dial, name: str) -> None:
    """[MQTT-4.12.0-4], §4.12: CONNACK with an error, then closed; an unknown user sees the same."""
    for user in ("anna", "carl"):
        client = dial()
        prover = Prover(user, "guess")
        challenge = begin(client, prover, name)
        client.send(auth(Reason.CONTINUE_AUTHENTICATION, prover.final(challenge)))
        client.expect(Connack, reason=Reason.NOT_AUTHORIZED, session_present=False)
        client.expect_closed()


def test_scram_refuses_what_is_not_scram(dial: Dial, name: str) -> None:
    """§4.12"""
    for data in (b"", b"n,,", b"\xff\xfe", b"n,,n=anna"):
        client = dial()
        properties = Properties(auth_method=METHOD, auth_data=data)
        client.send(Connect(name, properties=properties))
        client.expect(Connack, reason=Reason.NOT_AUTHORIZED)
        client.expect_closed()


def test_an_unknown_method_is_refused(dial: Dial, name: str) -> None:
    """[MQTT-4.12.0-1]: 0x8C."""
    client = dial()
    client.send(Connect(name, properties=Properties(auth_method="SCRAM-SHA-0")))
    client.expect(Connack, reason=Reason.BAD_AUTHENTICATION_METHOD)
    client.expect_closed()


def test_the_method_may_not_change(dial: Dial, name: str) -> None:
    """[MQTT-4.12.0-5]: all AUTH packets have the method of CONNECT."""
    for method in ("SCRAM-SHA-1", None):
        client = dial()
        prover = Prover("anna", "anna's secret")
        proof = prover.final(begin(client, prover, name))
        client.send(auth(Reason.CONTINUE_AUTHENTICATION, proof if method else None, method))
        client.expect(Connack, reason=Reason.PROTOCOL_ERROR)
        client.expect_closed()


def test_only_auth_may_follow_a_connect_with_a_method(dial: Dial, name: str) -> None:
    """[MQTT-3.1.2-30]: until CONNACK, nothing but AUTH and DISCONNECT."""
    client = dial()
    begin(client, Prover("anna", "anna's secret"), name)
    client.send(Publish(name, b"too early"))
    client.expect(Connack, reason=Reason.PROTOCOL_ERROR)
    client.expect_closed()


def test_a_client_may_give_up(dial: Dial, name: str) -> None:
    """[MQTT-3.1.2-30]: DISCONNECT is allowed before CONNACK."""
    client = dial()
    begin(client, Prover("anna", "anna's secret"), name)
    client.send(Disconnect())
    client.expect_closed()


def test_auth_without_a_method_in_connect_is_an_error(enter: Enter, name: str) -> None:
    """[MQTT-4.12.0-7]"""
    client = enter(name, **ANNA)
    client.send(auth(Reason.REAUTHENTICATE, b""))
    client.expect_dismissed(Reason.PROTOCOL_ERROR)


def test_a_client_without_a_method_gets_no_auth(dial: Dial, name: str) -> None:
    """[MQTT-4.12.0-6]"""
    client = dial()
    connack = client.connect(name, **ANNA)
    assert connack.properties.auth_method is None
    client.expect_nothing()


def test_an_open_session_can_be_proved_again(dial: Dial, name: str) -> None:
    """§4.12.1: AUTH 0x19, AUTH 0x18, then AUTH 0x00; meanwhile everything else goes on."""
    client = dial()
    enter_by_scram(client, "anna", "anna's secret", name)
    client.subscribe(name)
    prover = Prover("anna", "anna's secret")
    client.send(auth(Reason.REAUTHENTICATE, prover.first()))
    challenge = client.expect(Auth, reason=Reason.CONTINUE_AUTHENTICATION).properties
    client.send(Publish(name, b"meanwhile"))
    client.take(payload=b"meanwhile")
    client.send(auth(Reason.CONTINUE_AUTHENTICATION, prover.final(challenge.auth_data)))
    success = client.expect(Auth, reason=Reason.SUCCESS).properties
    assert success.auth_method == METHOD
    prover.verify(success.auth_data)
    client.expect_nothing()


def test_a_failed_proof_ends_an_open_session(dial: Dial, name: str) -> None:
    """§4.12.1: DISCONNECT, and the connection is closed."""
    client = dial()
    enter_by_scram(client, "anna", "anna's secret", name)
    prove_again(client, Prover("anna", "guess"))
    client.expect_dismissed(Reason.NOT_AUTHORIZED)


def test_nobody_becomes_another_user_within_a_session(dial: Dial, name: str) -> None:
    """§4.12.1: the session is anna's, whoever proves what later."""
    client = dial()
    enter_by_scram(client, "anna", "anna's secret", name)
    prove_again(client, Prover("bert", "bert's secret"))
    client.expect_dismissed(Reason.NOT_AUTHORIZED)


def test_an_answer_without_a_question_is_an_error(dial: Dial, name: str) -> None:
    """[MQTT-4.12.1-1]: re-authentication begins with 0x19."""
    client = dial()
    enter_by_scram(client, "anna", "anna's secret", name)
    client.send(auth(Reason.CONTINUE_AUTHENTICATION, b"c=biws"))
    client.expect_dismissed(Reason.PROTOCOL_ERROR)


def test_scram_finds_its_session_again(dial: Dial, name: str) -> None:
    """[MQTT-3.1.2-5]: the way in does not matter to the session."""
    first = dial()
    enter_by_scram(first, "anna", "anna's secret", name)
    first.subscribe(name, 1)
    first.disconnect()
    assert dial().connect(name, clean_start=False, **ANNA).session_present is True
