"""Cost tables as CSV: one line for each segment and kind of unit.

===================  =======================================================================
``model,piece``      segments of a model, run in the order of their lines
``kind``             kind of unit
``cycles,clock_hz``  may be empty; ``seconds`` was then measured
``seconds``          alone on the unit; empty: this kind cannot run this segment
``compute_seconds``  seconds with an infinitely fast shared memory; at most ``seconds``
``joules``           of one run; 0 where unknown
``dram_bytes``       moved to and from the shared memory
===================  =======================================================================
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.inference.costs.manifest import write_manifest
from mirage.domain.errors import MirageError
from mirage.domain.request import CostTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from mirage.allocation.inference.costs.manifest import Manifest

COLUMNS = ("model", "piece", "kind", "cycles", "clock_hz", "seconds", "compute_seconds", "joules", "dram_bytes")
FIGURES = COLUMNS[3:]
SHOWN = 20
ROUNDING = 1e-6
"""Allowed relative difference between seconds and cycles of one line."""


class CostTableError(MirageError):
    """An invalid table: every problem in it, by line."""

    def __init__(self, where: str, problems: list[str]) -> None:
        more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
        super().__init__("\n  ".join([f"{where}:", *problems[:SHOWN], *more]))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    model: str
    piece: str
    kind: str
    figures: dict[str, float]
    """Empty if one of them is no number, which is reported separately."""


@dataclass(slots=True)
class _Reading:
    """The content read so far; segments and kinds in order of appearance."""

    cells: dict[tuple[str, str, str], _Line] = field(default_factory=dict)
    pieces: dict[str, dict[str, None]] = field(default_factory=dict)
    kinds: dict[str, None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_table(path: Path) -> CostTable:
    """Read the table of a file. Raises ``CostTableError`` with all problems."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return parse_table(str(path), file)
    except (OSError, UnicodeDecodeError) as error:
        raise CostTableError(str(path), [f"cannot be read: {error}"]) from error


def parse_table(where: str, lines: Iterable[str]) -> CostTable:
    """Read a table from lines of CSV. Raises ``CostTableError``."""
    reading = _Reading()
    rows = csv.reader(lines)
    header = next(rows, [])
    if tuple(header) != COLUMNS:
        raise CostTableError(where, [f"line 1: expected {','.join(COLUMNS)}, not {','.join(header) or 'nothing'}"])
    for line in _lines(rows, reading.problems):
        _take(line, reading)
    reading.problems += _missing(reading)
    if not reading.cells:
        reading.problems.append("no lines")
    if reading.problems:
        raise CostTableError(where, reading.problems)
    return _table(reading)


def write_table(table: CostTable, path: Path, manifest: Manifest) -> None:
    """Write the table and, next to it, its manifest."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        clocks = {kind: unit.clock_hz for kind, unit in manifest.units.items()}
        writer.writerows(_written(table, clocks))
    write_manifest(manifest, path)


def _written(table: CostTable, clocks: dict[str, float | None]) -> Iterator[list[str]]:
    for model, begin, end in zip(table.models, table.first[:-1], table.first[1:], strict=True):
        for row in range(begin, end):
            for column, kind in enumerate(table.kinds):
                names = [model, table.pieces[row], kind]
                yield names + _written_figures(table, row, column, clocks.get(kind))


def _written_figures(table: CostTable, row: int, column: int, clock: float | None) -> list[str]:
    seconds = table.seconds[row, column]
    if math.isnan(seconds):
        return [""] * len(FIGURES)
    cycles = ["", ""] if clock is None else [f"{seconds * clock:.10g}", f"{clock:.10g}"]
    figures = (
        seconds,
        table.compute_seconds[row, column],
        table.joules[row, column],
        table.dram_bytes[row, column],
    )
    return cycles + [f"{figure:.10g}" for figure in figures]


def _lines(rows: Iterator[list[str]], problems: list[str]) -> Iterator[_Line]:
    for number, row in enumerate(rows, 2):
        if not row:
            continue
        if len(row) != len(COLUMNS):
            problems.append(f"line {number}: {len(row)} fields, expected {len(COLUMNS)}")
            continue
        empty = [name for name, text in zip(COLUMNS[:3], row, strict=False) if not text.strip()]
        named = zip(FIGURES, row[3:], strict=True)
        wrong = [problem for name, text in named for problem in _no_figure(name, text)]
        problems += [f"line {number}: {name} is empty" for name in empty]
        problems += [f"line {number}: {problem}" for problem in wrong]
        if not empty:
            yield _Line(number, row[0], row[1], row[2], {} if wrong else _figures(row[3:]))


def _figures(texts: list[str]) -> dict[str, float]:
    return {name: float(text) if text.strip() else math.nan for name, text in zip(FIGURES, texts, strict=True)}


def _no_figure(name: str, text: str) -> Iterator[str]:
    try:
        figure = float(text) if text.strip() else 0.0
    except ValueError:
        yield f"{name} is not a number: {text!r}"
        return
    if not 0 <= figure < math.inf:
        yield f"{name} must be finite and not negative: {text}"


def _take(line: _Line, reading: _Reading) -> None:
    before = reading.cells.setdefault((line.model, line.piece, line.kind), line)
    if before is not line:
        twice = f"{line.model}, {line.piece}, {line.kind} is also in line {before.number}"
        reading.problems.append(f"line {line.number}: {twice}")
    reading.pieces.setdefault(line.model, {})[line.piece] = None
    reading.kinds[line.kind] = None
    if line.figures:
        reading.problems += [f"line {line.number}: {problem}" for problem in _wrong(line.figures)]


def _wrong(figures: dict[str, float]) -> Iterator[str]:
    seconds = figures["seconds"]
    if math.isnan(seconds):
        if not all(math.isnan(figure) for figure in figures.values()):
            yield "seconds are empty, so the other figures must be empty, too"
        return
    if math.isnan(figures["cycles"]) != math.isnan(figures["clock_hz"]):
        yield "cycles and clock_hz must be given together"
    yield from (f"{name} is empty" for name in FIGURES[3:] if math.isnan(figures[name]))
    if figures["compute_seconds"] > seconds * (1 + ROUNDING):
        yield f"compute_seconds {figures['compute_seconds']:g} exceed seconds {seconds:g}"
    told = figures["cycles"] / figures["clock_hz"] if figures["clock_hz"] else math.nan
    if abs(told - seconds) > ROUNDING * seconds:
        yield f"seconds {seconds:g} differ from cycles / clock_hz, {told:g}"
    if seconds == 0:
        yield "seconds must be above 0"


def _missing(reading: _Reading) -> Iterator[str]:
    """Pairs without a line, and segments that no kind can run."""
    for model, pieces in reading.pieces.items():
        for piece in pieces:
            lines = {kind: reading.cells.get((model, piece, kind)) for kind in reading.kinds}
            absent = [kind for kind, line in lines.items() if line is None]
            if absent:
                yield f"{model}, {piece}: no line for {', '.join(absent)} (empty figures: cannot run it)"
            elif all(line and math.isnan(line.figures.get("seconds", 0)) for line in lines.values()):
                yield f"{model}, {piece}: no kind can run it"


def _table(reading: _Reading) -> CostTable:
    kinds = tuple(reading.kinds)
    rows = [(model, piece) for model, pieces in reading.pieces.items() for piece in pieces]

    def column(name: str) -> np.ndarray:
        return np.array([[reading.cells[*row, kind].figures[name] for kind in kinds] for row in rows], dtype=float)

    seconds = column("seconds")
    return CostTable(
        models=tuple(reading.pieces),
        first=np.cumsum([0, *(len(pieces) for pieces in reading.pieces.values())]).astype(np.int32),
        pieces=tuple(piece for _, piece in rows),
        kinds=kinds,
        seconds=seconds,
        compute_seconds=np.minimum(column("compute_seconds"), seconds),
        joules=column("joules"),
        dram_bytes=column("dram_bytes"),
    )
