"""Recorded output: one file per query, and ``index.json`` with the queries and their exit codes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(slots=True)
class Recorder:
    """Writes below ``folder``; the index is keyed by the file's path in it."""

    folder: Path
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)

    def emptied(self) -> Recorder:
        """Delete earlier recordings of this recorder; other files stay."""
        index = self.folder / "index.json"
        before = json.loads(index.read_text(encoding="utf-8"))["recordings"] if index.exists() else {}
        for name in before:
            (self.folder / name).unlink(missing_ok=True)
        return self

    def keep(self, name: str, answer: bytes, about: dict[str, Any]) -> None:
        """Write one output unchanged."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(answer)
        self.entries[name] = about

    def finish(self, about: dict[str, Any]) -> None:
        """Write the index, with what holds for all entries."""
        document = {**about, "recordings": dict(sorted(self.entries.items()))}
        text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
        (self.folder / "index.json").write_text(text, encoding="utf-8")
