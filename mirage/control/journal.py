"""A journal in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirage.domain.journal import Entry, EntryKind


class MemoryJournal:
    """Keeps every entry for the reader in the same process."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def write(self, entry: Entry) -> None:
        """Append one entry."""
        self.entries.append(entry)

    def texts(self, kind: EntryKind) -> tuple[str, ...]:
        """The sentences of one kind, in order."""
        return tuple(entry.text for entry in self.entries if entry.kind is kind)
