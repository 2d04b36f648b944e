"""Whether a database is a restored backup, and what was stored in it last. Begin with ``note_restoration``.

A copy that ``back_up`` makes of a SQLite file has the time of the copy as ``user_version``, which an original
never has. PostgreSQL's tables get other OIDs from ``pg_restore``: a database that was restored from a dump, by
any tool, contains OIDs other than those of its tables.

A process that has the database open while it is restored must not write into it: its records are of another
database. A SQLite file is another one then (``location.OpenedFile``), and PostgreSQL's tables have other OIDs
(``watched``).

Once noted the fact is in the table ``about`` until ``RestorationStore.clear``.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import delete, func, inspect, select, text

from mirage.domain.bounds import format_instant
from mirage.domain.errors import StoreUnavailable
from mirage.store.about import keep_number, kept_number, read_about, read_number, write_about
from mirage.store.database import Database
from mirage.store.location import locate
from mirage.store.tables import about, journal, links, snapshots, tokens

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from sqlalchemy import Connection

    from mirage.domain.job import Seconds

_LOG = logging.getLogger(__name__)

_ORIGIN, _SINCE, _COPIED, _ASKS = "origin", "restored-since", "restored-copy-of", "restored-asks-accounting"
_NOTED = (_SINCE, _COPIED, _ASKS)
_PATIENCE = 5.0
_MINUTE = 60
"""``user_version`` has 31 bits: seconds would end in 2038."""
_MOST_NAMES = 20
_KNOWS_SYSTEM = text(
    "SELECT CASE WHEN to_regprocedure('pg_control_system()') IS NULL THEN false"
    " ELSE has_function_privilege('pg_control_system()', 'EXECUTE') END"
)
_TABLE_OID = text("SELECT CAST(to_regclass('about') AS oid)")


@dataclass(frozen=True, slots=True)
class Restoration:
    """A restored database whose chains have not been compared with Slurm yet."""

    since: Seconds
    """When something was stored last before the backup, on Slurm's clock: what came later is missing."""
    copied: Seconds
    """When the backup was made, on the clock of the machine; 0: not known."""
    asks_accounting: bool = True
    """Whether accounting may be asked for what is missing."""


@dataclass(frozen=True, slots=True)
class RestorationNote:
    """What was done as a restoration was noted."""

    restoration: Restoration
    revoked: tuple[str, ...]
    """The owners of the tokens that were revoked, one name for each token."""


def mark_copy(copy: sqlite3.Connection) -> None:
    """Write into a SQLite file that it is a backup, made now."""
    copy.execute(f"PRAGMA user_version = {int(time.time()) // _MINUTE}")


def note_restoration(database: Database, file: Path | None = None) -> None:
    """Note, in a database of this version's schema, that it was restored; nothing happens where it was not.

    ``file`` holds the number of the last transaction that this daemon stored.

    Its tokens are revoked in the same transaction: one that was revoked after the backup would be valid again.
    Raises ``StoreUnavailable``.
    """
    if not database.read(_is_settled_original) and (note := database.write(_noted_where_copied)) is not None:
        _log(database, note)
    if file is not None and (kept := kept_number(file, database.where)):
        if note := database.write(lambda connection: _noted_where_older(connection, kept)):
            _log(database, note)
        _keep(file, database)


def watched(database: Database) -> Database:
    """The database, which is no more written to once its tables are replaced. Raises ``StoreUnavailable``.

    Each transaction that writes, so each renewal of the lease as well, looks up one OID of PostgreSQL.
    """
    opened = database.read(_table_oid)
    if not opened:
        return database

    def check(connection: Connection) -> None:
        if _table_oid(connection) != opened:
            raise StoreUnavailable(
                f"{database.where}: the database was restored while it was open, nothing is stored; stop all"
                " daemons that use it, check that the restore is complete, start the daemons again"
            )

    return database.on_tables(check)


def declare_restored(
    url: str, *, keep_tokens: bool = False, asks_accounting: bool = True, since: Seconds | None = None
) -> RestorationNote:
    """Note that a database of this version's schema was restored, whatever it says of itself.

    ``since``: the time after which something may be missing; ``None``: that of what was stored last. Raises
    ``ConfigError``, ``MissingExtra`` and ``StoreUnavailable``.
    """
    with closing(Database.at(url, _PATIENCE)) as database:
        return database.write(
            lambda connection: _note(
                connection, keep_tokens=keep_tokens, asks_accounting=asks_accounting, since=since
            )
        )


def read_restoration(url: str) -> Restoration | None:
    """Return what is noted in a database, or what opening it would note; it is left as it is.

    ``None``: nothing, or there is no database. Raises ``ConfigError``, ``MissingExtra`` and ``StoreUnavailable``.
    """
    location = locate(url)
    if location.is_missing() or (location.file is not None and not location.file.stat().st_size):
        return None
    with closing(Database.at(url, _PATIENCE)) as database:
        return database.read(lambda connection: _noted(connection) or _found(connection))


class RestorationStore:
    """The note, for the daemon that leads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self) -> Restoration | None:
        """What is noted. Raises ``StoreUnavailable``."""
        return self._database.read(_noted)

    def clear(self) -> None:
        """Forget it: the chains were compared with Slurm. On disk when it returns. Raises ``StoreUnavailable``."""
        gone = delete(about).where(about.c.name.in_(_NOTED))
        self._database.write(lambda connection: connection.execute(gone))


def _log(database: Database, note: RestorationNote) -> None:
    found = note.restoration
    names = sorted(set(note.revoked))
    owners = ",".join(names[:_MOST_NAMES]) + (",..." if len(names) > _MOST_NAMES else "")
    _LOG.warning(
        "event=database_restored database=%s copied=%s stored_last=%s tokens_revoked=%d owners=%s",
        *(database.where, _spelled(found.copied), _spelled(found.since), len(note.revoked), owners or "-"),
    )


def _spelled(instant: Seconds) -> str:
    return format_instant(instant) if instant else "unknown"


def _is_settled_original(connection: Connection) -> bool:
    if connection.dialect.name == "postgresql":
        return read_about(connection, _ORIGIN) == _own_origin(connection)
    return not _copied(connection)


def _noted_where_copied(connection: Connection) -> RestorationNote | None:
    if connection.dialect.name == "postgresql" and read_about(connection, _ORIGIN) is None:
        write_about(connection, {_ORIGIN: _own_origin(connection)})  # a new database, or one of an earlier version
        return None
    return None if _is_settled_original(connection) else _note(connection)


def _noted_where_older(connection: Connection, kept: int) -> RestorationNote | None:
    """``kept``: the number of a transaction that the database has had. One that counts none is a new one."""
    stored = read_number(connection)
    if not 0 < stored < kept or _noted(connection) is not None:
        return None
    return _note(connection)


def _keep(file: Path, database: Database) -> None:
    """From now on what the database holds counts. Where the file cannot be written it is noted again."""
    try:
        keep_number(file, database.where, database.read(read_number))
    except OSError as error:
        _LOG.warning("%s: not written: %s", file, error.strerror)


def _note(
    connection: Connection,
    *,
    keep_tokens: bool = False,
    asks_accounting: bool = True,
    since: Seconds | None = None,
) -> RestorationNote:
    before, copied = _noted(connection), _copied(connection)
    last = _stored_last(connection) if since is None else since
    found = Restoration(last, copied, asks_accounting)
    if before is not None:  # a backup of a restored database, or the transaction of a connection that broke
        found = Restoration(min(last, before.since), copied or before.copied, asks_accounting)
    owners = () if keep_tokens else tuple(connection.execute(select(tokens.c.owner)).scalars())
    if not keep_tokens:
        connection.execute(delete(tokens))
    values = {_SINCE: str(found.since), _COPIED: str(found.copied), _ASKS: str(int(asks_accounting))}
    if connection.dialect.name == "postgresql":
        values[_ORIGIN] = _own_origin(connection)
    else:
        connection.exec_driver_sql("PRAGMA user_version = 0")
    write_about(connection, values)
    return RestorationNote(found, owners)


def _noted(connection: Connection) -> Restoration | None:
    if not inspect(connection).has_table(about.name):  # of an earlier schema
        return None
    found = {name: read_about(connection, name) for name in _NOTED}
    if found[_SINCE] is None:
        return None
    try:
        since, copied, asks = (int(value or 0) for value in found.values())
    except ValueError as error:
        raise StoreUnavailable(f"the table about: a damaged row: {error}; restore a backup") from None
    return Restoration(since, copied, bool(asks))


def _found(connection: Connection) -> Restoration | None:
    """What opening the database would note."""
    if connection.dialect.name == "postgresql":
        stated = read_about(connection, _ORIGIN) if inspect(connection).has_table(about.name) else None
        if stated is None or stated == _own_origin(connection):
            return None
    elif not _copied(connection):
        return None
    return Restoration(_stored_last(connection), _copied(connection))


def _copied(connection: Connection) -> Seconds:
    """When a SQLite file was copied; 0: it is no copy, or that is not known."""
    if connection.dialect.name == "postgresql":
        return 0
    return int(connection.exec_driver_sql("PRAGMA user_version").scalar_one()) * _MINUTE


def _own_origin(connection: Connection) -> str:
    """A name of this one database, which a dump of it does not take along."""
    system = "0"
    if connection.execute(_KNOWS_SYSTEM).scalar_one():
        system = str(connection.execute(text("SELECT system_identifier FROM pg_control_system()")).scalar_one())
    table = connection.execute(text("SELECT CAST(CAST('about' AS regclass) AS oid)")).scalar_one()
    return f"{system}.{table}"


def _table_oid(connection: Connection) -> int:
    """Return the OID of one table; 0 without the table, or for SQLite."""
    if connection.dialect.name != "postgresql":
        return 0
    return int(connection.execute(_TABLE_OID).scalar_one() or 0)


def _stored_last(connection: Connection) -> Seconds:
    """The latest time that chains, journal and snapshots name as past, on Slurm's clock; 0: none."""
    columns = (journal.c.time, snapshots.c.time, links.c.planned, links.c.submit)
    found = [connection.execute(select(func.max(column))).scalar() for column in columns]
    return max((int(each) for each in found if each is not None), default=0)
