"""Opens a store: begin here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.store.answers import AnswerStore
from mirage.store.audit import AuditLog
from mirage.store.chains import SqlChainStore
from mirage.store.clustername import ClusterNameStore
from mirage.store.database import Database
from mirage.store.holders import HolderStore
from mirage.store.jobs import JobArchive
from mirage.store.journal import SqlJournal
from mirage.store.location import locate
from mirage.store.outbox import Outbox
from mirage.store.outcomes import OutcomeLog
from mirage.store.restoration import RestorationStore, note_restoration, watched
from mirage.store.retention import Retention, delete_old
from mirage.store.snapshots import SnapshotArchive
from mirage.store.tokens import TokenStore
from mirage.store.upgrading import bring_up_to_date
from mirage.store.waithistory import SqlWaitHistory
from mirage.store.written import WriteCount, number_file, read_number, witness

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection

    from mirage.domain.job import Seconds
    from mirage.store.database import Condition

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
    answers: AnswerStore
    holders: HolderStore
    restoration: RestorationStore
    cluster: ClusterNameStore
    number: Path | None = None
    """The file with the number of the last transaction that this daemon knows of."""

    def stand_by(self) -> None:
        """Read chains again, and remember how far their leader has come. Raises ``StoreUnavailable``."""
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


def open_database(url: str, patience: float = _PATIENCE, backups: Path | None = None) -> Database:
    """A database, made and brought to this version's schema where needed; raises as ``open_store``.

    Where it is a restored backup that is noted, and logged. One that is restored later is written to no more.
    """
    database = Database.at(url, patience)
    try:
        bring_up_to_date(database, locate(url), backups)
        note_restoration(database, number_file(backups) if backups else None)
        return watched(database)
    except BaseException:
        database.close()
        raise


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
    database = open_database(url, patience, backups)
    file = number_file(backups) if backups else None
    count = WriteCount(database.read(read_number), database.where, file)
    leading = database.on_condition(condition or _always, count)
    outbox = Outbox(leading)
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
        AnswerStore(database),
        HolderStore(database),
        RestorationStore(leading),
        ClusterNameStore(leading),
        file,
    )
