"""Tokens over the network: API tokens of this daemon, and Slurm's tokens (JWT).

The holder of an API token acts as its owner, within the scope of the token. It has 288 random bits besides its ID.
The database has its plain SHA-256. Slow or salted hashes protect passwords that can be guessed; 288 random bits
cannot be, and a fast hash allows a check at each request.

The holder of a Slurm token acts as the user that the token names. The key determines the algorithm, never the
token: a token with ``none``, or one that would use a public key as a shared secret, matches no key.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import jwt

from mirage.api.access.caller import Scope
from mirage.api.access.watchedfile import ReloadedFile
from mirage.documentreading import parse_json
from mirage.domain.errors import MirageError, StoreUnavailable
from mirage.store.access import StoredToken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
class SlurmIdentity:
    """Content of a valid token."""

    user: str
    expires: float


class SlurmTokens:
    """Verifies tokens with the site's secret (HS256), with public keys (RS256), or with either."""

    def __init__(self, secret: Path | None, keys: Path | None, claims: Claims) -> None:
        """Raises ``ConfigError`` for files without valid keys."""
        self._secret = ReloadedFile(secret, "api.jwt.key", _secret) if secret else None
        self._keys = ReloadedFile(keys, "api.jwt.jwks", _public_keys) if keys else None
        self._claims = claims

    @property
    def files(self) -> tuple[ReloadedFile[Any], ...]:
        """The key files, for status reports."""
        return tuple(file for file in (self._secret, self._keys) if file)

    def read(self, text: str) -> SlurmIdentity | None:
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
        return SlurmIdentity(name, expires) if isinstance(name, str) and _NAME.fullmatch(name) else None

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


_LOG = logging.getLogger(__name__)

PREFIX = "mirage_"
_ID = 8
"""Characters of the token ID, which is not secret."""
_RANDOM = 42
"""Random bytes, including those of the ID (6)."""
_NO_DIGEST = bytes(32)
_NOTE_USE_EVERY = 300
MOST_OF_ONE = 100
"""Tokens per user."""


class TooManyTokens(MirageError):
    """The user has the maximum number of tokens."""


class TokenStorage(Protocol):
    """Storage of token digests; all methods raise ``StoreUnavailable``."""

    def load(self) -> tuple[StoredToken, ...]:
        """Return all stored tokens, expired ones included."""

    def add(self, token: StoredToken) -> None:
        """Store a new token."""

    def remove(self, token_id: str) -> None:
        """Delete a token by ID."""

    def touch(self, used: Mapping[str, int]) -> None:
        """Store the times of last use, by token ID."""


class TokenBook:
    """All tokens, in memory; any thread may use it.

    Only the leader writes tokens, so its memory equals the database. A standby periodically reads them again.
    """

    def __init__(self, storage: TokenStorage, now: Callable[[], float] = time.time) -> None:
        self._storage, self._now = storage, now
        self._tokens: dict[str, StoredToken] | None = None
        self._used: dict[str, int] = {}
        self._lock = threading.RLock()

    def find(self, text: str) -> StoredToken | None:
        """Return the token with this text; ``None`` if it is unknown, expired or revoked."""
        token_id, digest = text.removeprefix(PREFIX)[:_ID], _digest(text)
        token = self._all().get(token_id)
        matches = hmac.compare_digest(digest, token.digest if token else _NO_DIGEST)
        if token is None or not matches or not self.lasts(token_id):
            return None
        self._note(token)
        return token

    def lasts(self, token_id: str) -> bool:
        """Return whether the token is neither revoked nor expired."""
        token = self._all().get(token_id)
        return token is not None and (not token.expires or self._now() < token.expires)

    def create(self, owner: str, label: str, scope: Scope, lifetime: int) -> tuple[str, StoredToken]:
        """Return the text of a new token, which is not stored, and its record. ``lifetime`` in seconds; 0: no
        expiry.

        Raises ``TooManyTokens`` and ``StoreUnavailable``.
        """
        with self._lock:
            if len(self.of(owner)) >= MOST_OF_ONE:
                raise TooManyTokens(f"{owner} has {MOST_OF_ONE} tokens, the maximum; revoke some first")
            text, now = PREFIX + secrets.token_urlsafe(_RANDOM), int(self._now())
            token_id = text.removeprefix(PREFIX)[:_ID]
            expires = now + lifetime if lifetime else 0
            token = StoredToken(token_id, owner, label, str(scope), _digest(text), now, expires)
            self._storage.add(token)
            self._all()[token_id] = token
        return text, token

    def of(self, owner: str | None = None) -> tuple[StoredToken, ...]:
        """Return the tokens of one user, or of all, oldest first, expired ones included."""
        with self._lock:
            kept = [token for token in self._all().values() if owner in (None, token.owner)]
        return tuple(replace(token, used=self._used.get(token.token_id, token.used)) for token in kept)

    def revoke(self, token_id: str) -> None:
        """Revoke a token. Raises ``StoreUnavailable``; the token is then still valid."""
        with self._lock:
            self._storage.remove(token_id)
            self._all().pop(token_id, None)

    def revoke_all(self, owner: str) -> None:
        """Revoke all tokens of a user. Raises ``StoreUnavailable``; some are then still valid."""
        for token in self.of(owner):
            self.revoke(token.token_id)

    def forget(self) -> None:
        """Read again at the next check: another daemon may have created or revoked tokens."""
        with self._lock:
            self._tokens = None

    def _all(self) -> dict[str, StoredToken]:
        known = self._tokens
        if known is None:
            with self._lock:
                known = self._tokens = {token.token_id: token for token in self._storage.load()}
        return known

    def _note(self, token: StoredToken) -> None:
        """Note the use; stored every 300 s, not at each request."""
        now = int(self._now())
        if now - self._used.get(token.token_id, token.used) < _NOTE_USE_EVERY:
            return
        self._used[token.token_id] = now
        try:
            self._storage.touch({token.token_id: now})
        except StoreUnavailable as error:
            _LOG.warning("event=token_use_not_stored token=%s reason=%r", token.token_id, str(error))


class NoStorage:
    """Stores nothing: tokens last as long as the process."""

    def load(self) -> tuple[StoredToken, ...]:
        """Return an empty tuple."""
        return ()

    def add(self, token: StoredToken) -> None:
        """Do nothing."""

    def remove(self, token_id: str) -> None:
        """Do nothing."""

    def touch(self, used: Mapping[str, int]) -> None:
        """Do nothing."""


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
