"""Engines that keep what was committed: SQLite and PostgreSQL, set up for a daemon."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import OperationalError

from mirage.client.listener import check_port
from mirage.domain.errors import MissingExtra

if TYPE_CHECKING:
    import sqlite3

    from sqlalchemy import URL, Connection
    from sqlalchemy.pool import ConnectionPoolEntry

BEGIN = "mirage_begin"
"""Execution option: how SQLite begins the transaction, such as ``IMMEDIATE``."""

_CONNECT_SECONDS = 5
_PORT = "5432"
_WAL_BYTES = 64 << 20


def sqlite_engine(url: URL, patience: float) -> Engine:
    """An engine on a SQLite file. ``patience``: seconds to wait for another writer."""
    # The driver sets this busy timeout as it opens the file, before any statement: changing the journal mode may
    # already have to wait.
    engine = create_engine(url, connect_args={"timeout": patience}, pool_timeout=patience)

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, entry: ConnectionPoolEntry) -> None:
        del entry
        # Otherwise the driver begins and commits implicitly; now only the listener below begins.
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode = WAL")
        # NORMAL would lose the last commits in a power cut: an intent must be on disk before it is acted upon.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads first and writes later fails immediately if another one writes meanwhile,
        # whatever the timeout. So writers take their lock at the start.
        connection.exec_driver_sql(f"BEGIN {connection.get_execution_options().get(BEGIN, 'DEFERRED')}")

    return engine


def postgres_engine(url: URL, patience: float) -> Engine:
    """An engine on a PostgreSQL server. Raises ``MissingExtra`` without its driver."""
    settings: dict[str, Any] = {
        "connect_timeout": _CONNECT_SECONDS,
        "tcp_user_timeout": 2_000 * _CONNECT_SECONDS,
        "keepalives_idle": _CONNECT_SECONDS,
        "keepalives_interval": _CONNECT_SECONDS,
        "keepalives_count": 2,
    }
    own = {key: value for key, value in settings.items() if key not in url.query}
    own["client_encoding"] = "utf8"
    # PgBouncer may give each transaction another server session (pool_mode=transaction): what is prepared in one
    # is not there in the next.
    own["prepare_threshold"] = None
    try:
        engine = create_engine(url, connect_args=own, pool_pre_ping=True, pool_timeout=patience)
    except ModuleNotFoundError:
        raise MissingExtra("a store in PostgreSQL", "postgres") from None

    @event.listens_for(engine, "do_connect")
    def check(dialect: object, record: object, words: object, given: dict[str, Any]) -> None:
        del dialect, record, words
        hosts, ports = str(given.get("host") or "").split(","), str(given.get("port") or _PORT).split(",")
        for k, host in enumerate(hosts):
            check_server(host, ports[min(k, len(ports) - 1)])

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, entry: ConnectionPoolEntry) -> None:
        del entry
        _check_encoding(str(connection.info.parameter_status("server_encoding")))

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {int(patience * 1_000)}")

    return engine


def _check_encoding(encoding: str) -> None:
    """Raise ``OperationalError`` where the database cannot keep every text: one user's would end the cycle."""
    if encoding != "UTF8":
        problem = ValueError(f"server_encoding is {encoding}")
        raise OperationalError("connect", None, problem)


def check_server(host: str, port: str) -> None:
    """Raise ``OperationalError`` where another user of this machine may have taken the server's port.

    That user would receive the password and could act as the database. A server on another machine proves itself
    by its certificate (``sslmode=verify-full``).
    """
    if not host or host.startswith("/"):  # a Unix socket
        return
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:  # the driver says so
        return
    for address in {str(each[4][0]) for each in found}:
        try:
            check_port(address, int(port or _PORT), connected=False)
        except OSError as error:
            raise OperationalError("connect", None, error) from error
