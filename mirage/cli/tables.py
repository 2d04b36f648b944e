"""Tables like those of ``squeue``: columns by letter or name, times, and a warning of old data.

In a pipe a table has full-width columns. On a terminal, lines are cut at its width and states are coloured, unless
``NO_COLOR`` is set.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import typer

from mirage.cli.printing import in_local_time, show
from mirage.domain.texts import printable
from mirage.slurm.duration import spell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NOTHING = "-"


def instant_of(text: str | None) -> datetime | None:
    """Parse a time of the API; ``None`` for no time."""
    return datetime.fromisoformat(text) if text else None


def clock(instant: datetime | None) -> str:
    """Format a time in the local time zone, as Slurm prints it; ``-`` for no time."""
    return instant.astimezone().strftime("%Y-%m-%dT%H:%M:%S") if instant else NOTHING


def span(seconds: int | float | None) -> str:
    """Format a duration as Slurm does; ``-`` if it is unknown."""
    return NOTHING if seconds is None else spell(max(0, round(seconds)))


def signed(seconds: int) -> str:
    """Format a signed duration: ``-00:20:00``."""
    return f"{'-' if seconds < 0 else ''}{spell(abs(seconds))}"


def between(earlier: datetime | None, later: datetime | None) -> int | None:
    """Return the seconds between two times, at least 0; ``None`` if one is unknown."""
    if earlier is None or later is None:
        return None
    return max(0, int((later - earlier).total_seconds()))


def words(seconds: float) -> str:
    """Format a rounded duration: ``40 s``, ``12 min``, ``3 h 20 min``, ``2 days 4 h``."""
    seconds = max(0, round(seconds))
    if seconds < 90:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes and hours < 10 else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} days {hours} h" if hours else f"{days} days"


STANDS_BY = "stands by: "
"""Prefix of the daemon's state text while it does not decide; the reason follows."""


def tell_silence(since: datetime | None, sentence: str = "") -> None:
    """Warn on stderr if Slurm does not reply (``since`` when) or the daemon is on standby."""
    if sentence.startswith(STANDS_BY):
        show(f"The daemon {sentence}; the data shown is the last stored state.", err=True)
    if since:
        text = f"Slurm has not replied since {clock(since)}; the data shown is of that time."
        show(text, err=True)


T = TypeVar("T")
Row = tuple[str, ...]

_FIELD = re.compile(r"%(\.?)(\d*)(\w)")
_NAMED = re.compile(r"([\w-]+)(?::(\.?)(\d+))?")
_COLOURS = {
    "UP": "green", "RUNNING": "green", "PENDING": "yellow", "PAUSED": "yellow", "STARTING": "yellow",
    "DOWN": "red", "FAILED": "red", "NODE_FAIL": "red", "DONE": "bright_black", "COMPLETED": "bright_black",
}  # fmt: skip


class BadFormat(typer.BadParameter):
    """A format or sort key names an unknown column; the message lists the known ones."""


@dataclass(frozen=True, slots=True)
class TableColumn(Generic[T]):
    """One field of an item."""

    name: str
    """Long name; ``-`` equals ``_``, case is ignored."""
    letter: str
    """squeue's letter, if it means the same; else empty."""
    heading: str
    """Also accepted as a name."""
    show: Callable[[T], str]
    key: Callable[[T], Any] | None = None
    """Sort key; ``None``: the text shown."""

    def order(self, item: T) -> Any:
        """Return a comparable value; unknown values sort last."""
        value = self.key(item) if self.key else self.show(item)
        return (value is None, 0 if value is None else value)


@dataclass(frozen=True, slots=True)
class _Piece(Generic[T]):
    """A column of a format, with the text before it."""

    before: str
    column: TableColumn[T]
    width: int = 0
    """0: width of the content."""
    right: bool = False

    def pad(self, text: str) -> str:
        """Cut or fill to the width, as squeue does."""
        if not self.width:
            return self.before + text
        cut = text[: self.width]
        return self.before + (cut.rjust(self.width) if self.right else cut.ljust(self.width))


@dataclass(frozen=True, slots=True)
class Columns(Generic[T]):
    """All columns of one kind of item."""

    known: tuple[TableColumn[T], ...]
    default: str
    """Names, comma-separated."""

    def check(self, layout: str, keys: str) -> None:
        """Raise ``BadFormat`` for an invalid format or invalid sort keys."""
        self.print((), layout, heading=False)
        self.sorted((), keys)

    def print(self, items: Sequence[T], layout: str = "", *, heading: bool = True) -> None:
        """Print one line per item. ``layout``: squeue's letters (``%.18i %T``) or a list of names; empty: default.

        Raises ``BadFormat``.
        """
        if "%" in layout:
            self._print_spelled(items, layout, heading=heading)
            return
        pieces = self._named(layout or self.default)
        rows: list[Row] = [tuple(piece.column.heading for piece in pieces)] if heading else []
        rows += [tuple(printable(piece.column.show(item)) for piece in pieces) for item in items]
        print_table([tuple(_sized(cell, piece) for cell, piece in zip(row, pieces, strict=True)) for row in rows])

    def sorted(self, items: Sequence[T], keys: str) -> list[T]:
        """Sort by squeue's keys (``P,-L``) or names; ``-`` before a key: descending.

        Raises ``BadFormat``.
        """
        found = list(items)
        for key in reversed([key.strip() for key in keys.split(",") if key.strip()]):
            column = self._column(key.lstrip("+-"))
            found.sort(key=column.order, reverse=key.startswith("-"))
        return found

    def _print_spelled(self, items: Sequence[T], layout: str, *, heading: bool) -> None:
        pieces, rest = self._spelled(layout)
        if heading:
            typer.echo("".join(piece.pad(piece.column.heading) for piece in pieces) + rest)
        for item in items:
            typer.echo("".join(piece.pad(printable(piece.column.show(item))) for piece in pieces) + rest)

    def _spelled(self, layout: str) -> tuple[list[_Piece[T]], str]:
        pieces, at = list[_Piece[T]](), 0
        for found in _FIELD.finditer(layout):
            column = self._column(found[3])
            pieces.append(_Piece(layout[at : found.start()], column, int(found[2] or 0), right=bool(found[1])))
            at = found.end()
        return pieces, layout[at:]

    def _named(self, layout: str) -> list[_Piece[T]]:
        pieces = list[_Piece[T]]()
        for name in layout.split(","):
            found = _NAMED.fullmatch(name.strip())
            if found is None:
                raise BadFormat(f"invalid column {name!r}; expected a name such as state or chain:20")
            pieces.append(_Piece("", self._column(found[1]), int(found[3] or 0), right=bool(found[2])))
        return pieces

    def _column(self, name: str) -> TableColumn[T]:
        plain = name.lower().replace("-", "_")
        for column in self.known:
            if name == column.letter or plain in (column.name.replace("-", "_"), column.heading.lower()):
                return column
        raise BadFormat(f"unknown column {name!r}; known columns: {self.legend()}")

    def legend(self) -> str:
        """Return the names of all columns with their letters."""
        return ", ".join(f"{each.name} (%{each.letter})" if each.letter else each.name for each in self.known)


def print_table(rows: Sequence[Row]) -> None:
    """Print rows with aligned columns; on a terminal, cut lines at its width."""
    if not rows:
        return
    rows = [tuple(printable(in_local_time(cell)) for cell in row) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    edge = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    coloured = bool(edge) and not os.environ.get("NO_COLOR")
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        typer.echo(_line([*cells, row[-1]], edge, coloured=coloured), color=coloured or None)


def _line(cells: Sequence[str], edge: int, *, coloured: bool) -> str:
    line, used = "", 0
    for number, cell in enumerate(cells):
        gap = "  " if number else ""
        text = (gap + cell)[: edge - used] if edge else gap + cell
        used += len(text)
        colour = _COLOURS.get(cell.strip().partition(" ")[0]) if coloured else None
        line += typer.style(text, fg=colour) if colour else text
    return line.rstrip()


def _sized(cell: str, piece: _Piece[Any]) -> str:
    return piece.pad(cell) if piece.width else cell
