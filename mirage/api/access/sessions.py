"""Browser sessions: a session is a signed cookie; a ticket is a single-use login link that opens one."""

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

from mirage.api.access.caller import Scope
from mirage.atomic_file import read_regular
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG = logging.getLogger(__name__)
_FULL = (errno.ENOSPC, errno.EDQUOT)
COOKIE = "mirage_session"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""Name with TLS: browsers accept it from no other host of the site and from no page without TLS."""
_AUDIENCE = "mirage-session"
_KEY_BYTES = 32
TICKET_LASTS = 600
_MOST_OF_ONE = 5
"""Unused login links of one user; a further one ends the oldest."""
_MOST_CLOSED = 64
"""Closed sessions stored per user; closing a further one closes all sessions of the user."""
_ALGORITHM = "HS256"


@dataclass(frozen=True, slots=True)
class Session:
    """A logged-in browser."""

    name: str
    scope: Scope
    """Upper bound; the current policy applies at each request."""
    token_id: str = ""
    """The token that opened it; the session ends with the token."""
    session_id: str = ""
    """Assigned when the cookie is signed."""
    by_link: bool = False
    """Whether a login link opened it instead of a token."""


class SessionCookies:
    """Signs and reads cookies. Any thread may use it."""

    def __init__(self, key: bytes, lifetime: int, now: Callable[[], float] = time.time) -> None:
        self._key, self.lifetime, self._now = key, lifetime, now
        self._closed: dict[str, tuple[str, float]] = {}
        """By session: its user, and the expiry of its cookie."""
        self._all_closed: dict[str, float] = {}
        """By user: sessions opened before that time are closed."""
        self._lock = threading.Lock()

    def open(self, session: Session, until: float = 0) -> str:
        """Return the cookie, valid for ``lifetime`` seconds but not beyond ``until`` (0: no bound)."""
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
        """Return the session of a cookie; ``None`` if it is forged, expired or closed."""
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
        """Invalidate the cookie of a session and every copy of it."""
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
        """Invalidate all cookies of a user."""
        with self._lock:
            self._all_closed[name] = self._now()


class Tickets:
    """Login links, valid once and for 10 minutes. Any thread may use it."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._open: dict[bytes, tuple[Session, float]] = {}
        self._lock = threading.Lock()

    def issue(self, session: Session) -> str:
        """Return the secret part of a new link."""
        text, now = secrets.token_urlsafe(32), self._now()
        with self._lock:
            self._open = {key: held for key, held in self._open.items() if held[1] > now}
            own = [key for key, held in self._open.items() if held[0].name == session.name]
            for key in own[: max(0, len(own) - _MOST_OF_ONE + 1)]:
                del self._open[key]
            self._open[_digest(text)] = (session, now + TICKET_LASTS)
        return text

    def redeem(self, text: str) -> Session | None:
        """Use up a link and return its session; ``None`` if it is unknown, used or expired."""
        with self._lock:
            session, until = self._open.pop(_digest(text), (None, 0.0))
        return session if self._now() < until else None


def session_key(file: Path) -> bytes:
    """Return the key that signs cookies; create the file if missing. A reader of it can act as any user.

    On a full disk the key is kept in memory: sessions end with this process. Raises ``ConfigError`` if the key
    cannot be created for another reason, or if other users can read it.
    """
    try:
        if not file.exists():
            try:
                _write_new(file)
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                text = "event=session_key_not_stored file=%s reason=%r text=%r"
                _LOG.warning(text, str(file), error.strerror, "browsers must log in again after a restart")
                return random_key()
        if file.stat().st_mode & 0o077:
            raise ConfigError(
                str(file), "others can read it and so act as any user; delete it, and the daemon creates a new one"
            )
        key = read_regular(file)
    except OSError as error:
        raise ConfigError(
            str(file), f"the key of browser sessions cannot be read or created: {error.strerror}"
        ) from error
    if len(key) < _KEY_BYTES:
        raise ConfigError(str(file), "it is cut short; delete it, and the daemon creates a new one")
    return key


def check_session_key(file: Path) -> None:
    """Raise ``ConfigError`` where ``session_key`` would; creates nothing."""
    if file.exists():
        session_key(file)


def random_key() -> bytes:
    """Return a key for the lifetime of the process."""
    return secrets.token_bytes(_KEY_BYTES)


def _write_new(file: Path) -> None:
    """Raises ``OSError``, and then leaves no file."""
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
