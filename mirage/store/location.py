"""Where a database lies, and its engine: the URL checked, a SQLite file's directory prepared.

The engines keep what was committed.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, OperationalError

from mirage.client.listener import check_port
from mirage.domain.bounds import path_problem
from mirage.domain.errors import ConfigError, MissingExtra, StoreUnavailable
from mirage.domain.texts import without_secrets
from mirage.ownplaces import network_file_system
from mirage.store.numbered_files import check_directory, unavailable

if TYPE_CHECKING:
    import sqlite3

    from sqlalchemy import Connection
    from sqlalchemy.pool import ConnectionPoolEntry

BEGIN = "mirage_begin"
"""Execution option: how SQLite begins the transaction, such as ``IMMEDIATE``."""

_CONNECT_SECONDS = 5
_PORT = "5432"
_WAL_BYTES = 64 << 20


def sqlite_engine(url: URL, patience: float, *, durable: bool = True) -> Engine:
    """An engine on a SQLite file. ``patience``: seconds to wait for another writer.

    ``durable``: whether a commit waits for the disk; a private copy need not.
    """
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
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
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


_WRITABLE = "let the daemon's user write there, or name another file"
_EXAMPLES = (
    "sqlite:////var/lib/mirage/mirage.db, postgresql://mirage@localhost/mirage or directory:///home/me/mirage"
)


@dataclass(frozen=True, slots=True)
class Location:
    """A database URL, and the file of a SQLite database, or the directory of a shared one."""

    url: URL
    file: Path | None
    """SQLite's file, absolute; ``None``: a PostgreSQL server, or a shared directory."""
    directory: Path | None = None
    """A directory that processes on several machines share; ``None``: another kind."""

    def is_missing(self) -> bool:
        """Whether there is no file, or no directory: looking at the database would make one."""
        place = self.file or self.directory
        return place is not None and not place.exists()

    @property
    def shown(self) -> str:
        """For messages: file or directory, or the address without its password."""
        place = self.file or self.directory
        return str(place) if place else without_secrets(self.url.render_as_string(hide_password=True))


class OpenedFile:
    """A file that others may remove or replace while it is open: what it takes then is lost at a restart."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened = _identity(path)

    def check(self) -> None:
        """Raise ``StoreUnavailable`` while the path names another file than at first, or none."""
        found = _identity(self._path)
        if found == self._opened:
            return
        what = "was removed" if found is None else "was replaced by another file"
        remedy = "stop the daemon, put the right file in place, start it again"
        raise StoreUnavailable(
            f"{self._path}: the open database {what}; nothing is stored until it is back: {remedy}"
        )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnavailable(f"{path}: cannot be looked at: {error.strerror}") from error
    return found.st_dev, found.st_ino


def locate(text: str) -> Location:
    """Where ``text``, a database URL, points to. Raises ``ConfigError``."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ConfigError("store", f"this is not a database URL, such as {_EXAMPLES}") from None
    if url.drivername in ("postgresql", "postgresql+psycopg"):
        return Location(_with_password_in_place(url).set(drivername="postgresql+psycopg"), None)
    if url.drivername == "directory":
        return Location(url, None, _directory(url))
    if url.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise ConfigError("store", f"{url.drivername} is not supported; use {_EXAMPLES}")
    if not url.database or url.database == ":memory:" or url.query:
        raise ConfigError(
            "store", "a SQLite database is a plain file, such as sqlite:////var/lib/mirage/mirage.db"
        )
    return Location(url, Path(url.database).absolute())


def _directory(url: URL) -> Path:
    if url.host or url.username or url.query or not (url.database or "").strip("/"):
        raise ConfigError("store", "a shared directory has an absolute path, such as directory:///home/me/mirage")
    return Path("/", str(url.database).lstrip("/"))


def _with_password_in_place(url: URL) -> URL:
    """A password given as a parameter is moved to where passwords are hidden and kept from command lines."""
    given = url.query.get("password")
    moved = url.difference_update_query(["password"])
    return moved.set(password=given) if isinstance(given, str) else moved


def standing_directory(path: Path) -> Path:
    """The nearest of ``path`` and the directories above it that is there, whatever it is. Raises ``OSError``."""
    absolute = path.absolute()
    return next(each for each in (absolute, *absolute.parents) if os.path.lexists(each))


def make_directory(directory: Path, mode: int) -> None:
    """Make it where it is missing; also with a umask of 0 no other user may write to the directories above it.

    Raises ``OSError``.
    """
    for parent in reversed([each for each in directory.absolute().parents if not each.exists()]):
        parent.mkdir(0o755, exist_ok=True)
    directory.mkdir(mode, exist_ok=True)


def check_room(url: str) -> None:
    """Raise as ``make_room`` would for the database at ``url``; nothing is made. A server has room."""
    location = locate(url)
    if location.directory is not None:
        _check_shared(location.directory)
        return
    file = location.file
    if file is None:
        return
    if problem := path_problem(str(file)):
        raise ConfigError("store.url", f"{file}: {problem}")
    there = standing_directory(file)
    directory = there.parent if there == file else there
    _check_local(file, directory)
    if not directory.is_dir() or not os.access(there, os.W_OK) or not os.access(directory, os.W_OK | os.X_OK):
        raise StoreUnavailable(f"{file}: cannot be made or written; {_WRITABLE}")


def _check_shared(directory: Path) -> None:
    if problem := path_problem(str(directory)):
        raise ConfigError("store.url", f"{directory}: {problem}")
    there = standing_directory(directory)
    if there == directory:
        check_directory(directory)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise StoreUnavailable(f"{directory}: cannot be made or written; {_WRITABLE}")


def make_shared(directory: Path) -> None:
    """Make a shared directory where it is missing, for this user alone. Raises ``StoreUnavailable``."""
    try:
        make_directory(directory, 0o700)
    except OSError as error:
        raise unavailable(directory, error) from error
    check_directory(directory)


def make_room(file: Path) -> None:
    """Create the file and its directory where they are missing, for this user's eyes only: scripts and
    environments lie in there.

    Raises ``ConfigError`` on a network file system, whose locks SQLite cannot rely on, and ``StoreUnavailable``.
    """
    try:
        make_directory(file.parent, 0o700)
        _check_local(file, file.parent)
        if not file.exists():
            file.touch(mode=0o600)
    except OSError as error:
        text = f"{file}: {error.strerror} ({error.filename}); {_WRITABLE}"
        raise StoreUnavailable(text) from error


def _check_local(file: Path, directory: Path) -> None:
    if kind := network_file_system(directory):
        raise ConfigError(
            str(file),
            f"a database cannot be kept on a network file system ({kind}); name a file on a local disk "
            f"(such as /var/tmp/{file.name}), or use PostgreSQL, or directory:///PATH",
        )
