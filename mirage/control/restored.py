"""Chains of a restored database wait until Slurm has been asked what they did since the backup."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from mirage.control.actions import journal_entry
from mirage.domain.bounds import format_instant
from mirage.domain.journal import EntryKind
from mirage.provisioner.events import PauseAsked
from mirage.provisioner.restored import PastJobs, bring_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import Snapshot
    from mirage.domain.tags import PastLinks
    from mirage.ports import ChainStore

_LOG = logging.getLogger(__name__)
_MOST_NAMED = 20
_FRESH_S = 120.0
"""How old accounting's answer may be, in real seconds: it has no comment of a job that ran, and slurmctld forgets
jobs that have ended after ``MinJobAge`` (300 s by default)."""


class RestoredDatabase:
    """What the loop and the thread that asks accounting share about one restored database."""

    def __init__(self, since: Seconds, settled: Callable[[], None], owner: str = "") -> None:
        """``since``: what was stored later is missing; ``settled``: stores that all chains were compared.

        ``owner``: the only user whose chains it can have had; empty: any user's.
        """
        self.since = since
        self.owner = owner
        self.settle = settled
        self.open = True
        """Whether chains may still wait. Of the loop's thread; others only read it."""
        self._trouble = "accounting has not answered yet"
        self._answer: tuple[PastLinks | None, bool | None] | None = None
        self._asked = 0.0

    def answered(self, past: PastLinks | None, keeps_comments: bool | None, asked: float) -> None:
        """Accounting's complete answer; ``None``: accounting has none. Any thread.

        ``asked``: when, by ``time.monotonic``.
        """
        self._asked = asked
        self._answer = past, keeps_comments

    def not_answered(self, trouble: str) -> bool:
        """Note why the chains still wait; return whether the reason is new. Any thread."""
        changed, self._trouble = trouble != self._trouble, trouble
        return changed

    @property
    def answer(self) -> tuple[PastLinks | None, bool | None] | None:
        """As given to ``answered``; ``None`` where accounting is still, or again, to be asked."""
        known = self._answer
        if known is not None and known[0] is not None and time.monotonic() - self._asked > _FRESH_S:
            self._answer = known = None
        return known

    @property
    def reason(self) -> str:
        """Why a chain waits."""
        return (
            f"the database was restored from a backup that ends at {format_instant(self.since)}; {self._trouble}"
        )


class RestoredChains:
    """Update each chain to what Slurm shows before anything is decided about it. For the loop's thread."""

    def __init__(self, database: RestoredDatabase | None, store: ChainStore) -> None:
        self._database = database
        self._store = store
        self._answer: tuple[PastLinks | None, bool | None] | None = None
        self._past: PastJobs | None = None
        self._done: set[ChainId] = set()
        self._paused = 0

    def bring_up(self, record: ChainRecord, snapshot: Snapshot, now: Seconds) -> tuple[ChainRecord, str]:
        """Return the updated record, and why its decision has to wait; empty: it need not.

        Raises ``StoreUnavailable``.
        """
        database, chain_id = self._database, record.chain.chain_id
        if database is None or not database.open or record.over or chain_id in self._done:
            return record, ""
        if (past := self._known(database)) is None:
            return record, database.reason
        if unknown := [link.index for link in record.live if link.tag in snapshot.unaccounted]:
            why = f"link {unknown[0]} has left the queue, and accounting does not show how it ended"
            return record, f"the database was restored; {why}"
        brought = bring_up(record, snapshot, past, database.since, now)
        if brought.record != record:
            entries = [
                journal_entry(record, now, EntryKind.TROUBLE, each.reason)
                if isinstance(each, PauseAsked)
                else journal_entry(record, now, EntryKind.EVENT, str(each), getattr(each, "index", 0))
                for each in brought.events
            ]
            self._store.save(brought.record, *entries)
        self._done.add(chain_id)
        self._paused += any(isinstance(each, PauseAsked) for each in brought.events)
        return brought.record, ""

    def finish(self) -> None:
        """Store that the comparison is complete, once no chain waits for it. Raises ``StoreUnavailable``."""
        database = self._database
        if database is None or not database.open or (past := self._known(database)) is None:
            return
        records = self._store.load()
        if any(not record.over and record.chain.chain_id not in self._done for record in records):
            return
        database.settle()
        database.open = False
        _LOG.warning("event=restored_chains_compared compared=%d paused=%d", len(self._done), self._paused)
        strangers = past.strangers(records)
        if database.owner:
            strangers = {chain_id: owner for chain_id, owner in strangers.items() if owner == database.owner}
        if strangers:
            named = ",".join(f"{chain_id}:{owner}" for chain_id, owner in sorted(strangers.items())[:_MOST_NAMED])
            _LOG.warning("event=unknown_chains_in_accounting chains=%d first=%s", len(strangers), named)

    def _known(self, database: RestoredDatabase) -> PastJobs | None:
        answer = database.answer
        if answer is None:
            return None
        if self._past is None or answer is not self._answer:
            self._answer, self._past = answer, PastJobs(*answer, self._store.load())
        return self._past
