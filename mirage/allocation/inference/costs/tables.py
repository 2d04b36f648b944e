"""Cost tables by name or path, as CSV with one line for each segment and kind of unit.

===================  =======================================================================
``model,piece``      segments of a model, run in the order of their lines
``kind``             kind of unit
``cycles,clock_hz``  may be empty; ``seconds`` was then measured
``seconds``          alone on the unit; empty: this kind cannot run this segment
``compute_seconds``  seconds with an infinitely fast shared memory; at most ``seconds``
``joules``           of one run; 0 where unknown
``dram_bytes``       moved to and from the shared memory
===================  =======================================================================

A manifest next to it (JSON) states the table's origin, so that its figures can be judged and reproduced. A name
without a path is a built-in table (``edge``).
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mirage.documentreading import faults_of, reader_of
from mirage.domain.errors import MirageError
from mirage.domain.inference import CostTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class ManifestError(MirageError):
    """A manifest that cannot be read, or that belongs to another table."""


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Measurement(_Document):
    """Measurements of one model on one real unit."""

    repeats: int = Field(ge=1)
    median_seconds: float = Field(ge=0)
    p95_seconds: float = Field(ge=0)
    resident_bytes: int = Field(ge=0)
    """Additional memory of the process after the model was loaded and run, in bytes."""
    model_sha256: str


class UnitSource(_Document):
    """Origin of the column of one kind."""

    source: str
    clock_hz: float | None = Field(default=None, gt=0)
    """Clock of the cycles, in Hz; ``None`` where seconds were measured."""
    hardware: str = ""
    """The cost model's description of the array, or the name of the real unit."""
    mapping: str = ""
    """How layers are mapped to the array, or the settings of the runtime."""
    energy: str = ""
    """Origin of the joules; states it if joules are unknown."""
    measured: dict[str, Measurement] = Field(default_factory=dict)
    """Measurements by model; empty for a cost model."""


class CostManifest(_Document):
    """Origin of a whole table."""

    format: Literal["mirage-costs-1"] = "mirage-costs-1"
    made_by: str
    """Tool and version."""
    models: dict[str, str]
    """Description of each model."""
    units: dict[str, UnitSource]
    hashes: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of the table and of each unit's hardware and mapping."""


def manifest_path(table: Path) -> Path:
    """Path of the manifest: ``edge.csv`` has ``edge.manifest.json``."""
    return table.with_suffix(".manifest.json")


def write_manifest(manifest: CostManifest, table: Path) -> None:
    """Write it after the table, with the hashes of the table's content."""
    hashes = {"table": sha256(table.read_bytes()).hexdigest(), **_unit_hashes(manifest)}
    text = manifest.model_copy(update={"hashes": hashes}).model_dump_json(indent=1)
    manifest_path(table).write_text(text + "\n", encoding="utf-8")


def read_manifest(table: Path) -> CostManifest | None:
    """``None`` for a table without a manifest. Raises ``ManifestError`` if it is damaged or of another table."""
    path = manifest_path(table)
    if not path.exists():
        return None
    try:
        manifest = reader_of(CostManifest).validate_json(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path}: {error}") from error
    except ValidationError as error:
        raise ManifestError(f"{path}: {faults_of(error)[0]}") from error
    found = {"table": sha256(table.read_bytes()).hexdigest(), **_unit_hashes(manifest)}
    wrong = sorted({name for name, _ in found.items() ^ manifest.hashes.items()})
    if wrong:
        raise ManifestError(f"{path}: written for another state of: {', '.join(wrong)} (SHA-256 differs)")
    return manifest


def _unit_hashes(manifest: CostManifest) -> dict[str, str]:
    return {
        f"{kind}.{part}": sha256(text.encode()).hexdigest()
        for kind, unit in manifest.units.items()
        for part, text in (("hardware", unit.hardware), ("mapping", unit.mapping))
    }


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


def write_table(table: CostTable, path: Path, manifest: CostManifest) -> None:
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


class UnknownCostTable(MirageError):
    """Neither the name of a table nor a file; the text lists the built-in tables."""


def table_names() -> tuple[str, ...]:
    """Names of the built-in tables."""
    return tuple(sorted(path.stem for path in _folder().glob("*.csv")))


def cost_table(name: str) -> CostTable:
    """The table of a name or path. Raises ``UnknownCostTable``, ``CostTableError``, ``ManifestError``."""
    path = table_path(name)
    read_manifest(path)
    return read_table(path)


def cost_manifest(name: str) -> CostManifest | None:
    """The manifest of a table; ``None`` without one."""
    return read_manifest(table_path(name))


def sources(names: Sequence[str]) -> list[CostManifest]:
    """Manifests of tables. Raises ``ManifestError`` for one without a manifest."""
    found = [(name, cost_manifest(name)) for name in names]
    unknown = [name for name, manifest in found if manifest is None]
    if unknown:
        raise ManifestError(f"no manifest next to {', '.join(unknown)}, so the origin of the figures is unknown")
    return [manifest for _, manifest in found if manifest is not None]


def table_path(name: str) -> Path:
    """The file of a name. A name without a slash and a suffix is a built-in table."""
    if name in table_names():
        return _folder() / f"{name}.csv"
    path = Path(name)
    try:
        there = path.is_file()
    except OSError:  # such as a name that is too long
        there = False
    if not there:
        known = ", ".join(table_names())
        raise UnknownCostTable(f"no cost table {name!r}: no such file, and the built-in tables are: {known}")
    return path


def _folder() -> Path:
    return Path(str(resources.files(__package__).joinpath("data")))
