"""Tokens: the good ones, and the known ways to forge one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from headgate.access import Guard
from headgate.access.tokens import TokenVerifier
from headgate.config import Algorithm, Auth, Jwt
from headgate.core.access import Identity
from headgate.errors import ConfigurationError
from headgate.wire.reasons import Reason

from .conftest import BrokerThread, judge, login

SECRET = b"0123456789abcdef0123456789abcdef"
RSA_KEY = rsa.generate_private_key(65537, 2048)


def claims(**more: Any) -> dict[str, Any]:
    return {"sub": "alice", "exp": int(time.time()) + 600, **more}


def signed(payload: dict[str, Any], key: Any = SECRET, algorithm: str = "HS256") -> bytes:
    return jwt.encode(payload, key, algorithm).encode()


def pem(key: Any) -> bytes:
    return bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET + b"\n")
    return path


@pytest.fixture
def rsa_file(tmp_path: Path) -> Path:
    path = tmp_path / "rsa.pem"
    path.write_bytes(pem(RSA_KEY))
    return path


@pytest.fixture
def shared(secret_file: Path) -> TokenVerifier:
    return TokenVerifier(Jwt(secret_file=secret_file))


@pytest.fixture
def public(rsa_file: Path) -> TokenVerifier:
    return TokenVerifier(Jwt(public_key_file=rsa_file))


class TestGenuine:
    def test_with_a_shared_secret(self, shared: TokenVerifier) -> None:
        token = signed(claims(roles=["ops", "admin"]))
        assert shared.verify(token) == Identity("alice", frozenset({"ops", "admin"}))

    def test_with_an_rsa_key(self, public: TokenVerifier) -> None:
        assert public.verify(signed(claims(), RSA_KEY, "RS256")) == Identity("alice")

    @pytest.mark.parametrize(
        ("key", "algorithm"),
        [
            (ec.generate_private_key(ec.SECP256R1()), "ES256"),
            (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
        ],
    )
    def test_with_other_keys(self, tmp_path: Path, key: Any, algorithm: str) -> None:
        path = tmp_path / "key.pem"
        path.write_bytes(pem(key))
        verifier = TokenVerifier(Jwt(public_key_file=path))
        assert verifier.verify(signed(claims(), key, algorithm)) == Identity("alice")

    def test_names_in_other_claims(self, secret_file: Path) -> None:
        verifier = TokenVerifier(
            Jwt(
                secret_file=secret_file,
                username_claim="https://example.com/user",
                roles_claim="realm_access.roles",
            )
        )
        token = signed(
            claims(realm_access={"roles": ["ops", 7]}) | {"https://example.com/user": "carol"}
        )
        assert verifier.verify(token) == Identity("carol", frozenset({"ops"}))

    def test_roles_in_one_text(self, shared: TokenVerifier) -> None:
        assert shared.verify(signed(claims(roles="ops dev"))) == Identity(
            "alice", frozenset({"ops", "dev"})
        )

    @pytest.mark.parametrize("roles", [None, 7, {"admin": True}, [["admin"]]])
    def test_roles_that_are_none(self, shared: TokenVerifier, roles: object) -> None:
        assert shared.verify(signed(claims(roles=roles))) == Identity("alice")


def encode(part: object) -> bytes:
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=")


class TestForged:
    @pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", None])
    @pytest.mark.parametrize("signature", [b"", encode(b"x")])
    def test_no_signature_at_all(
        self,
        shared: TokenVerifier,
        public: TokenVerifier,
        algorithm: str | None,
        signature: bytes,
    ) -> None:
        header = encode({"alg": algorithm, "typ": "JWT"})
        token = header + b"." + encode(claims()) + b"." + signature
        assert shared.verify(token) is None
        assert public.verify(token) is None

    def test_the_public_key_taken_for_a_shared_secret(self, public: TokenVerifier) -> None:
        body = encode({"alg": "HS256", "typ": "JWT"}) + b"." + encode(claims())
        for key in (pem(RSA_KEY), pem(RSA_KEY).strip(), b""):
            signature = hmac.digest(key, body, hashlib.sha256)
            assert public.verify(body + b"." + encode(signature)) is None

    def test_a_public_key_file_that_accepts_a_symmetric_algorithm_is_refused(
        self, rsa_file: Path
    ) -> None:
        with pytest.raises(ConfigurationError, match="RS256"):
            TokenVerifier(Jwt(public_key_file=rsa_file, algorithms=(Algorithm.HS256,)))

    def test_a_stronger_algorithm_than_the_pinned_one(self, shared: TokenVerifier) -> None:
        with pytest.warns(jwt.InsecureKeyLengthWarning):
            token = signed(claims(), SECRET, "HS512")
        assert shared.verify(token) is None

    def test_another_secret(self, shared: TokenVerifier) -> None:
        assert shared.verify(signed(claims(), b"x" * 32)) is None

    def test_another_key(self, public: TokenVerifier) -> None:
        other = rsa.generate_private_key(65537, 2048)
        assert public.verify(signed(claims(), other, "RS256")) is None

    def test_a_key_that_the_token_brings_along(self, public: TokenVerifier) -> None:
        other = rsa.generate_private_key(65537, 2048)
        jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(other.public_key()))
        token = jwt.encode(claims(), other, "RS256", headers={"jwk": jwk, "kid": "../../dev/null"})
        assert public.verify(token.encode()) is None

    def test_a_changed_claim(self, shared: TokenVerifier) -> None:
        header, _, signature = signed(claims()).split(b".")
        assert shared.verify(b".".join([header, encode(claims(sub="root")), signature])) is None

    @pytest.mark.parametrize(
        "payload",
        [
            {"sub": "alice", "exp": int(time.time()) - 60},
            {"sub": "alice"},
            {"sub": "alice", "exp": None},
            {"sub": "alice", "exp": "never"},
            {"sub": "alice", "exp": 2**70, "nbf": int(time.time()) + 600},
            {"exp": 2**33},
            {"sub": "", "exp": 2**33},
            {"sub": 7, "exp": 2**33},
            {"sub": ["alice"], "exp": 2**33},
        ],
    )
    def test_a_token_out_of_its_time_or_without_a_name(
        self, shared: TokenVerifier, payload: dict[str, Any]
    ) -> None:
        header = encode({"alg": "HS256", "typ": "JWT"})
        body = header + b"." + encode(payload)
        token = body + b"." + encode(hmac.digest(SECRET, body, hashlib.sha256))
        assert shared.verify(token) is None

    def test_another_issuer_or_audience(self, secret_file: Path) -> None:
        verifier = TokenVerifier(Jwt(secret_file=secret_file, issuer="plant", audience="broker"))
        assert verifier.verify(signed(claims(iss="plant", aud="broker"))) == Identity("alice")
        assert verifier.verify(signed(claims(iss="plant", aud="other"))) is None
        assert verifier.verify(signed(claims(iss="other", aud="broker"))) is None
        assert verifier.verify(signed(claims())) is None

    @given(
        st.binary(max_size=80)
        | st.lists(st.binary(max_size=30), min_size=3, max_size=3).map(
            lambda parts: b".".join(map(encode, parts))
        )
    )
    def test_any_bytes(self, token: bytes) -> None:
        verifier = object.__new__(TokenVerifier)
        verifier._settings = Jwt()
        verifier._key = SECRET
        verifier._algorithms = ["HS256"]
        assert verifier.verify(token) is None


class TestKeys:
    def test_a_short_secret_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "secret"
        path.write_bytes(b"hunter2\n")
        with pytest.raises(ConfigurationError, match="7 bytes, it needs 32"):
            TokenVerifier(Jwt(secret_file=path))

    def test_what_is_no_key_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "key"
        path.write_bytes(b"nothing")
        with pytest.raises(ConfigurationError, match="PEM"):
            TokenVerifier(Jwt(public_key_file=path))
        with pytest.raises(ConfigurationError, match="cannot read"):
            TokenVerifier(Jwt(public_key_file=tmp_path / "absent"))


class TestLogin:
    def test_the_user_name_may_be_empty_or_the_token_s(
        self, secret_file: Path, make_guard: Callable[..., Guard], thread: BrokerThread
    ) -> None:
        guard = make_guard(Auth(jwt=Jwt(secret_file=secret_file)))
        token = signed(claims())
        for name in (None, "", "alice"):
            assert judge(guard, thread, login(name, token)).identity == Identity("alice")
        verdict = judge(guard, thread, login("root", token))
        assert verdict.identity is None
        assert verdict.reason is Reason.BAD_USER_NAME_OR_PASSWORD

    def test_passwords_and_tokens_side_by_side(
        self,
        secret_file: Path,
        users: Path,
        make_guard: Callable[..., Guard],
        thread: BrokerThread,
    ) -> None:
        guard = make_guard(Auth(jwt=Jwt(secret_file=secret_file), password_file=users))
        assert judge(guard, thread, login("bob", b"builder")).identity == Identity("bob")
        assert judge(guard, thread, login("alice", signed(claims()))).identity == Identity("alice")
        assert judge(guard, thread, login("bob", b"eyJ.eyJ.x")).identity is None
