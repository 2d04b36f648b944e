"""Opens a store: begin here. Also deletes, in small steps, what is older than configured."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from sqlalchemy import delete, select, tuple_

from mirage.domain.journal import EntryKind
from mirage.store.about import ClusterNameStore, WriteCount, number_file, read_number, witness
from mirage.store.access import AuditLog, HolderStore, IdempotencyStore, TokenStore
from mirage.store.chains import SqlChainStore
from mirage.store.database import Database
from mirage.store.jobs import JobArchive
from mirage.store.journal import OutcomeLog, SqlJournal
from mirage.store.leases import FileFence
from mirage.store.location import locate
from mirage.store.restoration import RestorationStore, note_restoration, watched
from mirage.store.schema import bring_up_to_date
from mirage.store.snapshots import SnapshotArchive
from mirage.store.tables import audit, jobs, journal, outcomes, snapshots, waits
from mirage.store.waits import SqlWaitHistory
from mirage.store.write_buffer import WriteBuffer

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import ColumnElement, Connection, Delete, Table

    from mirage.domain.job import Seconds
    from mirage.store.database import Condition
    from mirage.store.published_state import PublishedState

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


_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Store:
    """Everything kept in one database.

    One process at a time may write; in it the loop's thread saves chains and writes the journal, and every thread
    may read anything, add waits, jobs, snapshots and audit entries, keep tokens and answers, and prune.
    """

    database: Database
    chains: SqlChainStore
    journal: SqlJournal
    outcomes: OutcomeLog
    snapshots: SnapshotArchive
    waits: SqlWaitHistory
    jobs: JobArchive
    audit: AuditLog
    tokens: TokenStore
    answers: IdempotencyStore
    holders: HolderStore
    restoration: RestorationStore
    cluster: ClusterNameStore
    number: Path | None = None
    """The file with the number of the last transaction that this daemon knows of."""

    def stand_by(self) -> None:
        """Read chains again, and remember how far their leader has come. Raises ``StoreUnavailable``."""
        self.database.refresh()
        witness(self.database, self.number)
        self.chains.forget()

    def prune(self, retention: Retention, now: Seconds, chains_of_one: int = 0) -> dict[str, int]:
        """Delete what is older than ``retention`` allows; returns how many of what.

        Of an owner's chains that are over the newest ``chains_of_one`` are kept (0: no bound).
        Raises ``StoreUnavailable``.
        """
        cutoffs = retention.cutoffs(now)
        return delete_old(self.database, cutoffs) | {"chains": self.chains.prune(cutoffs.chains, chains_of_one)}

    def close(self) -> None:
        """Put on disk what still waits, and close the connections. Raises ``StoreUnavailable``."""
        try:
            self.journal.flush()
        finally:
            self.database.close()


def open_database(
    url: str, patience: float = _PATIENCE, backups: Path | None = None, condition: Condition | None = None
) -> Database:
    """A database, made and brought to this version's schema where needed; raises as ``open_store``.

    Where it is a restored backup that is noted, and logged. One that is restored later is written to no more.
    ``condition``: of every write to a shared directory, which is published as a whole.
    """
    database = Database.at(url, patience)
    try:
        if database.shared is not None and condition is not None:
            return _open_shared(database, database.shared, condition, (url, backups))
        bring_up_to_date(database, locate(url), backups)
        note_restoration(database, number_file(backups) if backups else None)
        return watched(database)
    except BaseException:
        database.close()
        raise


def _open_shared(
    database: Database, shared: PublishedState, condition: Condition, place: tuple[str, Path | None]
) -> Database:
    """A leader publishes immediately; a standby only upgrades its copy, also one that it reads later."""
    url, backups = place
    led = database.on_condition(condition)
    if isinstance(condition, FileFence) and condition.term:
        bring_up_to_date(led, locate(url), backups)
        note_restoration(led, number_file(backups) if backups else None)
        led.write(_nothing)
    else:
        shared.publishes = False
        shared.on_read(lambda: bring_up_to_date(database, locate(url), None, keep=False))
    shared.follows = False
    return led


def _nothing(connection: Connection) -> None:
    """Publishes the state as read: all that the former leader has published is in it, and more cannot follow."""


def _always(connection: Connection) -> None:
    """Holds for a database that one process alone writes to."""


def open_store(
    url: str,
    patience: float = _PATIENCE,
    backups: Path | None = None,
    condition: Condition | None = None,
) -> Store:
    """Open a database, made and brought to this version's schema where needed.

    ``url`` is such as ``sqlite:////var/lib/mirage/mirage.db`` or ``postgresql://mirage@localhost/mirage``;
    ``patience`` is how many seconds to wait for other writers; ``backups`` is where a server's database is dumped
    to before it is upgraded (a file's copy lies next to it); ``condition`` is what chains and journal are written
    on, such as that this daemon leads. Raises ``ConfigError`` (a wrong URL, a network file system, a schema of a
    newer Mirage), ``MissingExtra`` (PostgreSQL's driver) and ``StoreUnavailable``.
    """
    database = open_database(url, patience, backups, condition)
    file = number_file(backups) if backups else None
    count = WriteCount(database.read(read_number), database.where, file)
    leading = database.on_condition(condition or _always, count)
    outbox = WriteBuffer(leading)
    journal = SqlJournal(leading, outbox)
    return Store(
        database,
        SqlChainStore(leading, outbox, journal),
        journal,
        OutcomeLog(database),
        SnapshotArchive(database),
        SqlWaitHistory(database),
        JobArchive(database),
        AuditLog(database),
        TokenStore(database),
        IdempotencyStore(database),
        HolderStore(database),
        RestorationStore(leading),
        ClusterNameStore(leading),
        file,
    )
