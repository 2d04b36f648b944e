"""One door for every trace format: ``read_trace``. It bounds the memory and finds the format."""

from __future__ import annotations

import re
import resource
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.datafiles import PARQUET_MAGIC, split_lines, unpack
from mirage.domain.errors import TraceError
from mirage.trace.mirage_paper import ZONE, import_authors_log, looks_like_authors_log
from mirage.trace.parquet import import_parquet
from mirage.trace.result import Strictness
from mirage.trace.sacct import import_sacct
from mirage.trace.sacct_dump import looks_like_sacct
from mirage.trace.swf import import_swf, looks_like_swf

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirage.trace.result import ImportResult

_SHARE = 2
"""A half of what is free: other programs run on a login node."""
_KB = re.compile(r"^(?:MemAvailable|VmData):\s+([0-9]+) kB$", re.MULTILINE)
_MB = 1 << 20


@contextmanager
def within_free_memory(path: str) -> Iterator[None]:
    """Limit this process to its current memory plus half of the machine's free memory.

    Raises ``TraceError`` where that is not enough. Where the system does not say what is free, nothing is bounded.
    """
    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _limit()
    if limit is None or (before != resource.RLIM_INFINITY and before <= limit):
        limit = before
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    except MemoryError as error:
        problem = "out of memory: it holds more than fits into half of the free memory; split it"
        raise TraceError(path, 0, "", problem) from error
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def _limit() -> int | None:
    """Bytes of data that this process may have in all; ``None``: that is not known."""
    try:
        texts = [
            Path(name).read_text(encoding="ascii", errors="replace")
            for name in ("/proc/meminfo", "/proc/self/status")
        ]
    except OSError:
        return None
    found = [_KB.search(text) for text in texts]
    if not all(found):
        return None
    free, used = (int(each[1]) << 10 for each in found if each)
    return used + max(free // _SHARE, _MB)


class TraceFormat(StrEnum):
    """The formats that Mirage reads."""

    SACCT = "sacct"
    """``sacct -P`` with a header row."""
    SWF = "swf"
    """Standard Workload Format, also gzipped."""
    MIRAGE = "mirage"
    """The logs published with Mirage."""
    PARQUET = "parquet"


def read_trace(
    path: str | Path,
    format: TraceFormat | str | None = None,  # noqa: A002 (what the command line calls it)
    strictness: Strictness = Strictness.STRICT,
    tz: str | None = None,
) -> ImportResult:
    """Read a trace file into a job table.

    ``format``: by default known from the content. ``tz``: zone of wall-clock times without an offset (sacct: UTC;
    mirage: America/Chicago; the other formats have none). Raises ``TraceError`` for files that cannot be read and,
    where strict, for the first bad row; ``ConfigError`` for an unknown zone; ``MissingExtra`` for parquet without
    pyarrow.
    """
    try:
        with within_free_memory(str(path)):
            data = Path(path).read_bytes()
    except OSError as error:
        raise TraceError(str(path), 0, "", f"cannot be read: {error.strerror or error}") from error
    return import_bytes(data, str(path), format, strictness, tz)


def import_bytes(
    data: bytes,
    path: str,
    format: TraceFormat | str | None = None,  # noqa: A002
    strictness: Strictness = Strictness.STRICT,
    tz: str | None = None,
) -> ImportResult:
    """As ``read_trace`` for a file's content; ``path`` is for messages."""
    with within_free_memory(path):
        return _import(data, path, format, strictness, tz)


def _import(
    data: bytes, path: str, kind: TraceFormat | str | None, strictness: Strictness, tz: str | None
) -> ImportResult:
    data = unpack(data, path)
    chosen = _named(kind, path)
    if chosen is TraceFormat.PARQUET or (chosen is None and data.startswith(PARQUET_MAGIC)):
        return import_parquet(data, path, strictness)
    lines, notes = split_lines(data)
    result = _import_lines(lines, chosen or _sniff(lines, path), path, strictness, tz)
    return replace(result, table=replace(result.table, notes=(*notes, *result.table.notes)))


def _named(name: TraceFormat | str | None, path: str) -> TraceFormat | None:
    if name is None or isinstance(name, TraceFormat):
        return name
    try:
        return TraceFormat(name.lower())
    except ValueError:
        known = ", ".join(TraceFormat)
        raise TraceError(path, 0, "", f"unknown format {name!r}; known are {known}") from None


def _import_lines(
    lines: Sequence[str], kind: TraceFormat, path: str, strictness: Strictness, tz: str | None
) -> ImportResult:
    if kind is TraceFormat.SACCT:
        return import_sacct(lines, path, strictness, tz or "UTC")
    if kind is TraceFormat.MIRAGE:
        return import_authors_log(lines, path, strictness, tz or ZONE)
    return import_swf(lines, path, strictness)


def _sniff(lines: Sequence[str], path: str) -> TraceFormat:
    if looks_like_authors_log(lines):
        return TraceFormat.MIRAGE
    if looks_like_sacct(lines):
        return TraceFormat.SACCT
    if looks_like_swf(lines):
        return TraceFormat.SWF
    raise TraceError(path, 1, "", f"format not recognised; name one of {', '.join(TraceFormat)} with --format")
