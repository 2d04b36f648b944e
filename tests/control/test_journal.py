"""Journals keep what was written, in order."""

from __future__ import annotations

from mirage.control.stores import MemoryJournal
from mirage.domain.chain import ChainId
from mirage.domain.journal import Entry, EntryKind

ENTRIES = [
    Entry(5, ChainId("a"), EntryKind.DECISION, "hold: zwölf Stunden"),
    Entry(6, None, EntryKind.TROUBLE, 'two\nlines and "quotes"'),
]


def test_memory_sorts_by_kind() -> None:
    journal = MemoryJournal()
    for entry in ENTRIES:
        journal.write(entry)
    assert journal.texts(EntryKind.TROUBLE) == (ENTRIES[1].text,)
    assert journal.entries == ENTRIES
