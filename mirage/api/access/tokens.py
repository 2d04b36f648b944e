"""Tokens of this daemon: who holds one is its owner, as far as its scope goes.

A token has 288 random bits next to its id. What is kept is its plain SHA-256: a slow or salted hash protects what
people think up and others can guess, and nobody can guess so many random bits; the fast one lets every request be
checked.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from mirage.api.access.scope import Scope
from mirage.domain.errors import MirageError, StoreUnavailable
from mirage.store.tokens import StoredToken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LOG = logging.getLogger(__name__)

PREFIX = "mirage_"
_ID = 8
"""Characters that are no secret: by them a token is spoken of."""
_RANDOM = 42
"""Bytes, those of the id (6) included."""
_NO_DIGEST = bytes(32)
_NOTE_USE_EVERY = 300
MOST_OF_ONE = 100
"""Tokens that one user may have."""


class TooManyTokens(MirageError):
    """The user has as many as one may have."""


class TokenStorage(Protocol):
    """Where digests are kept; all methods raise ``StoreUnavailable``."""

    def load(self) -> tuple[StoredToken, ...]:
        """All of them."""

    def add(self, token: StoredToken) -> None:
        """Keep a new one."""

    def remove(self, token_id: str) -> None:
        """Forget one."""

    def touch(self, used: Mapping[str, int]) -> None:
        """When each was last used."""


class TokenBook:
    """All tokens, in memory; any thread may use it.

    The daemon that leads is the only one that writes them, so that what is in its memory is what is kept; one that
    stands by forgets periodically what it has read.
    """

    def __init__(self, storage: TokenStorage, now: Callable[[], float] = time.time) -> None:
        self._storage, self._now = storage, now
        self._tokens: dict[str, StoredToken] | None = None
        self._used: dict[str, int] = {}
        self._lock = threading.RLock()

    def find(self, text: str) -> StoredToken | None:
        """The token whose text this is; ``None`` where it is none, or no longer one."""
        token_id, digest = text.removeprefix(PREFIX)[:_ID], _digest(text)
        token = self._all().get(token_id)
        matches = hmac.compare_digest(digest, token.digest if token else _NO_DIGEST)
        if token is None or not matches or not self.lasts(token_id):
            return None
        self._note(token)
        return token

    def lasts(self, token_id: str) -> bool:
        """Whether it has been neither revoked nor outlived."""
        token = self._all().get(token_id)
        return token is not None and (not token.expires or self._now() < token.expires)

    def create(self, owner: str, label: str, scope: Scope, lifetime: int) -> tuple[str, StoredToken]:
        """A new token's text, which is told this once, and what is kept of it. 0 seconds: indefinitely.

        Raises ``TooManyTokens`` and ``StoreUnavailable``.
        """
        with self._lock:
            if len(self.of(owner)) >= MOST_OF_ONE:
                raise TooManyTokens(f"{owner} has {MOST_OF_ONE} tokens, and no more are given: revoke some")
            text, now = PREFIX + secrets.token_urlsafe(_RANDOM), int(self._now())
            token_id = text.removeprefix(PREFIX)[:_ID]
            expires = now + lifetime if lifetime else 0
            token = StoredToken(token_id, owner, label, str(scope), _digest(text), now, expires)
            self._storage.add(token)
            self._all()[token_id] = token
        return text, token

    def of(self, owner: str | None = None) -> tuple[StoredToken, ...]:
        """Tokens of one user, or of all, oldest first; those that are outlived included."""
        with self._lock:
            kept = [token for token in self._all().values() if owner in (None, token.owner)]
        return tuple(replace(token, used=self._used.get(token.token_id, token.used)) for token in kept)

    def revoke(self, token_id: str) -> None:
        """It is none any more, from now on. Raises ``StoreUnavailable``; it is one still, then."""
        with self._lock:
            self._storage.remove(token_id)
            self._all().pop(token_id, None)

    def revoke_all(self, owner: str) -> None:
        """None of this user's is one any more. Raises ``StoreUnavailable``; some are still, then."""
        for token in self.of(owner):
            self.revoke(token.token_id)

    def forget(self) -> None:
        """Read again at the next question: another daemon may have given or revoked some."""
        with self._lock:
            self._tokens = None

    def _all(self) -> dict[str, StoredToken]:
        known = self._tokens
        if known is None:
            with self._lock:
                known = self._tokens = {token.token_id: token for token in self._storage.load()}
        return known

    def _note(self, token: StoredToken) -> None:
        """That it was used; written down periodically, not at each request."""
        now = int(self._now())
        if now - self._used.get(token.token_id, token.used) < _NOTE_USE_EVERY:
            return
        self._used[token.token_id] = now
        try:
            self._storage.touch({token.token_id: now})
        except StoreUnavailable as error:
            _LOG.warning("when a token was last used is not on disk: %s", error)


class NoStorage:
    """Keeps nothing: tokens last as long as the process."""

    def load(self) -> tuple[StoredToken, ...]:
        """None."""
        return ()

    def add(self, token: StoredToken) -> None:
        """Only the book knows it."""

    def remove(self, token_id: str) -> None:
        """Only the book knew it."""

    def touch(self, used: Mapping[str, int]) -> None:
        """Only the book knows it."""


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
