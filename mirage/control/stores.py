"""Stores and journals around those of the database: counted, without repeated entries, or in memory alone.

Those in memory live as long as the process: for replays, training and tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.files import FileState, Presence
from mirage.domain.journal import EntryKind
from mirage.provisioner.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.files import WatchedFile
    from mirage.domain.job import JobRequest, Seconds
    from mirage.domain.journal import Entry
    from mirage.ports import ChainStore, Journal


class CountedChains:
    """A ``ChainStore`` whose chains are counted as they are saved: between two permits a link may have been sent.

    Other threads delete old chains and other processes may have written before this daemon led, so all chains are
    counted again in each cycle. Of the loop's thread alone.
    """

    def __init__(self, chains: ChainStore, now: Seconds) -> None:
        self._chains = chains
        self._now = now
        self._tally: Tally | None = None
        self._before: Tally | None = None

    def recount(self, now: Seconds) -> None:
        """A cycle begins."""
        self._now = now
        self._forget()

    @property
    def tally(self) -> Tally:
        """Of the chains as they are stored. Raises ``StoreUnavailable``."""
        if self._tally is None:
            self._tally = Tally.of(self._chains.load(), self._now, self._before)
        return self._tally

    def load(self) -> tuple[ChainRecord, ...]:
        """Return the chains as the underlying database has them."""
        return self._chains.load()

    def with_script(self, request: JobRequest) -> JobRequest:
        """Return the request with the script of the underlying database."""
        return self._chains.with_script(request)

    def save(self, record: ChainRecord, *entries: Entry) -> None:
        """Like the underlying database; after a failure it is unknown what is stored."""
        try:
            self._chains.save(record, *entries)
        except BaseException:
            self._forget()
            raise
        if self._tally is not None:
            self._tally.put(record)

    def _forget(self) -> None:
        self._before, self._tally = self._tally or self._before, None


_STATES = (EntryKind.DECISION, EntryKind.TROUBLE)
_Told = tuple[EntryKind, int, str]


class MemoryJournal:
    """Keeps every entry for the reader in the same process."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def write(self, entry: Entry) -> None:
        """Append the entry to ``entries``."""
        self.entries.append(entry)

    def texts(self, kind: EntryKind) -> tuple[str, ...]:
        """The sentences of one kind, in order."""
        return tuple(entry.text for entry in self.entries if entry.kind is kind)


class ChangedEntries:
    """Writes an entry about a state only where the cycle before did not say the same.

    What a chain waits for holds for hours. Entries with a prediction are all kept: predictors are judged by them.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._before: dict[ChainId | None, set[_Told]] = {}
        self._told: dict[ChainId | None, set[_Told]] = {}

    def begin_cycle(self) -> None:
        """Later entries belong to the next cycle."""
        self._before, self._told = self._told, {}

    def skip(self, chain: ChainId) -> None:
        """Keep this chain's last entry as current: it gets no entry in this cycle."""
        self._told.setdefault(chain, set()).update(self._before.get(chain, ()))

    def write(self, entry: Entry) -> None:
        """Append one entry, where it is new."""
        for new in self.new(entry):
            self._journal.write(new)

    def new(self, entry: Entry) -> tuple[Entry, ...]:
        """The entry where it is to be written, else nothing."""
        if entry.kind not in _STATES or entry.prediction is not None:
            return (entry,)
        told = (entry.kind, entry.link, entry.text)
        now = self._told.setdefault(entry.chain, set())
        known = told in now or told in self._before.get(entry.chain, ())
        now.add(told)
        return () if known else (entry,)


class MemoryStore:
    """Chains in a dictionary."""

    def __init__(self, *records: ChainRecord, journal: Journal | None = None) -> None:
        self.journal = journal or MemoryJournal()
        """Where entries go that are saved with a record."""
        self._records: dict[ChainId, ChainRecord] = {record.chain.chain_id: record for record in records}

    def load(self) -> tuple[ChainRecord, ...]:
        """Every chain, in order of creation."""
        return tuple(self._records.values())

    def with_script(self, request: JobRequest) -> JobRequest:
        """The same: nothing is left out here."""
        return request

    def save(self, record: ChainRecord, *entries: Entry) -> None:
        """Add or replace the record of one chain."""
        self._records[record.chain.chain_id] = record
        for entry in entries:
            self.journal.write(entry)


class NoFiles:
    """A world without done-files."""

    def refresh(self, wanted: Collection[WatchedFile], anew: Collection[WatchedFile] = ()) -> None:
        """Nothing is to be checked."""
        del wanted, anew

    def state(self, file: WatchedFile) -> FileState:
        """Report every file as absent."""
        del file
        return FileState(Presence.ABSENT)
