"""Journals: in memory, and as lines of JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

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


class JsonLinesJournal:
    """One JSON object a line: ``time``, ``chain`` (or null), ``kind``, ``text``. Lines are never rewritten."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, entry: Entry) -> None:
        """Append one entry and hand it to the operating system."""
        line = {"time": entry.time, "chain": entry.chain, "kind": entry.kind, "text": entry.text}
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
