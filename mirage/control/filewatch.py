"""The files of all chains, as the cycle sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.chain import ChainId
from mirage.domain.files import Presence
from mirage.domain.journal import Entry, EntryKind
from mirage.provisioner.watched import done_file, ready_file, watched_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirage.control.journal import ChangedEntries
    from mirage.domain.chain import ChainRecord
    from mirage.domain.files import WatchedFile
    from mirage.domain.job import Seconds
    from mirage.ports import Files


class FileWatch:
    """Files are checked at the border; here is what that means for chains."""

    def __init__(self, files: Files, journal: ChangedEntries) -> None:
        self._files = files
        self._journal = journal
        self.unknown: Mapping[ChainId, str] = {}
        """Of which chains a file cannot be checked, and why."""

    def refresh(self, records: Sequence[ChainRecord], now: Seconds) -> None:
        """Once per cycle: have all files checked that chains may ask for."""
        watched = {record.chain.chain_id: watched_files(record) for record in records}
        self._files.refresh([file for files in watched.values() for file in files])
        before, unknown = self.unknown, dict[ChainId, str]()
        for chain_id, files in watched.items():
            reasons = dict.fromkeys(self._files.state(file).reason for file in files)
            if text := "; ".join(filter(None, reasons)):
                unknown[chain_id] = text
            self._tell(chain_id, before.get(chain_id, ""), text, now)
        self.unknown = unknown

    def done(self, record: ChainRecord) -> bool:
        """Whether the file that ends the chain has appeared."""
        return self._has_appeared(done_file(record.chain))

    def ready(self, record: ChainRecord) -> bool:
        """Whether the running successor has said that it can take over."""
        return self._has_appeared(ready_file(record))

    def _has_appeared(self, file: WatchedFile | None) -> bool:
        return file is not None and self._files.state(file).presence is Presence.PRESENT

    def _tell(self, chain_id: ChainId, before: str, text: str, now: Seconds) -> None:
        if text:
            about = f"the done-file or handover file cannot be checked: {text}"
            self._journal.write(Entry(now, chain_id, EntryKind.TROUBLE, about))
        elif before and not text:
            about = "the done-file and handover file can be checked again"
            self._journal.write(Entry(now, chain_id, EntryKind.EVENT, about))
