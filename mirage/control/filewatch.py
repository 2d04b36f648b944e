"""The files of all chains, as the cycle sees them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.chain import ChainId, ChainStatus
from mirage.domain.files import NOT_CHECKED, Presence
from mirage.domain.journal import Entry, EntryKind
from mirage.provisioner.failures import failed_last
from mirage.provisioner.gates import (
    done_file,
    ended_by_now,
    may_be_stale,
    ready_file,
    ready_file_of_last,
    suspect_directory,
    watched_files,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirage.control.stores import ChangedEntries
    from mirage.domain.chain import ChainRecord
    from mirage.domain.files import WatchedFile
    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import Snapshot
    from mirage.ports import Files


RECHECK: Seconds = 5
"""After that the loop asks again for the result of a check."""
_NOT_FOUND = "working directory of the links not found"
_LONGEST_SHOWN = 400
"""Characters of a directory that a reason quotes."""


class FileWatch:
    """Files are checked at the border; here is what that means for chains."""

    def __init__(self, files: Files, journal: ChangedEntries) -> None:
        self._files = files
        self._journal = journal
        self.unknown: Mapping[ChainId, str] = {}
        """Of which chains a file cannot be checked, and why."""
        self.unready: frozenset[ChainId] = frozenset()
        """Chains whose links report when they are ready, and whose running link has not done so."""
        self._missing: Mapping[ChainId, str] = {}
        """Working directories that are not there, of chains whose links fail right at their start."""

    def refresh(self, records: Sequence[ChainRecord], snapshot: Snapshot, now: Seconds) -> None:
        """Once per cycle: have all files checked that chains may ask for, and directories of links that fail."""
        watched = {record.chain.chain_id: watched_files(record) for record in records}
        suspect = {record.chain.chain_id: suspect_directory(record, snapshot) for record in records}
        directories = {chain_id: directory for chain_id, directory in suspect.items() if directory is not None}
        wanted = [*(file for files in watched.values() for file in files), *directories.values()]
        self._files.refresh(wanted, anew=[file for record in records for file in ended_by_now(record, snapshot)])
        self._missing = {
            chain_id: directory.path[:_LONGEST_SHOWN]
            for chain_id, directory in directories.items()
            if self._files.state(directory).presence is Presence.ABSENT
        }
        for chain_id, path in self._missing.items():
            self._journal.write(Entry(now, chain_id, EntryKind.TROUBLE, f"{_NOT_FOUND}: {path}"))
        before, unknown = self.unknown, dict[ChainId, str]()
        for chain_id, files in watched.items():
            reasons = dict.fromkeys(self._files.state(file).reason for file in files)
            if text := "; ".join(filter(None, reasons)):
                unknown[chain_id] = text
            self._tell(chain_id, before.get(chain_id, ""), text, now)
        self.unknown = unknown
        self.unready = frozenset(record.chain.chain_id for record in records if self._is_unready(record))

    def done(self, record: ChainRecord) -> bool:
        """Whether the file that ends the chain has appeared."""
        return self._has_appeared(done_file(record.chain))

    def awaited(self, record: ChainRecord) -> str:
        """Why no link may follow one that has ended: the link may have written the done file; empty: one may."""
        file = done_file(record.chain)
        if file is None or record.live or not record.links or self._files.state(file) != NOT_CHECKED:
            return ""
        return "the check of the done file is still running"

    def ready(self, record: ChainRecord, now: Seconds) -> bool:
        """Whether the running successor has reported that it is ready."""
        return self._has_appeared(ready_file(record)) and not may_be_stale(record, now)

    def with_cause(self, before: ChainRecord, after: ChainRecord) -> ChainRecord:
        """``after``; where failures of links have just ended or paused it, with the directory that is missing."""
        ended = after.status is not before.status and after.status in (ChainStatus.STOPPED, ChainStatus.PAUSED)
        path = self._missing.get(after.chain.chain_id) if ended else None
        if path is None or not failed_last(after):
            return after
        return replace(after, reason=f"{after.reason}; {_NOT_FOUND}: {path}")

    def _is_unready(self, record: ChainRecord) -> bool:
        file = None if record.over else ready_file_of_last(record)
        return file is not None and self._files.state(file).presence is Presence.ABSENT

    def _has_appeared(self, file: WatchedFile | None) -> bool:
        return file is not None and self._files.state(file).presence is Presence.PRESENT

    def _tell(self, chain_id: ChainId, before: str, text: str, now: Seconds) -> None:
        if text:
            about = f"cannot check the done file or handover file: {text}"
            self._journal.write(Entry(now, chain_id, EntryKind.TROUBLE, about))
        elif before and not text:
            about = "the done file and handover file can be checked again"
            self._journal.write(Entry(now, chain_id, EntryKind.EVENT, about))
