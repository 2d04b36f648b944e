"""Directory of an evaluation: finished episodes are stored under a mark of everything that they depend on.

``played/SETTING/RUN-MARK/PART.json``. A change of the mark (another span, cluster, trace, model) leads to a new
run next to the stored one; without a change the stored result is used.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from mirage.documenttext import parse_own_json
from mirage.training.evaluation.playing import PROBES, Forecast, Played
from mirage.wholefile import write_anew

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirage.training.evaluation.plan import Run, Setting

FORMAT = 1
_DIGITS = 12


def mark_of(circumstances: Mapping[str, object]) -> str:
    """A short mark of circumstances: equal where they are (SHA-256 of their JSON text, hex, truncated)."""
    return sha256(json.dumps(circumstances, sort_keys=True).encode()).hexdigest()[:_DIGITS]


@dataclass(frozen=True, slots=True)
class Cell:
    """One run on one setting."""

    setting: Setting
    run: Run
    circumstances: tuple[tuple[str, object], ...]
    """Everything that its outcomes depend on, besides the code."""

    @property
    def place(self) -> Path:
        """Its directory, relative to the evaluation's."""
        mark = mark_of(dict(self.circumstances) | {"format": FORMAT, "probes": PROBES})
        setting = f"{self.setting.cluster_nodes}-nodes-{self.setting.nodes}"
        return Path("played") / setting / f"{quote(self.run.label, safe='')}-{mark}"


def read_part(folder: Path, cell: Cell, numbers: Sequence[int]) -> list[Played] | None:
    """The stored episodes of these numbers; ``None`` where they are missing or incomplete."""
    try:
        document = parse_own_json(_path(folder, cell, numbers).read_bytes())
        episodes = [_played(one) for one in document["episodes"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return episodes if [one.number for one in episodes] == list(numbers) else None


def write_part(folder: Path, cell: Cell, episodes: Sequence[Played]) -> None:
    """Store episodes, completely or not at all."""
    path = _path(folder, cell, [one.number for one in episodes])
    document = {
        "circumstances": dict(cell.circumstances) | {"run": cell.run.label},
        "episodes": [asdict(one) for one in episodes],
    }
    write_result(path, json.dumps(document) + "\n")


def write_result(path: Path, text: str) -> None:
    """Write a file atomically, and create its directory if necessary: no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_anew(path, text.encode())


def _path(folder: Path, cell: Cell, numbers: Sequence[int]) -> Path:
    return folder / cell.place / f"{numbers[0]:05d}-{numbers[-1]:05d}.json"


def _played(document: dict[str, Any]) -> Played:
    forecasts = tuple(
        Forecast(one["lead"], tuple(one["levels"]), tuple(one["waits"]), one["wait"])
        for one in document["forecasts"]
    )
    return Played(**(document | {"troubles": tuple(document["troubles"]), "forecasts": forecasts}))
