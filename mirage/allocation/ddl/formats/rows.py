"""Read files of separated values cell by cell, with the place of each in the file."""

from __future__ import annotations

import csv
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage.datafiles import split_lines, unpack
from mirage.documentreading import parse_json
from mirage.domain.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class DataRow:
    """One line of data: its cells by column name."""

    path: str
    line: int
    cells: dict[str, str]

    def text(self, column: str) -> str:
        """A cell, stripped; "" where it is empty."""
        return self.cells[column].strip()

    def number(self, column: str, least: float = 0.0, default: float | None = None) -> float:
        """A finite number of at least ``least``; ``default``, if given, where the cell is empty."""
        text = self.text(column)
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            raise self.fault(column, f"{text!r} is not a number") from None
        if not math.isfinite(value) or value < least:
            raise self.fault(column, f"{text} must be a finite number of at least {least:g}")
        return value

    def whole(self, column: str, least: int = 0, default: int | None = None, most: int = 2**31 - 1) -> int:
        """As ``number``, an integer of at most ``most``."""
        value = self.number(column, least, default)
        if value != int(value) or value > most:
            raise self.fault(column, f"{self.text(column)} must be an integer from {least} to {most}")
        return int(value)

    def fault(self, column: str, problem: str) -> TraceError:
        """The error of a cell, to be raised."""
        return TraceError(self.path, self.line, column, problem)


@dataclass(frozen=True, slots=True)
class Sheet:
    """The lines of one file."""

    path: str
    columns: tuple[str, ...]
    rows: tuple[DataRow, ...]

    def need(self, *columns: str) -> None:
        """Raise ``TraceError`` where the file lacks one of the columns."""
        missing = [column for column in columns if column not in self.columns]
        if missing:
            found = ", ".join(self.columns) or "none"
            raise TraceError(
                self.path, 1, missing[0], f"no such column; the columns are {found}. Check the format"
            )

    def names(self, column: str) -> tuple[str, ...]:
        """A column of names; raises ``TraceError`` for empty and duplicate names."""
        seen: dict[str, int] = {}
        for row in self.rows:
            name = row.text(column)
            if not name:
                raise row.fault(column, "missing")
            if seen.setdefault(name, row.line) != row.line:
                raise row.fault(column, f"{name!r} is also in line {seen[name]}")
        return tuple(seen)


def read_bytes(path: str | Path) -> bytes:
    """Content of a file, unpacked if it is gzip; raises ``TraceError``."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise TraceError(str(path), 0, "", f"cannot be read: {error.strerror or error}") from error
    return unpack(data, str(path))


def read_json(path: str | Path) -> Any:
    """A JSON document; raises ``TraceError``, also for an object with a duplicate name."""
    try:
        return parse_json(read_bytes(path), _once, most=None)
    except ValueError as error:
        raise TraceError(str(path), getattr(error, "lineno", 0), "", f"invalid JSON: {error}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, value in pairs:
        if name in read:
            raise ValueError(f"duplicate name {name!r}")
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
    """A file of comma-separated values with a header line; raises ``TraceError``, also for ragged lines."""
    lines, _ = split_lines(read_bytes(path))
    read = csv.reader(lines, strict=True)
    try:
        columns = tuple(name.strip() for name in next(read))
        _refuse_twice(columns, str(path))
        rows = tuple(_rows(read, columns, str(path)))
    except csv.Error as error:
        raise TraceError(str(path), read.line_num, "", f"invalid CSV: {error}") from error
    if not rows:
        raise TraceError(str(path), 0, "", "no rows below the header line")
    return Sheet(str(path), columns, rows)


def _refuse_twice(columns: tuple[str, ...], path: str) -> None:
    twice = next((name for name, count in Counter(columns).items() if count > 1), None)
    if twice is not None:
        raise TraceError(path, 1, twice, "duplicate column name")


def _rows(read: Iterator[list[str]], columns: tuple[str, ...], path: str) -> Iterator[DataRow]:
    for cells in read:
        line: int = read.line_num  # type: ignore[attr-defined]  # csv's readers count lines; typeshed hides it
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(columns):
            raise TraceError(path, line, "", f"{len(cells)} cells, but {len(columns)} columns")
        yield DataRow(path, line, dict(zip(columns, cells, strict=True)))
