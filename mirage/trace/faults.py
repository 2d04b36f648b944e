"""What is wrong with the rows of a trace, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable

Mask = NDArray[np.bool_]


class Strictness(StrEnum):
    """What a bad row does to the import."""

    STRICT = "strict"
    """The first one ends it with a ``TraceError``."""
    LENIENT = "lenient"
    """It is left out, counted and reported."""


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that was left out, and why."""

    line: int
    """1-based line of the file; in a parquet file the 1-based row."""
    field: str
    """Empty: the row as a whole."""
    problem: str


@dataclass(slots=True)
class Faults:
    """Collects the first error of each row while columns are read."""

    path: str
    lines: NDArray[np.int64]
    """Line of each row that was cut into fields."""
    _rows: dict[int, RejectedRow] = field(default_factory=dict)
    _broken: list[RejectedRow] = field(default_factory=list)

    def add(self, row: int, column: str, problem: str) -> None:
        """Note what is wrong with one field of a row."""
        self._rows.setdefault(row, RejectedRow(int(self.lines[row]), column, problem))

    def add_where(self, bad: Mask, column: str, problem: Callable[[int], str]) -> None:
        """Add an error to every row of a mask; ``problem`` returns the text for a row."""
        for row in np.flatnonzero(bad).tolist():
            self.add(row, column, problem(row))

    def add_line(self, line: int, problem: str) -> None:
        """Note a line that could not be cut into fields at all."""
        self._broken.append(RejectedRow(line, "", problem))

    @property
    def good(self) -> Mask:
        """Return the rows without an error so far."""
        good = np.ones(len(self.lines), dtype=bool)
        good[list(self._rows)] = False
        return good

    def settle(self, strictness: Strictness) -> tuple[RejectedRow, ...]:
        """The rejected rows in file order; raises ``TraceError`` for the first one where strict."""
        rejected = sorted([*self._broken, *self._rows.values()], key=lambda row: row.line)
        if rejected and strictness is Strictness.STRICT:
            first = rejected[0]
            raise TraceError(self.path, first.line, first.field, first.problem)
        return tuple(rejected)
