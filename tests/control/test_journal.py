"""Journals keep what was written, in order."""

from __future__ import annotations

import json

from mirage.control.journal import JsonLinesJournal, MemoryJournal
from mirage.domain.chain import ChainId
from mirage.domain.journal import Entry, EntryKind

ENTRIES = [
    Entry(5, ChainId("a"), EntryKind.DECISION, "hold: zwölf Stunden"),
    Entry(6, None, EntryKind.TROUBLE, 'two\nlines and "quotes"'),
]


def test_lines_of_json_survive_reopening(tmp_path) -> None:
    path = tmp_path / "journal.jsonl"
    for entry in ENTRIES:
        journal = JsonLinesJournal(path)
        journal.write(entry)
        journal.close()
    read = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [Entry(r["time"], r["chain"], EntryKind(r["kind"]), r["text"]) for r in read] == ENTRIES


def test_memory_sorts_by_kind() -> None:
    journal = MemoryJournal()
    for entry in ENTRIES:
        journal.write(entry)
    assert journal.texts(EntryKind.TROUBLE) == (ENTRIES[1].text,)
    assert journal.entries == ENTRIES
