"""What the daemon keeps of its work: the journal, the audit of acts in users' names, and of snapshots the waits.

Entries of the journal are also logged and passed to listeners. Periodically a whole snapshot is kept: a restart
does not forget the queue's last day.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from mirage.domain.errors import MirageError, StoreUnavailable
from mirage.domain.job import ABSENT
from mirage.domain.journal import EntryKind
from mirage.domain.tags import split_tag
from mirage.features.summary import LENGTH, SPACING
from mirage.store.access import AuditEntry
from mirage.store.waits import StartedJobs, started
from mirage.userdb import UIDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.backends.wrappers import AuditedAction
    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.job import JobId, JobRequest, Seconds
    from mirage.domain.journal import Entry
    from mirage.domain.snapshot import Snapshot
    from mirage.features.summary import QueueWindows
    from mirage.ports import ChainStore, Clock, Journal
    from mirage.store.access import AuditLog
    from mirage.store.snapshots import SnapshotArchive

_LOG = logging.getLogger(__name__)


class WaitRecorder(Protocol):
    """Where the waits of started jobs go."""

    def add(self, jobs: StartedJobs) -> None:
        """Keep these waits."""


class Archive(Protocol):
    """Where whole snapshots go."""

    def write(self, snapshot: Snapshot) -> None:
        """Store a snapshot."""


class SnapshotWatch:
    """Store waits and snapshots as they are read; an error is logged and does not stop decisions."""

    def __init__(self, waits: WaitRecorder, archive: Archive, every: Seconds) -> None:
        self._waits = waits
        self._archive = archive
        self._every = every
        self._archived = ABSENT
        self._failed = False

    def seen(self, previous: Snapshot | None, current: Snapshot) -> None:
        """Note the jobs that started between both; archive ``current`` if one is due."""
        try:
            self._note(previous, current)
        except StoreUnavailable as error:
            _LOG.warning("event=snapshot_not_stored error=%r", str(error))
        except Exception as error:
            # The traceback of a bug only once: it would be repeated in every cycle.
            _LOG.warning("event=snapshot_not_stored error=%r", error, exc_info=not self._failed)
            self._failed = True

    def _note(self, previous: Snapshot | None, current: Snapshot) -> None:
        if previous is not None and len(jobs := started(previous, current)):
            self._waits.add(jobs)
        due = self._archived == ABSENT or not 0 <= current.time - self._archived < self._every
        if self._every and due:
            self._archive.write(current)
            self._archived = current.time


def refill(windows: QueueWindows, archive: SnapshotArchive, now: Seconds) -> None:
    """Add the stored snapshots within a window's length; log and skip those that cannot be read."""
    try:
        for time in archive.times(now - LENGTH * SPACING, now + 1):
            _add(windows, archive, time)
    except StoreUnavailable as error:
        _LOG.warning("event=queue_history_unavailable error=%r", str(error))


def _add(windows: QueueWindows, archive: SnapshotArchive, time: Seconds) -> None:
    try:
        for snapshot in archive.read(time, time + 1):
            windows.add(snapshot)
    except MirageError as error:
        _LOG.warning("event=snapshot_unreadable error=%r", str(error))


class ActionAudit:
    """Puts each act into the audit; one that cannot be written down is logged and has happened all the same."""

    def __init__(self, audit: AuditLog, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock
        self._tags: dict[JobId, str] = {}
        """Of the links' jobs in the last snapshot."""

    def seen(self, snapshot: Snapshot) -> None:
        """Remember which job is whose: acts name jobs, and people look for chains."""
        jobs = (*snapshot.links.values(), *snapshot.rivals, *(snapshot.stock or ()))
        self._tags = {job.job_id: job.tag for job in jobs}

    def record(self, deed: AuditedAction) -> None:
        """Write the action to the audit log, with its job and its result."""
        job = f" as job {deed.job_id}" if deed.job_id and str(deed.job_id) not in deed.act else ""
        act = f"{deed.act}{job}"
        try:
            self._audit.write(
                AuditEntry(self._clock.now(), deed.owner, _uid(deed.owner), act, self._chain(deed), deed.result)
            )
        except StoreUnavailable as error:
            text = "event=audit_entry_not_stored user=%s action=%r result=%r reason=%r"
            _LOG.warning(text, deed.owner, act, deed.result, str(error), extra={"always": True})

    def _chain(self, deed: AuditedAction) -> ChainId | None:
        found = split_tag(deed.tag or self._tags.get(deed.job_id, ""))
        return found[0] if found else None


def _uid(name: str) -> int:
    """As far as it is known: the loop does not wait for it."""
    found = UIDS.last(name)
    return ABSENT if found is None else found


_JOURNAL_LOG = logging.getLogger("mirage.journal")

Listener = Callable[["Entry"], None]
"""Receives each entry in the loop's thread as it is written: must be quick and wait for nothing."""


class LoggedChains:
    """A ``ChainStore`` whose entries saved with a record are passed to listeners like those of the journal."""

    def __init__(self, chains: ChainStore, journal: LoggedJournal) -> None:
        self._chains = chains
        self._journal = journal

    def load(self) -> tuple[ChainRecord, ...]:
        """Return the chains as the underlying database has them."""
        return self._chains.load()

    def with_script(self, request: JobRequest) -> JobRequest:
        """Return the request with the script of the underlying database."""
        return self._chains.with_script(request)

    def save(self, record: ChainRecord, *entries: Entry) -> None:
        """Save to the underlying database; pass on the entries only if that succeeds."""
        self._chains.save(record, *entries)
        for entry in entries:
            self._journal.announce(entry)


class LoggedJournal:
    """Writes each entry to ``journal`` and one line of log: troubles as warnings, repetitions for debugging.

    ``written`` is called with each: predictors may take seconds for each of many chains, and a watchdog waits.
    """

    def __init__(self, journal: Journal, written: Callable[[], None], listeners: Iterable[Listener] = ()) -> None:
        self._journal = journal
        self._written = written
        self._listeners = tuple(listeners)
        self._deaf: set[Listener] = set()
        self._decided: dict[ChainId | None, str] = {}

    def listen(self, listener: Listener) -> None:
        """Pass every later entry to ``listener``. Any thread."""
        self._listeners = (*self._listeners, listener)

    def write(self, entry: Entry) -> None:
        """Write the entry to the database's buffer, log it and pass it to the listeners."""
        self._journal.write(entry)
        self.announce(entry)

    def announce(self, entry: Entry) -> None:
        """Log an entry that is written already, and pass it to the listeners."""
        fields: dict[str, object] = {"kind": str(entry.kind), "id": entry.key, "at": entry.time}
        if entry.chain is not None:
            fields["chain"] = entry.chain
        if entry.link:
            fields["link"] = entry.link
        for name in ("predictor", "model", "asked"):
            if said := getattr(entry, name):
                fields[name] = said
        _JOURNAL_LOG.log(self._level(entry), "%s", entry.text, extra={"fields": fields})
        self._tell(entry)
        self._written()

    def _tell(self, entry: Entry) -> None:
        """Pass the entry to the listeners; an error of one does not reach the loop and is logged once."""
        for listener in self._listeners:
            try:
                listener(entry)
            except Exception:
                if listener not in self._deaf:
                    self._deaf.add(listener)
                    _JOURNAL_LOG.exception(
                        "event=internal_error text=%r", "journal listener: bug in Mirage; report it"
                    )

    def _level(self, entry: Entry) -> int:
        """A chain that waits says the same each minute."""
        if entry.kind is EntryKind.TROUBLE:
            return logging.WARNING
        if entry.kind is EntryKind.SHADOW:
            return logging.DEBUG
        if entry.kind is not EntryKind.DECISION:
            return logging.INFO
        said, self._decided[entry.chain] = self._decided.get(entry.chain), entry.text
        return logging.DEBUG if said == entry.text else logging.INFO
