"""Atomic transactions; every database error becomes ``StoreUnavailable`` and says what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import URL
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from mirage.domain.errors import StoreUnavailable
from mirage.store.location import BEGIN, OpenedFile, locate, make_room, postgres_engine, sqlite_engine
from mirage.store.published_state import PublishedState, StateChanged

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from mirage.store.about import WriteCount

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

_RACES = 20
"""Attempts against other processes that write without a lease, such as two administration commands."""
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


T = TypeVar("T")
Condition = Callable[["Connection"], None]


def _none(connection: Connection) -> None:
    del connection


class Database:
    """A database. Any thread may use it; each transaction uses a separate connection.

    All methods raise ``StoreUnavailable``.
    """

    def __init__(
        self,
        engine: Engine,
        where: str,
        condition: Condition = _none,
        file: OpenedFile | None = None,
        tables: Condition = _none,
        count: WriteCount | None = None,
        shared: PublishedState | None = None,
    ) -> None:
        """``condition``: called within each writing transaction; raises to prevent its commit.

        ``file``: the SQLite file, which must not be replaced; ``tables``: raises if a server's tables have been
        replaced; ``count``: counts writing transactions; ``shared``: the directory that the file is a copy of.
        """
        self.where = where
        self._file = file
        self._engine = engine
        self._condition = condition
        self._tables = tables
        self._count = count
        self.shared = shared
        self._writing = engine.execution_options(**{BEGIN: "IMMEDIATE"})
        self._reading = engine
        if engine.dialect.name == "postgresql":
            # As in SQLite, all statements of one reader see the same time.
            self._reading = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    @classmethod
    def at(cls, url: str, patience: float) -> Database:
        """The database at a URL, not looked into yet. Raises ``ConfigError``, ``MissingExtra`` too.

        ``patience``: seconds to wait for other writers.
        """
        location = locate(url)
        if location.directory is not None:
            shared = PublishedState(location.directory)
            engine = sqlite_engine(URL.create("sqlite", database=str(shared.copy)), patience, durable=False)
            return cls(engine, location.shown, shared=shared)
        if location.file is None:
            return cls(postgres_engine(location.url, patience), location.shown)
        make_room(location.file)
        return cls(sqlite_engine(location.url, patience), location.shown, file=OpenedFile(location.file))

    def on_condition(self, condition: Condition, count: WriteCount | None = None) -> Database:
        """The same database, written to on a condition, its transactions counted."""
        return Database(self._engine, self.where, condition, self._file, self._tables, count, self.shared)

    def on_tables(self, tables: Condition) -> Database:
        """The same database, written to as long as its tables are those of ``tables``."""
        return Database(self._engine, self.where, self._condition, self._file, tables, shared=self.shared)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Do ``work`` in one transaction, on disk on return.

        Where the connection breaks ``work`` is done again, even if its first commit may have gone through:
        it must not mind.
        """

        count, shared = self._count, self.shared

        def on_condition(connection: Connection) -> T:
            self._tables(connection)
            self._condition(connection)
            if count is not None:
                count.step(connection)
            done = work(connection)
            if shared is not None:
                shared.publish(connection)
            return done

        if count is None:
            return self._change(on_condition)
        with count.lock:
            done = self._change(on_condition)
            count.committed()
            return done

    def read(self, work: Callable[[Connection], T]) -> T:
        """Do ``work``, which only reads, in one transaction."""
        if self.shared is not None:
            self.shared.follow()
        return self._do(self._reading, work)

    def refresh(self) -> None:
        """Read what other processes have published in a shared directory; every other kind shows it anyway."""
        if self.shared is not None:
            self.shared.refresh()

    def close(self) -> None:
        """Close every connection that is not in use."""
        self._engine.dispose()
        if self.shared is not None:
            self.shared.close()

    def _change(self, work: Callable[[Connection], T]) -> T:
        shared = self.shared
        if shared is None:
            return self._do(self._writing, work)
        for _ in range(_RACES):
            with suppress(StateChanged) if shared.follows else nullcontext(), shared.changing():
                return self._do(self._writing, work)
        with shared.changing():
            return self._do(self._writing, work)

    def _do(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        if self._file is not None:
            self._file.check()
        try:
            try:
                return _once(engine, work)
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                return _once(engine, work)
        except DBAPIError as error:
            raise explained(error, self.where) from error
        except PoolTimeout as error:
            raise StoreUnavailable(
                f"{self.where}: all connections are in use; send fewer requests at the same time"
            ) from error


def _once(engine: Engine, work: Callable[[Connection], T]) -> T:
    with engine.begin() as connection:
        return work(connection)
