"""What arguments of several commands name: traces, clusters, times, lists."""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mirage.cli.usage import UsageError, value_of, value_unless_file
from mirage.domain.errors import BadSpelling, ConfigError
from mirage.domain.instants import read_instant
from mirage.domain.job import ABSENT

if TYPE_CHECKING:
    from mirage.domain.jobtable import JobTable
    from mirage.simulator.cluster import ClusterConfig

E = TypeVar("E", bound=StrEnum)

GENERATED = "generated:"
"""Begins the name of a trace that is drawn instead of read."""

_MOST_DIGITS = 18
"""What 64 bits hold."""


def finite(value: float | None) -> float | None:
    """A number as an option gives it; raises ``typer.BadParameter`` for NaN, which lies within all bounds."""
    import typer

    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


def load_trace(name: str, *, strict: bool = False, option: str = "TRACE") -> JobTable:
    """The job table of a file, or of ``generated:PRESET[:SEED]``. Raises ``TraceError`` or ``UsageError``.

    Rows that cannot be read are left out and named in the table's notes, or an error if ``strict``.
    """
    if not name.startswith(GENERATED):
        return _read(Path(name), strict=strict)
    from mirage.trace.generator import generate

    preset, _, seed = name.removeprefix(GENERATED).partition(":")
    if seed and not _is_whole(seed):
        raise UsageError(option, f"{name}: the seed must be a whole number, not {seed!r}")
    with value_of(option):
        return replace(generate(preset, int(seed or 0)), source=name)


def _read(path: Path, *, strict: bool) -> JobTable:
    return _import(path, strict=strict)[0]


def _import(path: Path, *, strict: bool) -> tuple[JobTable, int]:
    """The table, and the CPUs that an SWF header gives the machine (``ABSENT`` where none does)."""
    from mirage.trace.faults import Strictness
    from mirage.trace.readers import read_trace

    found = read_trace(path, strictness=Strictness.STRICT if strict else Strictness.LENIENT)
    left_out = tuple(f"left out: {path.name}:{row.line}: {row.field} {row.problem}" for row in found.rejected)
    table = replace(found.table, source=path.name, notes=(*found.table.notes, *left_out))
    return table, found.header.number("MaxProcs")


def load_sized_trace(name: str, *, strict: bool = False) -> tuple[JobTable, int]:
    """``load_trace``, and the machine's CPUs by an SWF header (``ABSENT`` where it gives none)."""
    if name.startswith(GENERATED):
        return load_trace(name, strict=strict), ABSENT
    return _import(Path(name), strict=strict)


def load_cluster(name: str) -> ClusterConfig:
    """The cluster of a file or preset; what of a slurm.conf the simulator does not follow is said on stderr."""
    import typer

    from mirage.simulator.configuration.clusterfile import read_cluster

    with value_unless_file("--cluster", name):
        config, remarks = read_cluster(name)
    for remark in remarks:
        typer.echo(f"{name}: {remark}", err=True)
    return config


def parse_choice(kind: type[E], text: str, option: str) -> E:
    """A member of a text enumeration. Raises ``ConfigError`` listing the choices."""
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(option, f"{text!r} is none of {', '.join(kind)}") from None


def parse_instant(text: str, option: str) -> int:
    """As ``read_instant``. Raises ``ConfigError`` naming ``option``."""
    try:
        return read_instant(text)
    except BadSpelling as error:
        raise ConfigError(option, str(error)) from None


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def pieces(text: str) -> tuple[str, ...]:
    """The words of a list with commas, in order."""
    return tuple(piece.strip() for piece in text.split(",") if piece.strip())


def numbers(option: str, text: str, least: int = 0) -> tuple[int, ...]:
    """Those of a list with commas. Raises ``ConfigError`` naming ``option``."""
    found = pieces(text)
    if not all(_is_whole(piece) and int(piece) >= least for piece in found):
        raise ConfigError(option, f"must be numbers from {least} with comma-separated, not {text!r}")
    return tuple(int(piece) for piece in found)
