"""The audit log: every command, and every action on behalf of a user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import insert, select

from mirage.documentfaults import reader_of
from mirage.domain.chain import ChainId
from mirage.domain.texts import storable
from mirage.store.codec import from_row
from mirage.store.tables import audit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.domain.job import Seconds
    from mirage.store.database import Database


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An action of a user, or on behalf of one."""

    time: Seconds
    user: str
    """Who asked."""
    uid: int
    action: str
    """Such as ``pause``."""
    chain: ChainId | None
    result: str
    """``done``, or why not."""
    how: str = ""
    """How they proved who they are; empty: it was an act of the loop."""


@dataclass(frozen=True, slots=True)
class _Row:
    id: int
    time: int
    user: str
    uid: int
    action: str
    chain_id: str | None
    result: str
    how: str


_ROW = reader_of(_Row)


@dataclass(frozen=True, slots=True)
class AuditLine:
    """An entry and its place."""

    cursor: int
    entry: AuditEntry


class AuditLog:
    """Entries are only ever added. Every thread may use it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, entry: AuditEntry) -> None:
        """Append one entry; on disk when it returns. Raises ``StoreUnavailable``."""
        self.write_all((entry,))

    def write_all(self, entries: Sequence[AuditEntry]) -> None:
        """Append entries in one transaction; on disk when it returns. Raises ``StoreUnavailable``."""
        rows = [_row(entry) for entry in entries]
        self._database.write(lambda connection: connection.execute(insert(audit), rows))

    def read(
        self, chain: ChainId | None = None, before: int | None = None, limit: int = 100
    ) -> tuple[AuditLine, ...]:
        """Entries, newest first: about one chain, before a cursor. Raises ``StoreUnavailable``."""
        query = select(audit).order_by(audit.c.id.desc()).limit(limit)
        if chain is not None:
            query = query.where(audit.c.chain_id == chain)
        if before is not None:
            query = query.where(audit.c.id < before)
        rows = self._database.read(lambda connection: connection.execute(query).all())
        where = f"{self._database.where}, audit"
        return tuple(_line(from_row(_ROW, row._mapping, where)) for row in rows)


def _row(entry: AuditEntry) -> dict[str, int | str | None]:
    return {
        "time": int(entry.time),
        "user": storable(entry.user),
        "uid": entry.uid,
        "action": storable(entry.action),
        "chain_id": entry.chain and storable(entry.chain),
        "result": storable(entry.result),
        "how": storable(entry.how),
    }


def _line(row: _Row) -> AuditLine:
    chain = ChainId(row.chain_id) if row.chain_id else None
    return AuditLine(row.id, AuditEntry(row.time, row.user, row.uid, row.action, chain, row.result, row.how))
