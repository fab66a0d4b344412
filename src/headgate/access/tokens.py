"""JSON Web Tokens in the password field of CONNECT."""

from __future__ import annotations

from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from headgate.config import Algorithm, Jwt
from headgate.core.access import Identity
from headgate.errors import ConfigurationError

MINIMUM_SECRET = 32
"""Bytes: a shorter secret than the hash can be searched for (RFC 7518 §3.2)."""
LEEWAY_S = 10
"""By how much the clocks of issuer and broker may differ."""


class TokenVerifier:
    """Knows whose signature counts, and where in a token the names stand."""

    def __init__(self, settings: Jwt) -> None:
        self._settings = settings
        self._key, possible = _key_of(settings)
        # Pinned to what the key can verify: the token's own `alg` only chooses among these, so
        # neither `none` nor a public key taken for a shared secret is ever tried.
        self._algorithms = [name.value for name in settings.accepted if name in possible]
        if not self._algorithms:
            raise ConfigurationError(
                f"{settings.public_key_file}: no accepted algorithm goes with this kind of key; "
                f"set auth.jwt.algorithms to one of {', '.join(possible)}"
            )

    def verify(self, token: bytes) -> Identity | None:
        """Whom the token names, if it is genuine and its time has come and not passed."""
        try:
            claims = jwt.decode(
                token,
                self._key,
                algorithms=self._algorithms,
                issuer=self._settings.issuer,
                audience=self._settings.audience,
                leeway=LEEWAY_S,
                options={
                    "require": ["exp"],
                    "verify_aud": self._settings.audience is not None,
                    "verify_iss": self._settings.issuer is not None,
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None
        user = _claim(claims, self._settings.username_claim)
        if not isinstance(user, str) or not user:
            return None
        return Identity(user=user, roles=_roles(_claim(claims, self._settings.roles_claim)))


def looks_like_token(password: bytes) -> bool:
    """Three parts, the first of which is the Base64 of a JSON object."""
    return password.startswith(b"ey") and password.count(b".") == 2


def _key_of(settings: Jwt) -> tuple[Any, list[Algorithm]]:
    path = settings.secret_file or settings.public_key_file
    if path is None:
        raise ConfigurationError("auth.jwt needs a secret_file or a public_key_file")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    if settings.secret_file is not None:
        secret = data.removesuffix(b"\n").removesuffix(b"\r")
        if len(secret) < MINIMUM_SECRET:
            raise ConfigurationError(
                f"{path}: the secret has {len(secret)} bytes, it needs {MINIMUM_SECRET} at least"
            )
        return secret, [name for name in Algorithm if name.is_symmetric]
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigurationError(f"{path} is not a public key in PEM form") from None
    if isinstance(key, rsa.RSAPublicKey):
        return key, [name for name in Algorithm if name.value[:2] in ("RS", "PS")]
    if isinstance(key, ec.EllipticCurvePublicKey):
        return key, [name for name in Algorithm if name.value[:2] == "ES"]
    if isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
        return key, [Algorithm.EDDSA]
    raise ConfigurationError(f"{path}: tokens are signed with RSA, elliptic curve or EdDSA keys")


def _claim(claims: dict[str, Any], name: str) -> Any:
    """A claim by its name, or by its path such as `realm_access.roles`."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _roles(claim: Any) -> frozenset[str]:
    """A list of names, or one text with names between spaces; anything else is no role."""
    if isinstance(claim, str):
        return frozenset(claim.split())
    if isinstance(claim, list):
        return frozenset(role for role in claim if isinstance(role, str))
    return frozenset()
