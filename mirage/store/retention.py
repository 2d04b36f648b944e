"""How long things are kept, and their deletion in small bites."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from sqlalchemy import delete, select, tuple_

from mirage.domain.journal import EntryKind
from mirage.store.tables import audit, jobs, journal, outcomes, snapshots, waits

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Delete, Table

    from mirage.domain.job import Seconds
    from mirage.store.database import Database

_DAY = 86_400
_BITE = 5_000
"""Rows deleted in one transaction: the loop waits for no longer than that takes."""
_SNAPSHOT_BITE = 50


@dataclass(frozen=True, slots=True)
class Retention:
    """Ages in seconds beyond which things are deleted."""

    decisions: Seconds = 14 * _DAY
    """Entries of the journal that explain a decision; there is one a chain and cycle."""
    journal: Seconds = 365 * _DAY
    """All other entries."""
    snapshots: Seconds = 3 * _DAY
    waits: Seconds = 90 * _DAY
    jobs: Seconds = 180 * _DAY
    outcomes: Seconds = 730 * _DAY
    audit: Seconds = 730 * _DAY
    chains: Seconds = 180 * _DAY
    """Chains that are over."""

    def cutoffs(self, now: Seconds) -> Retention:
        """The same things as times: what is older than these goes."""
        return Retention(**{f.name: now - getattr(self, f.name) for f in fields(self)})


def delete_old(database: Database, cutoffs: Retention) -> dict[str, int]:
    """Delete what is older than the times, chains excepted; returns how many rows of what.

    Space freed is used again; a SQLite file does not shrink. Raises ``StoreUnavailable``; what was deleted until
    then stays deleted.
    """
    explains = journal.c.kind.in_((EntryKind.DECISION.value, EntryKind.SHADOW.value))
    old: list[tuple[str, Table, ColumnElement[bool], int]] = [
        ("decisions", journal, explains & (journal.c.time < cutoffs.decisions), _BITE),
        ("journal", journal, ~explains & (journal.c.time < cutoffs.journal), _BITE),
        ("snapshots", snapshots, snapshots.c.time < cutoffs.snapshots, _SNAPSHOT_BITE),
        ("waits", waits, waits.c.start < cutoffs.waits, _BITE),
        ("jobs", jobs, jobs.c.submit < cutoffs.jobs, _BITE),
        ("outcomes", outcomes, outcomes.c.successor_start < cutoffs.outcomes, _BITE),
        ("audit", audit, audit.c.time < cutoffs.audit, _BITE),
    ]
    return {name: _delete(database, _bite(table, where, size), size) for name, table, where, size in old}


def _bite(table: Table, where: ColumnElement[bool], size: int) -> Delete:
    key = list(table.primary_key)
    some = select(*key).where(where).limit(size)
    return delete(table).where((tuple_(*key) if len(key) > 1 else key[0]).in_(some))


def _delete(database: Database, bite: Delete, size: int) -> int:
    def once(connection: Connection) -> int:
        return connection.execute(bite).rowcount

    deleted = 0
    while (count := database.write(once)) == size:
        deleted += count
    return deleted + count
