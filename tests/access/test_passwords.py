"""The password file: what is in it, how it changes, and what it does not tell."""

from __future__ import annotations

import os
import stat
import statistics
import threading
import time
from pathlib import Path

import argon2
import pytest

from headgate.access import PasswordFile, delete_user, set_password
from headgate.access.passwords import COST, ScramCredential
from headgate.config import InvalidConfigurationError
from headgate.errors import ConfigurationError

from .conftest import QUICK


def quick(path: Path, name: str, password: str, **settings: object) -> None:
    set_password(path, name, password, cost=QUICK, iterations=4096, **settings)  # type: ignore[arg-type]


def test_a_password_is_verified_and_a_wrong_one_is_not(users: Path) -> None:
    found = PasswordFile.load(users)
    assert found.verify("alice", b"wonder")
    assert not found.verify("alice", b"builder")
    assert not found.verify("alice", b"")
    assert not found.verify("nobody", b"wonder")
    assert not found.verify("nobody", b"")


def test_roles_stand_on_the_line(users: Path) -> None:
    found = PasswordFile.load(users)
    alice, bob = found.user("alice"), found.user("bob")
    assert alice is not None
    assert alice.roles == {"admin", "ops"}
    assert bob is not None
    assert bob.roles == frozenset()


def test_a_new_password_replaces_the_old_and_keeps_the_roles(users: Path) -> None:
    quick(users, "alice", "glass")
    found = PasswordFile.load(users)
    assert found.verify("alice", b"glass")
    assert not found.verify("alice", b"wonder")
    alice = found.user("alice")
    assert alice is not None
    assert alice.roles == {"admin", "ops"}
    assert found.verify("bob", b"builder")


def test_roles_are_replaced_when_given(users: Path) -> None:
    quick(users, "alice", "glass", roles=frozenset())
    alice = PasswordFile.load(users).user("alice")
    assert alice is not None
    assert alice.roles == frozenset()


def test_a_deleted_user_is_gone_and_others_stay(users: Path) -> None:
    assert delete_user(users, "alice")
    assert not delete_user(users, "alice")
    found = PasswordFile.load(users)
    assert found.user("alice") is None
    assert found.verify("bob", b"builder")


def test_deleting_from_a_file_that_is_not_there_makes_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        delete_user(tmp_path / "users", "alice")
    assert list(tmp_path.iterdir()) == []


def test_one_name_that_begins_like_another_is_another(users: Path) -> None:
    quick(users, "al", "other")
    found = PasswordFile.load(users)
    assert found.verify("alice", b"wonder")
    assert found.verify("al", b"other")


def test_the_default_cost_is_above_the_recommended_minimum() -> None:
    assert COST.type is argon2.Type.ID
    assert COST.memory_cost >= 19 * 1024
    assert COST.time_cost >= 2


def test_the_file_holds_no_password(users: Path) -> None:
    text = users.read_text()
    assert "wonder" not in text
    assert "builder" not in text


class TestFile:
    def test_only_its_owner_can_read_it(self, users: Path) -> None:
        assert stat.S_IMODE(users.stat().st_mode) == 0o600
        users.chmod(0o644)
        quick(users, "carol", "x")
        assert stat.S_IMODE(users.stat().st_mode) == 0o600

    def test_remarks_and_the_secret_of_the_file_survive(self, users: Path) -> None:
        with users.open("a") as file:
            file.write("# the plant in Lund\n\n")
        before = users.read_text().splitlines()
        quick(users, "carol", "x")
        after = users.read_text().splitlines()
        assert after[: len(before)] == before
        assert before[0].startswith("#headgate-passwords 1 ")

    def test_a_symbolic_link_stays_one(self, users: Path, tmp_path: Path) -> None:
        link = tmp_path / "link"
        link.symlink_to(users)
        quick(link, "carol", "x")
        assert link.is_symlink()
        assert PasswordFile.load(users).verify("carol", b"x")

    def test_a_failed_rewrite_leaves_the_old_file_and_nothing_else(
        self, users: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = users.read_bytes()

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(ConfigurationError, match="No space left"):
            quick(users, "carol", "x")
        assert users.read_bytes() == before
        assert [path.name for path in users.parent.iterdir()] == ["users"]

    def test_readers_see_whole_files_while_writers_lose_no_change(self, users: Path) -> None:
        names = [f"user{n}" for n in range(16)]
        writers = [threading.Thread(target=quick, args=(users, name, name)) for name in names]
        for writer in writers:
            writer.start()
        while any(writer.is_alive() for writer in writers):
            assert PasswordFile.load(users).user("bob") is not None
        for writer in writers:
            writer.join()
        found = PasswordFile.load(users)
        assert all(found.verify(name, name.encode()) for name in names)

    def test_every_bad_line_is_named(self, users: Path) -> None:
        lines = users.read_text().splitlines()
        bad = [
            "plain:secret",
            "alone",
            lines[1],
            f"scram:{lines[1].split(':')[1]}:SCRAM-SHA-256$1$AA$AA$AA:",
            f"many:{lines[1].split(':')[1]}::a:b",
        ]
        users.write_text("\n".join([*lines, *bad]) + "\n")
        with pytest.raises(InvalidConfigurationError) as caught:
            PasswordFile.load(users)
        found = [(mistake.line, mistake.key) for mistake in caught.value.mistakes]
        assert found == [(4, "plain"), (5, "alone"), (6, "alice"), (7, "scram"), (8, "many")]
        assert "headgate passwd" in str(caught.value)
        assert "secret" not in str(caught.value)

    def test_a_hash_alone_is_a_valid_line(self, tmp_path: Path) -> None:
        path = tmp_path / "users"
        path.write_text(f"dave:{argon2.PasswordHasher(1, 8, 1).hash('pw')}\n")
        assert PasswordFile.load(path).verify("dave", b"pw")

    @pytest.mark.parametrize("name", ["", "a:b", "#a", "a\nb", "\u2168", "a\x00"])
    def test_names_that_the_file_cannot_hold(self, users: Path, name: str) -> None:
        before = users.read_bytes()
        with pytest.raises(ConfigurationError):
            quick(users, name, "x")
        assert users.read_bytes() == before

    @pytest.mark.parametrize("role", ["", "a,b", "a:b", " a", "a\nb:x"])
    def test_roles_that_the_file_cannot_hold(self, users: Path, role: str) -> None:
        with pytest.raises(ConfigurationError, match="role"):
            quick(users, "alice", "x", roles=frozenset({role}))

    def test_a_password_that_is_empty_or_not_text(self, users: Path) -> None:
        for password in ("", "\ud800"):
            with pytest.raises(ConfigurationError):
                quick(users, "alice", password)

    def test_a_password_that_scram_cannot_carry_still_works_in_connect(self, users: Path) -> None:
        quick(users, "alice", "bell\x07")
        found = PasswordFile.load(users)
        assert found.verify("alice", b"bell\x07")
        alice = found.user("alice")
        assert alice is not None
        assert alice.scram is None

    def test_a_file_that_is_not_text(self, tmp_path: Path) -> None:
        path = tmp_path / "users"
        path.write_bytes(b"\xff\xfe")
        with pytest.raises(ConfigurationError, match="UTF-8"):
            PasswordFile.load(path)


class TestUnknownUsers:
    def test_they_take_as_long_as_known_ones(self, tmp_path: Path) -> None:
        path = tmp_path / "users"
        cost = argon2.Parameters(argon2.Type.ID, 19, 16, 32, 2, 16 * 1024, 1)
        set_password(path, "alice", "wonder", cost=cost, iterations=4096)
        found = PasswordFile.load(path)

        def cpu(name: str) -> float:
            start = time.thread_time()
            found.verify(name, b"guess")
            return time.thread_time() - start

        known, unknown = [], []
        for _ in range(9):
            known.append(cpu("alice"))
            unknown.append(cpu("mallory"))
        # Without the dummy the ratio is thousands.
        ratio = statistics.median(known) / statistics.median(unknown)
        assert 0.4 < ratio < 2.5

    def test_their_salt_is_always_the_same_and_looks_like_any_other(self, users: Path) -> None:
        first, again = PasswordFile.load(users), PasswordFile.load(users)
        unknown, known = first.credential("mallory"), first.credential("alice")
        assert unknown.salt == again.credential("mallory").salt
        assert unknown.salt != first.credential("oscar").salt
        assert len(unknown.salt) == len(known.salt)
        assert unknown.iterations == known.iterations

    def test_two_files_give_them_different_salts(self, users: Path, tmp_path: Path) -> None:
        quick(tmp_path / "other", "alice", "wonder")
        here, there = PasswordFile.load(users), PasswordFile.load(tmp_path / "other")
        assert here.credential("mallory").salt != there.credential("mallory").salt


def test_a_credential_reads_back() -> None:
    made = ScramCredential.of("pencil", 4096)
    assert ScramCredential.parse(str(made)) == made
    assert ":" not in str(made)
