"""Logins as the broker sees them: who gets in, in which thread, and at what cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from headgate.access import Guard, PasswordFile, delete_user, examine, set_password
from headgate.access.verifier import Check, RecentLogins, Verifier
from headgate.access.waiting import Applicant
from headgate.config import AccessRule, Action, Auth, Configuration, parse
from headgate.core.access import Identity, Verdict
from headgate.errors import ConfigurationError
from headgate.wire.reasons import Reason

from .conftest import QUICK, BrokerThread, judge, login

Make = Callable[..., Guard]


class TestPasswords:
    def test_the_right_one_enters(
        self, users: Path, make_guard: Make, thread: BrokerThread
    ) -> None:
        guard = make_guard(Auth(password_file=users))
        assert judge(guard, thread, login("bob", b"builder")) == Verdict(Identity("bob"))

    @pytest.mark.parametrize(
        ("name", "password"),
        [
            ("bob", b"wonder"),
            ("bob", b""),
            ("bob", None),
            ("mallory", b"builder"),
            ("", b"builder"),
            (None, b"builder"),
        ],
    )
    def test_anything_else_is_refused_with_one_answer(
        self,
        users: Path,
        make_guard: Make,
        thread: BrokerThread,
        name: str | None,
        password: bytes | None,
    ) -> None:
        guard = make_guard(Auth(password_file=users, allow_anonymous=True))
        verdict = judge(guard, thread, login(name, password))
        assert verdict.identity is None
        assert verdict.reason is Reason.BAD_USER_NAME_OR_PASSWORD

    def test_the_answer_comes_in_the_broker_s_thread_and_the_work_is_done_elsewhere(
        self,
        users: Path,
        make_guard: Make,
        thread: BrokerThread,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        workers: list[str] = []
        verify = PasswordFile.verify

        def spy(self: PasswordFile, name: str, password: bytes) -> bool:
            workers.append(threading.current_thread().name)
            return verify(self, name, password)

        monkeypatch.setattr(PasswordFile, "verify", spy)
        answers: list[str] = []
        guard = make_guard(Auth(password_file=users))
        guard.authenticate(
            login("bob", b"builder"), lambda _: answers.append(threading.current_thread().name)
        )
        assert answers == []
        thread.run_one()
        assert answers == [threading.current_thread().name]
        assert len(workers) == 1
        assert workers[0].startswith("headgate-verify")

    def test_reconnecting_does_not_hash_again_for_a_while(
        self, users: Path, make_guard: Make, thread: BrokerThread
    ) -> None:
        now = 0.0
        guard = make_guard(Auth(password_file=users), clock=lambda: now)
        answers: list[Verdict] = []
        guard.authenticate(login("bob", b"builder"), answers.append)
        thread.run_one()
        guard.authenticate(login("bob", b"builder"), answers.append)
        assert answers == [Verdict(Identity("bob"))] * 2
        guard.authenticate(login("bob", b"wrong"), answers.append)
        assert len(answers) == 2
        thread.run_one()
        assert answers[2].identity is None
        now = 301.0
        guard.authenticate(login("bob", b"builder"), answers.append)
        assert len(answers) == 3
        thread.run_one()
        assert answers[3] == Verdict(Identity("bob"))

    def test_a_check_that_breaks_proves_nothing(
        self,
        users: Path,
        make_guard: Make,
        thread: BrokerThread,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def broken(self: PasswordFile, name: str, password: bytes) -> bool:
            raise MemoryError

        monkeypatch.setattr(PasswordFile, "verify", broken)
        guard = make_guard(Auth(password_file=users))
        assert judge(guard, thread, login("bob", b"builder")).identity is None

    def test_a_judgement_that_breaks_is_a_refusal(
        self,
        users: Path,
        make_guard: Make,
        thread: BrokerThread,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def broken(self: PasswordFile, name: str) -> None:
            raise RuntimeError

        monkeypatch.setattr(PasswordFile, "user", broken)
        guard = make_guard(Auth(password_file=users))
        verdict = judge(guard, thread, login("bob", b"builder"))
        assert verdict == Verdict(
            reason=Reason.UNSPECIFIED_ERROR, text="the login could not be judged"
        )


class TestFlood:
    def test_beyond_the_bound_the_answer_is_busy_and_room_comes_back(
        self,
        users: Path,
        make_guard: Make,
        thread: BrokerThread,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        gate = threading.Event()

        def slow(self: PasswordFile, name: str, password: bytes) -> bool:
            return gate.wait(30)

        monkeypatch.setattr(PasswordFile, "verify", slow)
        guard = make_guard(Auth(password_file=users))
        answers: list[Verdict] = []
        for number in range(1000):
            guard.authenticate(login("bob", b"%d" % number), answers.append)
        assert {answer.reason for answer in answers} == {Reason.SERVER_BUSY}
        waiting = 1000 - len(answers)
        assert 100 <= waiting <= 500
        assert sum("headgate-verify" in t.name for t in threading.enumerate()) <= 2
        gate.set()
        for _ in range(waiting):
            thread.run_one()
        assert len(answers) == 1000
        assert judge(guard, thread, login("bob", b"again")) == Verdict(Identity("bob"))

    def test_closing_drops_what_waits(self, thread: BrokerThread) -> None:
        gate = threading.Event()
        started = threading.Event()

        def check() -> bool:
            started.set()
            return gate.wait(30)

        verifier = Verifier(thread.post, threads=1)
        done: list[bool] = []
        for _ in range(2):
            verifier.submit(Applicant("", "bob"), Check(check, done.append, pytest.fail))
        assert started.wait(30)
        verifier.close()
        gate.set()
        thread.run_one()
        assert done == [True]
        assert thread.is_idle

    def test_recent_logins_are_bounded(self) -> None:
        recent = RecentLogins(capacity=3)
        for number in range(10):
            recent.add("hash", b"%d" % number, now=0.0)
        assert [recent.holds("hash", b"%d" % n, now=1.0) for n in range(10)] == [False] * 7 + [
            True
        ] * 3
        assert not recent.holds("other", b"9", now=1.0)


class TestAnonymous:
    def test_by_default_only_from_this_machine(
        self, make_guard: Make, thread: BrokerThread
    ) -> None:
        guard = make_guard(Auth())
        assert judge(guard, thread, login(local=True)) == Verdict(Identity())
        assert judge(guard, thread, login()).reason is Reason.NOT_AUTHORIZED

    def test_not_even_from_this_machine_once_there_is_a_way_to_log_in(
        self, users: Path, make_guard: Make, thread: BrokerThread
    ) -> None:
        guard = make_guard(Auth(password_file=users))
        assert judge(guard, thread, login(local=True)).reason is Reason.NOT_AUTHORIZED

    def test_as_written(self, users: Path, make_guard: Make, thread: BrokerThread) -> None:
        guard = make_guard(Auth(password_file=users, allow_anonymous=True))
        assert judge(guard, thread, login()) == Verdict(Identity())
        guard = make_guard(Auth(allow_anonymous=False))
        assert judge(guard, thread, login(local=True)).identity is None

    def test_a_name_that_nothing_proved_is_not_taken_over(
        self, make_guard: Make, thread: BrokerThread
    ) -> None:
        guard = make_guard(Auth(allow_anonymous=True, roles={"admin": ("root",)}))
        verdict = judge(guard, thread, login("root", b"x"))
        assert verdict == Verdict(Identity())
        assert not guard.may_publish(Identity(), "client", "$CONTROL/x")

    def test_roles_for_this_machine_only(self, make_guard: Make, thread: BrokerThread) -> None:
        guard = make_guard(Auth(allow_anonymous=True, local_roles=("admin",)))
        near = judge(guard, thread, login(local=True)).identity
        far = judge(guard, thread, login()).identity
        assert near is not None
        assert far is not None
        assert guard.may_publish(near, "client", "$CONTROL/x")
        assert not guard.may_publish(far, "client", "$CONTROL/x")


class TestCertificates:
    def test_the_common_name_is_the_user(self, make_guard: Make, thread: BrokerThread) -> None:
        guard = make_guard(Auth(certificates=True, roles={"admin": ("root",)}))
        verdict = judge(guard, thread, login("ignored", b"x", certificate="root"))
        assert verdict == Verdict(Identity("root"))
        assert guard.may_publish(Identity("root"), "client", "$CONTROL/x")

    def test_only_where_configured(self, make_guard: Make, thread: BrokerThread) -> None:
        guard = make_guard(Auth(allow_anonymous=True))
        assert judge(guard, thread, login(certificate="root")) == Verdict(Identity())

    def test_no_certificate_is_no_proof(self, make_guard: Make, thread: BrokerThread) -> None:
        guard = make_guard(Auth(certificates=True))
        for who in (login(), login("root"), login("root", b""), login(certificate="", local=True)):
            assert judge(guard, thread, who).identity is None


class TestRoles:
    def test_those_of_the_password_file_count(
        self, users: Path, make_guard: Make, thread: BrokerThread
    ) -> None:
        guard = make_guard(Auth(password_file=users))
        alice = judge(guard, thread, login("alice", b"wonder")).identity
        bob = judge(guard, thread, login("bob", b"builder")).identity
        assert alice is not None
        assert bob is not None
        assert guard.may_publish(alice, "client", "$CONTROL/headgate/policy")
        assert not guard.may_publish(bob, "client", "$CONTROL/headgate/policy")

    def test_a_reload_takes_them_from_a_connected_client(
        self, users: Path, make_guard: Make, thread: BrokerThread
    ) -> None:
        auth = Auth(password_file=users)
        guard = make_guard(auth)
        alice = judge(guard, thread, login("alice", b"wonder")).identity
        assert alice is not None
        set_password(users, "alice", "wonder", roles=frozenset(), cost=QUICK, iterations=4096)
        guard.reload(Configuration(auth=auth))
        assert not guard.may_publish(alice, "client", "$CONTROL/headgate/policy")


class TestReload:
    def test_it_changes_all_answers_at_once(self, make_guard: Make, thread: BrokerThread) -> None:
        guard = make_guard(Auth(allow_anonymous=True))
        assert guard.may_publish(Identity(), "client", "a")
        assert guard.may_claim(Identity(), "client", "urgent", "a")
        rule = AccessRule(allow=(Action.SUBSCRIBE,), topics=("b",))
        guard.reload(Configuration(auth=Auth(allow_anonymous=False, acl=(rule,))))
        assert not guard.may_publish(Identity(), "client", "a")
        assert guard.may_subscribe(Identity(), "client", "b")
        assert not guard.may_claim(Identity(), "client", "urgent", "a")
        assert judge(guard, thread, login(local=True)).identity is None

    def test_a_bad_one_is_refused_and_the_old_one_stays(
        self, users: Path, make_guard: Make, thread: BrokerThread
    ) -> None:
        auth = Auth(password_file=users)
        guard = make_guard(auth)
        users.write_text("nonsense\n")
        with pytest.raises(ConfigurationError):
            guard.reload(Configuration(auth=auth))
        assert judge(guard, thread, login("bob", b"builder")) == Verdict(Identity("bob"))

    def test_a_user_that_was_deleted_while_being_verified_does_not_enter(
        self, users: Path, make_guard: Make, thread: BrokerThread
    ) -> None:
        auth = Auth(password_file=users)
        guard = make_guard(auth)
        answers: list[Verdict] = []
        guard.authenticate(login("bob", b"builder"), answers.append)
        delete_user(users, "bob")
        guard.reload(Configuration(auth=auth))
        thread.run_one()
        assert answers[0].identity is None

    def test_an_old_password_is_forgotten_although_it_was_proven_recently(
        self, users: Path, make_guard: Make, thread: BrokerThread
    ) -> None:
        auth = Auth(password_file=users)
        guard = make_guard(auth)
        assert judge(guard, thread, login("bob", b"builder")).identity is not None
        set_password(users, "bob", "new", cost=QUICK, iterations=4096)
        guard.reload(Configuration(auth=auth))
        assert judge(guard, thread, login("bob", b"builder")).identity is None
        assert judge(guard, thread, login("bob", b"new")).identity is not None


def test_examining_a_configuration_reads_its_files(users: Path) -> None:
    configuration = parse(f"auth: {{password_file: {users}}}")
    assert list(examine(configuration)) == []
    users.write_text("nonsense\n")
    (flaw,) = examine(configuration)
    assert "users:1" in str(flaw)


def test_asking_for_permission_is_quick() -> None:
    rules = tuple(AccessRule(allow=(Action.ALL,), topics=(f"site{n}/%c/#",)) for n in range(100))
    auth = msgspec.structs.replace(Auth(), acl=rules)
    guard = Guard(Configuration(auth=auth), lambda function: function())
    identity = Identity("alice")
    assert guard.may_publish(identity, "client", "site99/client/temperature")
    start = time.thread_time()
    for _ in range(10_000):
        guard.may_publish(identity, "client", "site99/client/temperature")
    # Below a microsecond each, where matching 100 rules takes about a hundred.
    assert time.thread_time() - start < 0.2
    guard.close()
