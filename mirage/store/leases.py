"""The lease on leadership in the database, and the fence that keeps a deposed leader's writes out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select, text, update

from mirage.documentreading import reader_of
from mirage.domain.errors import LeadershipLost
from mirage.domain.lease import VACANT, Lease
from mirage.store.codec import from_row
from mirage.store.tables import insert_new, leases

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Select
    from sqlalchemy.sql.elements import ColumnElement

    from mirage.store.database import Database

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
