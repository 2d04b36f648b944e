"""Atomic transactions, with every database error as ``StoreUnavailable``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from mirage.domain.errors import StoreUnavailable
from mirage.store.engines import BEGIN, postgres_engine, sqlite_engine
from mirage.store.faults import explained
from mirage.store.location import OpenedFile, locate, make_room

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from mirage.store.written import WriteCount

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
    ) -> None:
        """``condition``: called within each writing transaction; raises to prevent its commit.

        ``file``: the SQLite file, which must not be replaced; ``tables``: raises if a server's tables have been
        replaced; ``count``: counts writing transactions.
        """
        self.where = where
        self._file = file
        self._engine = engine
        self._condition = condition
        self._tables = tables
        self._count = count
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
        if location.file is None:
            return cls(postgres_engine(location.url, patience), location.shown)
        make_room(location.file)
        return cls(sqlite_engine(location.url, patience), location.shown, file=OpenedFile(location.file))

    def on_condition(self, condition: Condition, count: WriteCount | None = None) -> Database:
        """The same database, written to on a condition, its transactions counted."""
        return Database(self._engine, self.where, condition, self._file, self._tables, count)

    def on_tables(self, tables: Condition) -> Database:
        """The same database, written to as long as its tables are those of ``tables``."""
        return Database(self._engine, self.where, self._condition, self._file, tables)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Do ``work`` in one transaction, on disk on return.

        Where the connection breaks ``work`` is done again, even if its first commit may have gone through:
        it must not mind.
        """

        count = self._count

        def on_condition(connection: Connection) -> T:
            self._tables(connection)
            self._condition(connection)
            if count is not None:
                count.step(connection)
            return work(connection)

        if count is None:
            return self._do(self._writing, on_condition)
        with count.lock:
            done = self._do(self._writing, on_condition)
            count.committed()
            return done

    def read(self, work: Callable[[Connection], T]) -> T:
        """Do ``work``, which only reads, in one transaction."""
        return self._do(self._reading, work)

    def close(self) -> None:
        """Close every connection that is not in use."""
        self._engine.dispose()

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
