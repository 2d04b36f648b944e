"""Tables of docs/benchmarks as numbers: the plots show the figures of these tables and nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_TO = "\N{EN DASH}"
_NUMBER = r"-?\d[\d,]*\.?\d*"
_INTERVAL = re.compile(rf"({_NUMBER})[^(\d]*\(({_NUMBER})\s*(?:{_TO}|to)\s*({_NUMBER})\)")


class NoSuchTable(LookupError):
    """No benchmark page has such a table, row or column; the message lists the columns that exist."""


def benchmark_text(root: Path) -> str:
    """Return all pages of docs/benchmarks of the repository at ``root`` as one text, sorted by name."""
    pages = sorted((root / "docs" / "benchmarks").glob("*.md"))
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure with its interval; where none is given both ends are the figure itself."""

    value: float
    low: float
    high: float

    @classmethod
    def read(cls, cell: str) -> Measured | None:
        """From a cell such as ``8.28 (4.85 to 12.6)`` or ``66 %``; ``None`` where it holds no number."""
        text = cell.replace("\N{MINUS SIGN}", "-")
        if found := _INTERVAL.search(text):
            value, low, high = (_number(each) for each in found.groups())
            return cls(value, low, high)
        if single := re.search(_NUMBER, text):
            return cls(*[_number(single[0])] * 3)
        return None


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as they are written, without the signs of Markdown."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def labels(self) -> list[str]:
        """The first cells."""
        return [row[0] for row in self.rows]

    def column(self, name: str) -> list[Measured | None]:
        """Figures of the first column whose name begins so. Raises ``NoSuchTable``."""
        found = [index for index, column in enumerate(self.columns) if column.startswith(name)]
        if not found:
            raise NoSuchTable(f"no column begins with {name!r}: {', '.join(self.columns)}")
        return [Measured.read(row[found[0]]) for row in self.rows]


def table_below(text: str, words: str) -> Table:
    """The first table after the first place where ``words`` stand. Raises ``NoSuchTable``."""
    _, found, rest = text.partition(words)
    lines = re.search(r"(?:^\|.*\|$\n?){3,}", rest, re.MULTILINE)
    if not found or lines is None:
        raise NoSuchTable(f"no benchmark page has a table below {words!r}")
    heading, _, *rows = (_cells(line) for line in lines[0].splitlines())
    return Table(heading, tuple(rows))


def _cells(line: str) -> tuple[str, ...]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return tuple(_unmarked(cell) for cell in re.split(r"(?<!\\)\|", inner))


def _unmarked(cell: str) -> str:
    return re.sub(r"\*\*|`", "", cell).replace("\\|", "|").strip()


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def finite(values: Sequence[Measured | None]) -> list[Measured]:
    """Of a column that must be full. Raises ``NoSuchTable``."""
    if any(value is None for value in values):
        raise NoSuchTable("a figure is missing in a column that must be full")
    return [value for value in values if value is not None]
