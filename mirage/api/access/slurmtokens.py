"""Slurm's tokens (JWT): the holder acts as the user that the token names.

The key determines the algorithm, never the token: a token with ``none``, or one that would use a public key as a
shared secret, matches no key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jwt

from mirage.api.access.watchedfile import WatchedFile
from mirage.documenttext import parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

_SHORTEST_SECRET = 32
_LONGEST_TOKEN = 8_192
_LEEWAY = 10
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,127}")


@dataclass(frozen=True, slots=True)
class Claims:
    """Required claims of a token."""

    user: str = "sun"
    """Claim that names the user."""
    audience: str = ""
    issuer: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """Content of a valid token."""

    user: str
    expires: float


class SlurmTokens:
    """Verifies tokens with the site's secret (HS256), with public keys (RS256), or with either."""

    def __init__(self, secret: Path | None, keys: Path | None, claims: Claims) -> None:
        """Raises ``ConfigError`` for files without valid keys."""
        self._secret = WatchedFile(secret, "api.jwt.key", _secret) if secret else None
        self._keys = WatchedFile(keys, "api.jwt.jwks", _public_keys) if keys else None
        self._claims = claims

    @property
    def files(self) -> tuple[WatchedFile[Any], ...]:
        """The key files, for status reports."""
        return tuple(file for file in (self._secret, self._keys) if file)

    def read(self, text: str) -> Identity | None:
        """Return user and expiry of a token; ``None`` if it is invalid."""
        if len(text) > _LONGEST_TOKEN:
            return None
        try:
            header = jwt.get_unverified_header(text)
            found = self._verified(text, header)
            expires = float(found["exp"])
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            return None
        name = found.get(self._claims.user)
        return Identity(name, expires) if isinstance(name, str) and _NAME.fullmatch(name) else None

    def _verified(self, text: str, header: Mapping[str, Any]) -> dict[str, Any]:
        algorithm = header.get("alg")
        key: bytes | RSAPublicKey | None = None
        if algorithm == "HS256" and self._secret:
            key = self._secret.value
        elif algorithm == "RS256" and self._keys:
            key = _chosen(self._keys.value, header.get("kid"))
        if key is None:
            raise jwt.InvalidAlgorithmError
        claims = self._claims
        return jwt.decode(
            text,
            key,
            algorithms=[str(algorithm)],
            audience=claims.audience or None,
            issuer=claims.issuer or None,
            leeway=_LEEWAY,
            # Slurm checks neither the time of issue nor, unless configured, the audience.
            options={"require": ["exp"], "verify_iat": False, "verify_aud": bool(claims.audience)},
        )


def _chosen(keys: Mapping[str, RSAPublicKey], kid: object) -> RSAPublicKey | None:
    if kid is None and len(keys) == 1:
        return next(iter(keys.values()))
    return keys.get(kid) if isinstance(kid, str) else None


def _secret(content: bytes) -> bytes:
    if len(content) < _SHORTEST_SECRET:
        raise ValueError(
            f"a key of {len(content)} bytes can be guessed; use Slurm's key of {_SHORTEST_SECRET} bytes or more"
        )
    return content


def _public_keys(content: bytes) -> dict[str, RSAPublicKey]:
    try:
        listed = parse_json(content)["keys"]
        if any("d" in key for key in listed):
            raise ValueError("it contains a private key; list only public keys")
        usable = [jwt.PyJWK(key) for key in listed if key.get("kty") == "RSA" and key.get("use", "sig") == "sig"]
    except (ValueError, KeyError, TypeError, AttributeError, jwt.PyJWTError) as error:
        raise ValueError(f"not a set of public keys (JWKS): {error}") from None
    if not usable:
        raise ValueError("it contains no RSA signing key")
    return {key.key_id or str(place): key.key for place, key in enumerate(usable)}
