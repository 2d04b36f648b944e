"""One table of a benchmark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    """A title, and labels with values."""

    title: str
    rows: tuple[tuple[str, str], ...]
