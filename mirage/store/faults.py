"""From what a database driver says to what the reader can do about it."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError

from mirage.domain.errors import StoreUnavailable

if TYPE_CHECKING:
    from sqlalchemy.exc import DBAPIError

_SQLITE = {
    sqlite3.SQLITE_BUSY: (
        "another process keeps the database locked",
        "end the other writer (a backup, a second daemon; 'fuser' names it)",
    ),
    sqlite3.SQLITE_READONLY: (
        "the database cannot be written",
        "give the file and its directory to the daemon's user, on a file system that is mounted read-write",
    ),
    sqlite3.SQLITE_IOERR: ("reading or writing the disk failed", "look at the kernel's log for disk errors"),
    sqlite3.SQLITE_CORRUPT: (
        "the database file is damaged",
        "restore a backup; 'sqlite3 FILE .recover' saves what is left",
    ),
    sqlite3.SQLITE_NOTADB: ("this is not a database file", "restore a backup, or name another file"),
    sqlite3.SQLITE_FULL: ("the disk is full", "free some space"),
    sqlite3.SQLITE_CANTOPEN: (
        "the database file cannot be opened",
        "check that its directory exists, belongs to the daemon's user and can be written",
    ),
}
_SQLITE[sqlite3.SQLITE_LOCKED] = _SQLITE[sqlite3.SQLITE_BUSY]

_POSTGRES = {
    "53100": ("the server's disk is full", "free some space there"),
    "53300": ("the server takes no more connections", "raise its max_connections or end other clients"),
    "55P03": ("another session keeps a table locked", "end that session; pg_locks names it"),
    "25006": ("the server is read-only", "name the primary server, not a standby"),
    "42501": ("the user lacks the privilege for this", "grant the user a separate database or schema"),
    "28P01": ("the server rejects the password", "correct the password in the address or in ~/.pgpass"),
    "28000": ("the server rejects this user", "allow the user in pg_hba.conf"),
    "3D000": ("there is no such database", "create it: createdb -E UTF8 -T template0 -O USER NAME"),
    "22P05": (
        "the database cannot keep every text",
        "create one that can: createdb -E UTF8 -T template0 -O USER NAME",
    ),
}
_NO_ANSWER = ("the server does not answer or closed the connection", "check that it runs and can be reached")
_UNKNOWN = ("the database reports an error", "see its message")

_OUR_BUGS = (IntegrityError, ProgrammingError, DataError)


def explained(error: DBAPIError, where: str) -> StoreUnavailable:
    """Return the error for a driver error; raises the driver error again if it is a bug in Mirage."""
    cause = error.orig
    code = getattr(cause, "sqlstate", None)
    if error.statement is None and isinstance(error, ProgrammingError):  # no statement: it did not even connect
        problem, remedy = "the address cannot be used", "correct the options behind its '?'"
        return StoreUnavailable(f"{where}: {problem} ({_first_line(cause)}); {remedy}")
    if isinstance(error, _OUR_BUGS) and code not in _POSTGRES:
        raise error
    if isinstance(cause, sqlite3.Error):
        primary = getattr(cause, "sqlite_errorcode", -1) & 0xFF
        problem, remedy = _SQLITE.get(primary, _UNKNOWN)
    elif code is None or code[:2] in ("08", "57"):
        problem, remedy = _named_in(str(cause)) or _NO_ANSWER
    else:
        problem, remedy = _POSTGRES.get(code, _UNKNOWN)
    return StoreUnavailable(f"{where}: {problem} ({_first_line(cause)}); {remedy}")


def _named_in(message: str) -> tuple[str, str] | None:
    """A rejection to connect has no code; the server's words are all there is."""
    words = {
        "does not exist": "3D000",
        "password authentication failed": "28P01",
        "no pg_hba.conf entry": "28000",
        "too many clients": "53300",
        "server_encoding is": "22P05",
    }
    return next((_POSTGRES[code] for text, code in words.items() if text in message), None)


def _first_line(cause: BaseException | None) -> str:
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__
