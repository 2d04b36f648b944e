"""Stores that live as long as the process: for replays, training and tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.control.journal import MemoryJournal
from mirage.domain.files import FileState, Presence

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.files import WatchedFile
    from mirage.domain.job import JobRequest
    from mirage.domain.journal import Entry
    from mirage.ports import Journal


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
