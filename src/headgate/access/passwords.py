"""The password file: one user per line, `name:argon2:scram:roles`.

    #headgate-passwords 1 q83v…
    alice:$argon2id$v=19$m=32768,t=3,p=1$…$…:SCRAM-SHA-256$32768$…$…$…:admin,ops

The Argon2id hash serves the user name and password of CONNECT, the SCRAM credential the enhanced
authentication; either proves that the password was known, neither reveals it. The first line holds
a secret of the file's own, from which names that do not exist get a salt that never changes, as
those that exist have. Other lines that begin with `#` are remarks.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import hmac
import os
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import argon2
from scramp import ScramException, ScramMechanism
from scramp.utils import saslprep

from headgate.config import InvalidConfigurationError, Mistake
from headgate.errors import ConfigurationError

MECHANISM = "SCRAM-SHA-256"
HEADER = "#headgate-passwords 1 "

COST = argon2.Parameters(
    type=argon2.Type.ID,
    version=19,
    salt_len=16,
    hash_len=32,
    time_cost=3,
    memory_cost=32 * 1024,
    parallelism=1,
)
"""About 50 ms and 32 MiB for each attempt, above OWASP's minimum of 19 MiB and 2 passes."""

ITERATIONS = 32_768
"""Of PBKDF2, which the *client* computes: eight times RFC 7677's minimum, and still within what a
small device can do. A stolen credential is as strong as this number, not as Argon2."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What SCRAM-SHA-256 keeps of a password (RFC 5802 §3)."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __str__(self) -> str:
        parts = (self.salt, self.stored_key, self.server_key)
        return "$".join(
            [MECHANISM, str(self.iterations), *(base64.b64encode(part).decode() for part in parts)]
        )

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """Read it back; ValueError if it is none."""
        mechanism, iterations, *parts = text.split("$")
        if mechanism != MECHANISM:
            raise ValueError(mechanism)
        salt, stored_key, server_key = (base64.b64decode(part, validate=True) for part in parts)
        if int(iterations) < 4096 or len(salt) < 12 or {len(stored_key), len(server_key)} != {32}:
            raise ValueError("too weak")
        return cls(int(iterations), salt, stored_key, server_key)

    @classmethod
    def of(cls, password: str, iterations: int) -> ScramCredential:
        """Derive a new one; ValueError if SCRAM has no such password (RFC 4013)."""
        try:
            made = ScramMechanism(MECHANISM).make_auth_info(password, iterations)
        except ScramException as error:
            raise ValueError(str(error)) from None
        salt, stored_key, server_key, count = made
        return cls(count, salt, stored_key, server_key)


@dataclass(frozen=True, slots=True)
class User:
    """One line of the file."""

    name: str
    hash: str
    scram: ScramCredential | None = None
    roles: frozenset[str] = frozenset()

    def __str__(self) -> str:
        scram = "" if self.scram is None else str(self.scram)
        return f"{self.name}:{self.hash}:{scram}:{','.join(sorted(self.roles))}"


class PasswordFile:
    """What the file held when it was read. Immutable, so that any thread may ask it."""

    def __init__(self, users: Mapping[str, User], secret: bytes) -> None:
        self._users = users
        self._secret = secret
        self._nobody = _unmatchable(users.values())
        iterations = Counter(user.scram.iterations for user in users.values() if user.scram)
        self._iterations = iterations.most_common(1)[0][0] if iterations else ITERATIONS

    @classmethod
    def load(cls, path: Path) -> PasswordFile:
        """Read a file; a `ConfigurationError` names every line that is wrong."""
        lines = _read(path)
        users: dict[str, User] = {}
        mistakes: list[Mistake] = []
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                user = _parse(line)
            except ValueError as error:
                mistakes.append(Mistake(number, 1, line.partition(":")[0], str(error)))
                continue
            if user.name in users:
                mistakes.append(Mistake(number, 1, user.name, "has a line already"))
            users[user.name] = user
        if mistakes:
            raise InvalidConfigurationError(str(path), mistakes)
        return cls(users, _secret(lines) or secrets.token_bytes(32))

    def user(self, name: str) -> User | None:
        return self._users.get(name)

    def verify(self, name: str, password: bytes) -> bool:
        """Is this the user's password? Slow on purpose, and as slow for a user that is unknown."""
        user = self._users.get(name)
        try:
            argon2.PasswordHasher().verify(self._nobody if user is None else user.hash, password)
        except argon2.exceptions.VerificationError:
            return False
        return user is not None

    def credential(self, name: str) -> ScramCredential:
        """The user's SCRAM credential, or one that no password fits but that looks the same.

        Its salt depends on the name and the file alone, so that asking twice tells nothing
        (RFC 5802 §5.1).
        """
        salt = hmac.digest(self._secret, name.encode("utf-8", "surrogatepass"), hashlib.sha256)
        user = self._users.get(name)
        if user is not None and user.scram is not None:
            return user.scram
        return ScramCredential(
            self._iterations, salt, secrets.token_bytes(32), secrets.token_bytes(32)
        )


def set_password(
    path: str | Path,
    name: str,
    password: str,
    *,
    roles: frozenset[str] | None = None,
    cost: argon2.Parameters = COST,
    iterations: int = ITERATIONS,
) -> None:
    """Add a user or change the password, and the roles if given. The file is replaced as a whole.

    Whoever reads it meanwhile sees the old file or the new one. Only its owner can read it.
    """
    _check_name(name)
    if not password:
        raise ConfigurationError("the password is empty")
    try:
        secret = password.encode()
    except UnicodeEncodeError:
        raise ConfigurationError("the password is not Unicode text") from None
    for role in roles or ():
        if not role or set(role) & set(":,\n\r") or role != role.strip():
            raise ConfigurationError(f"{role!r} is not the name of a role: use letters and digits")
    hasher = argon2.PasswordHasher(
        time_cost=cost.time_cost, memory_cost=cost.memory_cost, parallelism=cost.parallelism
    )
    hashed = hasher.hash(secret)
    scram = None
    with suppress(ValueError):  # a password that SCRAM cannot carry still works in CONNECT
        scram = ScramCredential.of(password, iterations)
    with _rewriting(Path(path)) as lines:
        place = _line_of(lines, name)
        if roles is None:
            roles = frozenset() if place is None else _parse(lines[place]).roles
        line = str(User(name, hashed, scram, roles))
        if place is None:
            lines.append(line)
        else:
            lines[place] = line


def delete_user(path: str | Path, name: str) -> bool:
    """Remove a user; False if there was none."""
    _read(Path(path))  # a file that is not there must not come to be
    with _rewriting(Path(path)) as lines:
        place = _line_of(lines, name)
        if place is not None:
            del lines[place]
    return place is not None


@contextmanager
def _rewriting(path: Path) -> Iterator[list[str]]:
    """The file's lines to change; at the end they replace it atomically, readable by its owner."""
    path = path.resolve()  # a symbolic link keeps pointing at the file
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from None
    try:
        # Two commands at once must not lose each other's change.
        fcntl.flock(folder, fcntl.LOCK_EX)
        lines = _read(path) if path.exists() else []
        yield lines
        if _secret(lines) is None:
            lines.insert(0, HEADER + base64.b64encode(secrets.token_bytes(32)).decode())
        try:
            _replace(path, "".join(f"{line}\n" for line in lines).encode())
            os.fsync(folder)
        except OSError as error:
            raise ConfigurationError(f"cannot write {path}: {error.strerror}") from None
    finally:
        os.close(folder)


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            with suppress(FileNotFoundError, PermissionError):
                owner = path.stat()
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _read(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigurationError(f"cannot read {path}: {reason}") from None


def _parse(line: str) -> User:
    name, *fields = line.split(":")
    if not 1 <= len(fields) <= 3:
        raise ValueError("expected name:argon2:scram:roles; write it with `headgate passwd`")
    hashed, scram, roles = [*fields, "", ""][:3]
    try:
        argon2.extract_parameters(hashed)
    except argon2.exceptions.InvalidHashError:
        raise ValueError("has no Argon2 hash; set one with `headgate passwd`") from None
    try:
        credential = ScramCredential.parse(scram) if scram else None
    except (ValueError, binascii.Error):
        raise ValueError("has a broken SCRAM credential; set the password again") from None
    return User(name, hashed, credential, frozenset(filter(None, roles.split(","))))


def _line_of(lines: list[str], name: str) -> int | None:
    return next((n for n, line in enumerate(lines) if line.startswith(f"{name}:")), None)


def _secret(lines: list[str]) -> bytes | None:
    for line in lines:
        if line.startswith(HEADER):
            with suppress(ValueError):
                return base64.b64decode(line[len(HEADER) :], validate=True)
    return None


def _check_name(name: str) -> None:
    if not name or ":" in name or name.startswith("#") or not name.isprintable():
        raise ConfigurationError(
            f"{name!r} is not a user name: it must be printable, without ':' and not begin with '#'"
        )
    try:
        normal = saslprep(name)
    except ScramException as error:
        raise ConfigurationError(f"{name!r} is not a user name: {error}") from None
    if normal != name:
        raise ConfigurationError(f"write the user name in its normal form, {normal!r}")


def _unmatchable(users: Iterable[User]) -> str:
    """A hash that costs as much to verify as most others and that no password has."""
    costs = Counter(user.hash.rsplit("$", 2)[0] for user in users)
    if costs:
        ((cost, _),) = costs.most_common(1)
    else:
        settings = f"m={COST.memory_cost},t={COST.time_cost},p={COST.parallelism}"
        cost = f"$argon2id$v={COST.version}${settings}"
    salt, digest = (
        base64.b64encode(secrets.token_bytes(size)).decode().rstrip("=")
        for size in (COST.salt_len, COST.hash_len)
    )
    return f"{cost}${salt}${digest}"
