"""Files of separated values, read cell by cell with their place in the file."""

from __future__ import annotations

import csv
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage.documenttext import parse_json
from mirage.domain.errors import TraceError
from mirage.trace.lines import split_lines, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Row:
    """One line of data: its cells by the names of their columns."""

    path: str
    line: int
    cells: dict[str, str]

    def text(self, column: str) -> str:
        """A cell, stripped; "" where it is empty."""
        return self.cells[column].strip()

    def number(self, column: str, least: float = 0.0, default: float | None = None) -> float:
        """A finite number that is not below ``least``; ``default``, if any, where the cell is empty."""
        text = self.text(column)
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            raise self.fault(column, f"{text!r} is no number") from None
        if not math.isfinite(value) or value < least:
            raise self.fault(column, f"{text} must be a finite number of at least {least:g}")
        return value

    def whole(self, column: str, least: int = 0, default: int | None = None, most: int = 2**31 - 1) -> int:
        """As ``number``, whole and not above ``most``."""
        value = self.number(column, least, default)
        if value != int(value) or value > most:
            raise self.fault(column, f"{self.text(column)} must be a whole number from {least} to {most}")
        return int(value)

    def fault(self, column: str, problem: str) -> TraceError:
        """What is wrong with a cell, to be raised."""
        return TraceError(self.path, self.line, column, problem)


@dataclass(frozen=True, slots=True)
class Sheet:
    """The lines of one file."""

    path: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def need(self, *columns: str) -> None:
        """Raise ``TraceError`` where the file lacks one of the columns."""
        missing = [column for column in columns if column not in self.columns]
        if missing:
            found = ", ".join(self.columns) or "none"
            raise TraceError(
                self.path, 1, missing[0], f"there is no such column; those there are: {found}. Is it that format?"
            )

    def names(self, column: str) -> tuple[str, ...]:
        """A column of names; raises ``TraceError`` for an empty one and for the second of two that are alike."""
        seen: dict[str, int] = {}
        for row in self.rows:
            name = row.text(column)
            if not name:
                raise row.fault(column, "missing")
            if seen.setdefault(name, row.line) != row.line:
                raise row.fault(column, f"{name!r} is also that of line {seen[name]}")
        return tuple(seen)


def read_bytes(path: str | Path) -> bytes:
    """A file's content, unpacked where it is gzip; raises ``TraceError``."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise TraceError(str(path), 0, "", f"cannot be read: {error.strerror or error}") from error
    return unpack(data, str(path))


def read_json(path: str | Path) -> Any:
    """A JSON document; raises ``TraceError``, also for an object that has a name twice."""
    try:
        return parse_json(read_bytes(path), _once, most=None)
    except ValueError as error:
        raise TraceError(str(path), getattr(error, "lineno", 0), "", f"no JSON: {error}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, value in pairs:
        if name in read:
            raise ValueError(f"{name!r} is there twice")
        read[name] = value
    return read


def finite(value: object) -> float | None:
    """A number of JSON as a float of at least 0; ``None`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def read_sheet(path: str | Path) -> Sheet:
    """A file of comma-separated values with a line of names; raises ``TraceError``, also for ragged lines."""
    lines, _ = split_lines(read_bytes(path))
    read = csv.reader(lines, strict=True)
    try:
        columns = tuple(name.strip() for name in next(read))
        _refuse_twice(columns, str(path))
        rows = tuple(_rows(read, columns, str(path)))
    except csv.Error as error:
        raise TraceError(str(path), read.line_num, "", f"no comma-separated values: {error}") from error
    if not rows:
        raise TraceError(str(path), 0, "", "there is no row below the names of the columns")
    return Sheet(str(path), columns, rows)


def _refuse_twice(columns: tuple[str, ...], path: str) -> None:
    twice = next((name for name, count in Counter(columns).items() if count > 1), None)
    if twice is not None:
        raise TraceError(path, 1, twice, "there are two columns of that name")


def _rows(read: Iterator[list[str]], columns: tuple[str, ...], path: str) -> Iterator[Row]:
    for cells in read:
        line: int = read.line_num  # type: ignore[attr-defined]  # csv's readers count lines; typeshed hides it
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(columns):
            raise TraceError(path, line, "", f"{len(cells)} cells where the columns are {len(columns)}")
        yield Row(path, line, dict(zip(columns, cells, strict=True)))
