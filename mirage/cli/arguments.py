"""Parse arguments of several commands: traces, clusters, times, lists; exit code 2 for invalid ones.

The error is one line that names the option or argument.
"""

from __future__ import annotations

import math
import re
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mirage.domain.bounds import read_instant
from mirage.domain.errors import ArtifactMismatch, BadSpelling, ConfigError, MirageError, MissingExtra, TraceError
from mirage.domain.job import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from mirage.domain.jobtable import JobTable
    from mirage.simulator.cluster import ClusterConfig

EXIT_USAGE = 2
_OPTION = re.compile(r"--[a-z-]+")
_OF_FILES = (ArtifactMismatch, MissingExtra, TraceError)
"""Errors of the file or model that an option names, not of the option."""


class UsageError(ConfigError):
    """The option or argument ``where`` has an invalid value."""


@contextmanager
def value_of(where: str) -> Iterator[None]:
    """Report errors inside as errors of the option or argument ``where``. Raises ``UsageError``."""
    try:
        yield
    except _OF_FILES:
        raise
    except MirageError as error:
        if isinstance(error, ConfigError) and error.where == where:
            raise UsageError(where, error.problem) from None
        raise UsageError(where, str(error)) from None


def value_unless_file(where: str, name: str) -> AbstractContextManager[None]:
    """Like ``value_of`` if ``name`` is no file; errors in the content of a file stay unchanged."""
    try:
        return nullcontext() if Path(name).exists() else value_of(where)
    except (OSError, ValueError):  # too long, or with a NUL
        return value_of(where)


def exit_status(error: Exception) -> int:
    """Return 2 for an error of an option or argument, else 1."""
    if isinstance(error, UsageError) or (isinstance(error, ConfigError) and _OPTION.fullmatch(error.where)):
        return EXIT_USAGE
    return 1


def duration_of(option: str, text: str) -> int:
    """Return the seconds of a duration with a unit. Raises ``UsageError``."""
    from mirage.slurm.duration import parse_human

    with value_of(option):
        return parse_human(text)


def limit_of(option: str, text: str) -> int:
    """Return the seconds of a time limit. Raises ``UsageError``."""
    from mirage.slurm.duration import parse_human_limit

    with value_of(option):
        return parse_human_limit(text)


E = TypeVar("E", bound=StrEnum)

GENERATED = "generated:"
"""Prefix of the name of a generated trace."""

_MOST_DIGITS = 18
"""Digits that fit into 64 bits."""


def finite(value: float | None) -> float | None:
    """Return the number; raises ``typer.BadParameter`` for NaN, which passes all range checks."""
    import typer

    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


def load_trace(name: str, *, strict: bool = False, option: str = "TRACE") -> JobTable:
    """Return the job table of a file or of ``generated:PRESET[:SEED]``. Raises ``TraceError`` or ``UsageError``.

    Invalid rows are left out and listed in the table's notes; with ``strict`` they are an error.
    """
    if not name.startswith(GENERATED):
        return _read(Path(name), strict=strict)
    from mirage.trace.generator import generate

    preset, _, seed = name.removeprefix(GENERATED).partition(":")
    if seed and not _is_whole(seed):
        raise UsageError(option, f"{name}: invalid seed {seed!r}; expected a whole number")
    with value_of(option):
        return replace(generate(preset, int(seed or 0)), source=name)


def _read(path: Path, *, strict: bool) -> JobTable:
    return _import(path, strict=strict)[0]


def _import(path: Path, *, strict: bool) -> tuple[JobTable, int]:
    """Return the table and the machine's CPUs from an SWF header (``ABSENT`` if there is none)."""
    from mirage.trace.readers import read_trace
    from mirage.trace.result import Strictness

    found = read_trace(path, strictness=Strictness.STRICT if strict else Strictness.LENIENT)
    left_out = tuple(f"left out: {path.name}:{row.line}: {row.field} {row.problem}" for row in found.rejected)
    table = replace(found.table, source=path.name, notes=(*found.table.notes, *left_out))
    return table, found.header.number("MaxProcs")


def load_sized_trace(name: str, *, strict: bool = False) -> tuple[JobTable, int]:
    """Return the job table and the machine's CPUs from an SWF header (``ABSENT`` if there is none)."""
    if name.startswith(GENERATED):
        return load_trace(name, strict=strict), ABSENT
    return _import(Path(name), strict=strict)


def load_cluster(name: str) -> ClusterConfig:
    """Return the cluster of a file or preset; print on stderr which slurm.conf settings are not simulated."""
    import typer

    from mirage.simulator.configuration.clusterfile import read_cluster

    with value_unless_file("--cluster", name):
        config, remarks = read_cluster(name)
    for remark in remarks:
        typer.echo(f"{name}: {remark}", err=True)
    return config


def parse_choice(kind: type[E], text: str, option: str) -> E:
    """Return a member of a text enumeration. Raises ``ConfigError`` with the choices."""
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(option, f"invalid value {text!r} (choose from {', '.join(kind)})") from None


def parse_instant(text: str, option: str) -> int:
    """Return epoch seconds, as ``read_instant``. Raises ``ConfigError`` naming ``option``."""
    try:
        return read_instant(text)
    except BadSpelling as error:
        raise ConfigError(option, str(error)) from None


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def pieces(text: str) -> tuple[str, ...]:
    """Split a comma-separated list, in order."""
    return tuple(piece.strip() for piece in text.split(",") if piece.strip())


def numbers(option: str, text: str, least: int = 0) -> tuple[int, ...]:
    """Return the numbers of a comma-separated list. Raises ``ConfigError`` naming ``option``."""
    found = pieces(text)
    if not all(_is_whole(piece) and int(piece) >= least for piece in found):
        raise ConfigError(option, f"invalid value {text!r}; expected comma-separated numbers from {least}")
    return tuple(int(piece) for piece in found)
