"""Recorded answers of real Slurms, short enough that an edit hits something."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ASSETS = Path(__file__).resolve().parents[1] / "assets"
VERSIONS = ("22.05.8", "24.11.5", "26.05.5")
_LONGEST = 12_000


def mark(version: str) -> str:
    """The end of row of this version's recordings."""
    return str(json.loads((ASSETS / version / "index.json").read_text())["mark"])


def printed(name: str) -> tuple[str, ...]:
    """One command's output by each version that printed it, cut at a line's end."""
    found = [ASSETS / version / f"{name}.txt" for version in VERSIONS]
    whole = [path.read_bytes().decode("utf-8", "surrogateescape") for path in found if path.exists()]
    return tuple(text[: text.rfind("\n", 0, _LONGEST) + 1] for text in whole)


def marked(name: str, most: int, cell: str = "") -> tuple[str, ...]:
    """The same in a format of ours, each with ``MARK`` as its mark: heading and at most ``most`` rows.

    ``cell``: what stands between the mark and the end of a row.
    """
    found = []
    for version in VERSIONS:
        text = (ASSETS / version / f"{name}.txt").read_bytes().decode("utf-8", "surrogateescape")
        end = f"{MARK}{cell}\n"
        pieces = text.replace(mark(version), MARK).split(end)[:-1]
        found.append(end.join([*pieces[: most + 1], ""]))
    return tuple(found)


MARK = "\x1e0123456789ab"


def rest(name: str, most: int = 4) -> dict[int, Any]:
    """One answer of slurmrestd by the number of its API's version; lists inside cut to ``most``."""
    found = {}
    for path in sorted(ASSETS.glob(f"*/rest/v0.0.*/{name}.json")):
        try:
            document = json.loads(path.read_text())
        except ValueError:  # some rejections are words
            continue
        found[int(path.parent.name.rpartition(".")[2])] = {
            key: value[:most] if isinstance(value, list) else value for key, value in document.items()
        }
    return found
