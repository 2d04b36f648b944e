"""Rows of columns that Slurm's commands print in our format, kept distinct from text that users write.

Cells end in ``CELL``, rows in a mark that is drawn again for each query: a job whose name or comment holds line
breaks, cell ends or a whole forged row changes nothing but what is read as its name. The heading proves that the
command came so far, the mark at the end that the last row is whole.

A command gets the mark in its environment, never in its arguments: every user of the machine can read the
arguments of a process, and a job's comment can be changed before the command has its answer. ``squeue`` and
``sinfo`` take their formats from the environment. ``sacct`` takes only the format of times from there: each of its
rows ends in a time, the submission's, which ends in the mark.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.errors import BadSpelling

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

Int64 = NDArray[np.int64]
Reader = Callable[[str], int]
CELL = "\x1f"

_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)

UNREADABLE = -(1 << 62)
"""Stands for a cell that could not be read; no such number is ever printed."""


def new_mark() -> str:
    """Return an end of row that no user can have written into a job. For the environment of one command."""
    return f"\x1e{secrets.token_hex(6)}"


@dataclass(frozen=True, slots=True)
class Rows:
    """The cells by column, and the rows that have another number of cells."""

    columns: tuple[tuple[str, ...], ...]
    broken: tuple[str, ...]
    """Text of the rows that could not be cut."""

    def __len__(self) -> int:
        return len(self.columns[0])


def split_rows(text: str, fields: Sequence[str], mark: str, free: int = 0) -> Rows:
    """Cut what a command printed, heading first, into ``fields``. Raises ``BadSpelling`` when it is not whole.

    The last ``free`` fields are users' own text. Where that holds ends of cells, the first of those fields has all
    of it and the others are empty; the fields before are Slurm's and stay true.
    """
    end, width = f"{mark}\n", len(fields)
    *pieces, rest = text.split(end)
    if rest:
        raise BadSpelling(rest, "the answer is cut off, or not in the format asked for")
    if not pieces or pieces[0].count(CELL) != width - 1:
        raise BadSpelling(text[:200], f"expected a heading of {width} columns")
    del pieces[0]
    if pieces and all(piece.count(CELL) == width - 1 for piece in pieces):
        # Nearly always: no list for each of a hundred thousand rows.
        cells = CELL.join(pieces).split(CELL)
        return Rows(tuple(tuple(cells[k::width]) for k in range(width)), ())
    rows = [piece.split(CELL) for piece in pieces]
    if free:
        rows = [cells if len(cells) <= width else _gathered(cells, width, free) for cells in rows]
    broken = [piece for piece, cells in zip(pieces, rows, strict=True) if len(cells) != width]
    if broken:
        rows = [cells for cells in rows if len(cells) == width]
    columns = tuple(zip(*rows, strict=True)) if rows else ((),) * width
    return Rows(columns, tuple(broken))


def _gathered(cells: list[str], width: int, free: int, behind: int = 0) -> list[str]:
    """The cells of a row that has too many: ``free`` ones hold users' text, and ``behind`` come after those."""
    first, last = width - free - behind, len(cells) - behind
    return [*cells[:first], CELL.join(cells[first:last]), *([""] * (free - 1)), *cells[last:]]


def numbers(cells: Sequence[str], read: Reader) -> Int64:
    """Each cell as ``read`` has it, ``UNREADABLE`` where it raises ``BadSpelling`` or ``ValueError``.

    Equal cells are read once.
    """
    meaning = {cell: _read(cell, read) for cell in set(cells)}
    return np.fromiter(map(meaning.__getitem__, cells), dtype=np.int64, count=len(cells))


def _read(cell: str, read: Reader) -> int:
    try:
        return read(cell)
    except (BadSpelling, ValueError):
        return UNREADABLE


def whole_numbers(cells: Sequence[str], words: Collection[str] = (), meaning: int = 0) -> Int64:
    """Each cell as a number; ``words`` stand for ``meaning``, anything else is ``UNREADABLE``.

    For columns in which nearly every cell is another: they are read as they come.
    """
    digits = "".join(cells)
    if digits.isascii() and digits.isdecimal() and all(cells):
        with suppress(ValueError, OverflowError):
            return np.fromiter(map(int, cells), dtype=np.int64, count=len(cells))
    digits = "".join([cell for cell in cells if cell not in words])
    if digits.isascii() and digits.isdecimal():
        with suppress(ValueError, OverflowError):
            read = (meaning if cell in words else int(cell) for cell in cells)
            return np.fromiter(read, dtype=np.int64, count=len(cells))
    return numbers(cells, lambda cell: meaning if cell in words else _whole(cell))


def _whole(cell: str) -> int:
    if _NUMBER.fullmatch(cell) is None:
        raise BadSpelling(cell, "is not a whole number")
    return int(cell)


def codes(cells: Sequence[str]) -> tuple[Int64, tuple[str, ...]]:
    """Each cell as its number in a vocabulary, in alphabetical order, and the vocabulary."""
    names = tuple(sorted(set(cells)))
    numbers_of = {name: k for k, name in enumerate(names)}
    return np.fromiter(map(numbers_of.__getitem__, cells), dtype=np.int64, count=len(cells)), names


def cut_parsable(text: str, fields: Sequence[str], mark: str, free: int) -> Rows:
    """Cut what ``sacct --parsable`` printed, heading first, into ``fields``; every time in it ends in ``mark``.

    The last field is a time that every job has; the ``free`` fields before it are users' own text, as in
    ``split_rows``, and the field before those is no time. Raises ``BadSpelling`` when the answer is not whole.
    """
    heading = "".join(f"{field}{CELL}" for field in fields) + "\n"
    *pieces, rest = text.removeprefix(heading).split(f"{mark}{CELL}\n")
    if rest or not text.startswith(heading):
        raise BadSpelling(text[-200:], "the answer is cut off, or not in the format asked for")
    width = len(fields)
    rows = [piece.replace(mark, "").split(CELL) for piece in pieces]
    rows = [cells if len(cells) <= width else _gathered(cells, width, free, behind=1) for cells in rows]
    broken = [piece for piece, cells in zip(pieces, rows, strict=True) if len(cells) != width]
    whole = [cells for cells in rows if len(cells) == width]
    return Rows(tuple(zip(*whole, strict=True)) if whole else ((),) * width, tuple(broken))
