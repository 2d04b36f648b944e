"""Journals: one in memory, and one that drops repeated entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.journal import EntryKind

if TYPE_CHECKING:
    from mirage.domain.chain import ChainId
    from mirage.domain.journal import Entry
    from mirage.ports import Journal

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
