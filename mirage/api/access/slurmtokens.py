"""Slurm's own tokens (JWT): who holds one is the user whom it names, to Slurm and so to Mirage.

The algorithm is the key's, never the token's: a token that says ``none``, or asks for a public key to be used as a
shared secret, finds no key at all.
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
    """What a token must say."""

    user: str = "sun"
    """Which claim names the user."""
    audience: str = ""
    issuer: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a good token says."""

    user: str
    expires: float


class SlurmTokens:
    """Reads tokens by the site's secret (HS256), by public keys (RS256), or by either."""

    def __init__(self, secret: Path | None, keys: Path | None, claims: Claims) -> None:
        """Raises ``ConfigError`` for files that are no such keys."""
        self._secret = WatchedFile(secret, "api.jwt.key", _secret) if secret else None
        self._keys = WatchedFile(keys, "api.jwt.jwks", _public_keys) if keys else None
        self._claims = claims

    @property
    def files(self) -> tuple[WatchedFile[Any], ...]:
        """Of the keys."""
        return tuple(file for file in (self._secret, self._keys) if file)

    def read(self, text: str) -> Identity | None:
        """What the token says; ``None`` where it proves nothing."""
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
            # Slurm looks neither at when a token was made nor, unless told to, at whom it was made for.
            options={"require": ["exp"], "verify_iat": False, "verify_aud": bool(claims.audience)},
        )


def _chosen(keys: Mapping[str, RSAPublicKey], kid: object) -> RSAPublicKey | None:
    if kid is None and len(keys) == 1:
        return next(iter(keys.values()))
    return keys.get(kid) if isinstance(kid, str) else None


def _secret(content: bytes) -> bytes:
    if len(content) < _SHORTEST_SECRET:
        raise ValueError(f"a key of {len(content)} bytes can be guessed; Slurm's has {_SHORTEST_SECRET} or more")
    return content


def _public_keys(content: bytes) -> dict[str, RSAPublicKey]:
    try:
        listed = parse_json(content)["keys"]
        if any("d" in key for key in listed):
            raise ValueError("it holds a private key, which is nobody's business here")
        usable = [jwt.PyJWK(key) for key in listed if key.get("kty") == "RSA" and key.get("use", "sig") == "sig"]
    except (ValueError, KeyError, TypeError, AttributeError, jwt.PyJWTError) as error:
        raise ValueError(f"not a set of public keys (JWKS): {error}") from None
    if not usable:
        raise ValueError("no RSA key that signs is in there")
    return {key.key_id or str(place): key.key for place, key in enumerate(usable)}
