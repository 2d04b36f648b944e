"""Browsers: a session is a signed cookie; a ticket is a link that opens one, once."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import jwt

from mirage.api.access.scope import Scope
from mirage.domain.errors import ConfigError
from mirage.wholefile import read_regular

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG = logging.getLogger(__name__)
_FULL = (errno.ENOSPC, errno.EDQUOT)
COOKIE = "mirage_session"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""Where https is on: browsers take such a name from no other host of the site and from no page without TLS."""
_AUDIENCE = "mirage-session"
_KEY_BYTES = 32
TICKET_LASTS = 600
_MOST_OF_ONE = 5
"""Links of one user that wait to be used; another one ends the oldest of that user."""
_MOST_CLOSED = 64
"""Sessions of one user that are remembered as closed; the next one to be closed closes all that the user has."""
_ALGORITHM = "HS256"


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that has logged in."""

    name: str
    scope: Scope
    """At most; the policy of the moment counts at each request."""
    token_id: str = ""
    """The token that opened it: with that it ends."""
    session_id: str = ""
    """Given as it is signed."""
    by_link: bool = False
    """A login link opened it, no token."""


class Sessions:
    """Signs and reads cookies. Any thread may use it."""

    def __init__(self, key: bytes, lifetime: int, now: Callable[[], float] = time.time) -> None:
        self._key, self.lifetime, self._now = key, lifetime, now
        self._closed: dict[str, tuple[str, float]] = {}
        """By session: whose it was, and until when its cookie would have counted."""
        self._all_closed: dict[str, float] = {}
        """By user: sessions opened until then are closed."""
        self._lock = threading.Lock()

    def open(self, session: Session, until: float = 0) -> str:
        """A cookie's value; it counts for ``lifetime`` seconds, and not beyond ``until`` (0: no matter)."""
        now = self._now()
        end = now + self.lifetime
        claims = {
            "sub": session.name,
            "scope": str(session.scope),
            "token": session.token_id,
            "link": session.by_link,
            "jti": secrets.token_urlsafe(12),
            "aud": _AUDIENCE,
            "iat": now,
            "exp": int(min(end, until) if until else end),
        }
        return jwt.encode(claims, self._key, _ALGORITHM)

    def read(self, cookie: str) -> Session | None:
        """The session that a cookie stands for; ``None`` where it is forged, over or closed."""
        try:
            found = jwt.decode(
                cookie,
                self._key,
                algorithms=[_ALGORITHM],
                audience=_AUDIENCE,
                options={"require": ["exp", "sub", "jti"], "verify_exp": False, "verify_iat": False},
            )
            by_link = found.get("link") is True
            session = Session(found["sub"], Scope(found["scope"]), found["token"], found["jti"], by_link)
            opened = float(found.get("iat", 0))
        except (jwt.PyJWTError, ValueError, KeyError, TypeError, RecursionError):
            return None
        closed = session.session_id in self._closed or opened <= self._all_closed.get(session.name, -1)
        return None if closed or self._now() >= found["exp"] else session

    def close(self, session: Session) -> None:
        """Its cookie counts no more, wherever a copy of it is."""
        now = self._now()
        with self._lock:
            self._closed = {key: held for key, held in self._closed.items() if held[1] >= now}
            since = now - self.lifetime
            self._all_closed = {name: at for name, at in self._all_closed.items() if at >= since}
            own = [key for key, (name, _) in self._closed.items() if name == session.name]
            if len(own) >= _MOST_CLOSED:
                self._all_closed[session.name] = now
                for key in own:
                    del self._closed[key]
            self._closed[session.session_id] = session.name, now + self.lifetime

    def close_all(self, name: str) -> None:
        """No cookie that a user has been given counts any more."""
        with self._lock:
            self._all_closed[name] = self._now()


class Tickets:
    """Links that open a session: each once, within ten minutes. Any thread may use it."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._open: dict[bytes, tuple[Session, float]] = {}
        self._lock = threading.Lock()

    def issue(self, session: Session) -> str:
        """The secret part of a link."""
        text, now = secrets.token_urlsafe(32), self._now()
        with self._lock:
            self._open = {key: held for key, held in self._open.items() if held[1] > now}
            own = [key for key, held in self._open.items() if held[0].name == session.name]
            for key in own[: max(0, len(own) - _MOST_OF_ONE + 1)]:
                del self._open[key]
            self._open[_digest(text)] = (session, now + TICKET_LASTS)
        return text

    def redeem(self, text: str) -> Session | None:
        """Whose it is; ``None`` where it is none, used or too old. From now on it is used."""
        with self._lock:
            session, until = self._open.pop(_digest(text), (None, 0.0))
        return session if self._now() < until else None


def session_key(file: Path) -> bytes:
    """The key that signs cookies, made where it is missing; whoever can read it can be anybody.

    On a full disk it is kept in memory: sessions end with this process. Raises ``ConfigError`` where it cannot be
    made otherwise, or others can read it.
    """
    try:
        if not file.exists():
            try:
                _write_new(file)
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                _LOG.warning("%s: %s; browsers must log in again after a restart", file, error.strerror)
                return random_key()
        if file.stat().st_mode & 0o077:
            raise ConfigError(str(file), "others can read it, and so be anybody; delete it, a new one is made")
        key = read_regular(file)
    except OSError as error:
        raise ConfigError(
            str(file), f"the key of browsers' sessions is not available: {error.strerror}"
        ) from error
    if len(key) < _KEY_BYTES:
        raise ConfigError(str(file), "it is cut short; delete it, a new one is made")
    return key


def check_session_key(file: Path) -> None:
    """Raise ``ConfigError`` where ``session_key`` would; nothing is made."""
    if file.exists():
        session_key(file)


def random_key() -> bytes:
    """A key that lasts as long as the process."""
    return secrets.token_bytes(_KEY_BYTES)


def _write_new(file: Path) -> None:
    """Raises ``OSError``; nothing is left behind then."""
    part = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as out:
            out.write(random_key())
            out.flush()
            os.fsync(out.fileno())
        part.rename(file)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
