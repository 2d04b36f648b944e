"""Where recorded answers go: one file an answer, and ``index.json`` that says what was asked and how it went."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(slots=True)
class Recorder:
    """Writes below ``folder``; entries of the index are keyed by the file's path in it."""

    folder: Path
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)

    def emptied(self) -> Recorder:
        """Without what was recorded here before; what others have put here stays."""
        index = self.folder / "index.json"
        before = json.loads(index.read_text(encoding="utf-8"))["recordings"] if index.exists() else {}
        for name in before:
            (self.folder / name).unlink(missing_ok=True)
        return self

    def keep(self, name: str, answer: bytes, about: dict[str, Any]) -> None:
        """One answer, as it came."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(answer)
        self.entries[name] = about

    def finish(self, about: dict[str, Any]) -> None:
        """Write the index, with what holds for all."""
        document = {**about, "recordings": dict(sorted(self.entries.items()))}
        text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
        (self.folder / "index.json").write_text(text, encoding="utf-8")
