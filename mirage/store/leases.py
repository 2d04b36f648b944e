"""The lease on leadership in a database or a directory, and the fence that keeps a deposed leader's writes out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select, text, update

from mirage.documentreading import reader_of
from mirage.domain.errors import ConfigError, LeadershipLost
from mirage.domain.lease import VACANT, Lease
from mirage.store.codec import from_row, loaded, to_text
from mirage.store.location import locate, make_shared
from mirage.store.numbered_files import NumberedFiles, check_directory
from mirage.store.tables import insert_new, leases

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sqlalchemy import Connection, Select
    from sqlalchemy.sql.elements import ColumnElement

    from mirage.store.database import Database
    from mirage.store.numbered_files import Numbered

_OFFICE = "leader"
_LEASE = reader_of(Lease)
_SILENCE = text("SET LOCAL idle_in_transaction_session_timeout = '5s'")


class SqlLeases:
    """``Leases`` in a database that several daemons share. Every thread may use it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self) -> Lease:
        """The lease now. Raises ``StoreUnavailable``."""
        return self._database.read(_read)

    def swap(self, old: Lease, new: Lease) -> bool:
        """Put ``new`` where ``old`` is; ``False``: something else is there, and stays.

        On disk when it returns. Raises ``StoreUnavailable``: ``new`` may be there or not.
        """
        return self._database.write(lambda connection: _swap(connection, old, new))


def fence(holder: str, term: int) -> Callable[[Connection], None]:
    """A condition of a transaction: that ``holder`` still leads in ``term`` when it is committed.

    Other daemons wait for the end of the transaction to take the lease; raises ``LeadershipLost`` if it is taken.
    """

    def check(connection: Connection) -> None:
        _bound_silence(connection)
        found = _read(connection, locked=True)
        if (found.holder, found.term) != (holder, term):
            raise LeadershipLost(f"{found.name or 'nobody'} leads since, in term {found.term}; ours was {term}")

    return check


def no_entry(connection: Connection) -> None:
    """The condition of one that does not lead: it never holds. Raises ``LeadershipLost``."""
    found = _read(connection)
    raise LeadershipLost(f"{found.name or 'no daemon'} is the leader; this daemon is not")


def _read(connection: Connection, *, locked: bool = False) -> Lease:
    row = connection.execute(_row(locked=locked)).one_or_none()
    return VACANT if row is None else from_row(_LEASE, row._mapping, "the lease")


def _row(*, locked: bool) -> Select[tuple[str, str, int, int]]:
    c = leases.c
    query = select(c.holder, c.name, c.term, c.beat).where(c.office == _OFFICE)
    return query.with_for_update(read=True) if locked else query


def _swap(connection: Connection, old: Lease, new: Lease) -> bool:
    """The transaction may be a second attempt of one that went through: ``new`` in place of ``new`` is no harm."""
    _bound_silence(connection)
    if old == VACANT:
        insert_new(connection, leases, [{"office": _OFFICE, **_values(VACANT)}])
    change = update(leases).where(leases.c.office == _OFFICE, _is(old) | _is(new)).values(_values(new))
    return connection.execute(change).rowcount == 1


def _bound_silence(connection: Connection) -> None:
    """The lock of a machine that is gone within a transaction would keep all users from the lease for hours."""
    if connection.dialect.name == "postgresql":
        connection.execute(_SILENCE)


def _values(lease: Lease) -> dict[str, str | int]:
    return {"holder": lease.holder, "name": lease.name, "term": lease.term, "beat": lease.beat}


def _is(lease: Lease) -> ColumnElement[bool]:
    c = leases.c
    return (c.holder == lease.holder) & (c.term == lease.term) & (c.beat == lease.beat)


_KEPT = 8
"""Lease files: a few renewals, for a listing that lags."""


class FileLeases:
    """``Leases`` in a directory, ``lease.N``. Every thread may use it."""

    def __init__(self, directory: Path, files: NumberedFiles | None = None) -> None:
        self._directory = directory
        self._files = files or NumberedFiles(directory, "lease", _KEPT)

    def read(self) -> Lease:
        """The lease now. Raises ``StoreUnavailable``."""
        check_directory(self._directory)
        return self._lease(self._files.newest())

    def swap(self, old: Lease, new: Lease) -> bool:
        """Put ``new`` where ``old`` is; ``False``: something else is there, and stays.

        On disk when it returns. Raises ``StoreUnavailable``: ``new`` may be there or not.
        """
        check_directory(self._directory)
        there = self._files.newest()
        found = self._lease(there)
        if _same(found, new):
            return True
        if not _same(found, old):
            return False
        return self._files.add(there, _document(new)) is not None or _same(self.read(), new)

    def _lease(self, value: Numbered | None) -> Lease:
        if value is None:
            return VACANT
        where = str(self._files.path(value.number))
        return from_row(_LEASE, loaded(value.content.decode("utf-8", "replace"), where), where)


def open_leases(url: str) -> FileLeases:
    """The leases of a ``directory:`` URL, whose directory is made where it is missing.

    Raises ``ConfigError`` and ``StoreUnavailable``.
    """
    directory = locate(url).directory
    if directory is None:
        raise ConfigError("store.url", "this is not the URL of a directory, such as directory:///home/me/mirage")
    make_shared(directory)
    return FileLeases(directory)


class FileFence:
    """A condition of a transaction on a state in a directory: that ``holder`` still leads in ``term``.

    The lease may be taken between this look and the publication. Then the new leader either reads what was
    published, or has published before, and ``PublishedState`` raises ``LeadershipLost``.
    """

    def __init__(self, leases: FileLeases, holder: str = "", term: int = 0) -> None:
        """``term`` 0: this process does not lead, the condition never holds."""
        self._leases, self._holder, self.term = leases, holder, term

    def __call__(self, connection: Connection) -> None:
        """Raise ``LeadershipLost`` where another process leads."""
        del connection
        self.check()

    def check(self) -> None:
        """The same, outside a transaction."""
        found = self._leases.read()
        if not self.term:
            raise LeadershipLost(f"{found.name or 'no daemon'} is the leader; this daemon is not")
        if (found.holder, found.term) != (self._holder, self.term):
            raise LeadershipLost(
                f"{found.name or 'nobody'} leads since, in term {found.term}; ours was {self.term}"
            )


def _same(one: Lease, other: Lease) -> bool:
    return (one.holder, one.term, one.beat) == (other.holder, other.term, other.beat)


def _document(lease: Lease) -> bytes:
    values = {"holder": lease.holder, "name": lease.name, "term": lease.term, "beat": lease.beat}
    return to_text(values).encode()
