"""One door for every trace format: ``read_trace``. It bounds the memory, unpacks, and splits into lines."""

from __future__ import annotations

import gzip
import re
import resource
import zlib
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.domain.errors import TraceError
from mirage.trace.mirage_paper import ZONE, import_authors_log, looks_like_authors_log
from mirage.trace.parquet import MAGIC, import_parquet
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


_GZIP = b"\x1f\x8b"
LONGEST_LINE = 1 << 20
"""Bytes; rows of jobs have some hundred."""
LARGEST_UNPACKED = 2 << 30
"""Bytes of an unpacked archive: a thousandth of them is enough to hold them packed."""
_PART = 1 << 20


def unpack(data: bytes, path: str) -> bytes:
    """``data``, unpacked where it is gzip.

    Raises ``TraceError`` for a damaged archive, an empty file, a line or an unpacked archive that is too long.
    """
    if data.startswith(_GZIP):
        try:
            data = _unpacked(data, path)
        except (OSError, EOFError, zlib.error) as error:
            raise TraceError(path, 0, "", f"damaged gzip file: {error}") from error
    elif not _is_binary(data):
        _Lines(path).check(data)
    if not data or data.isspace():
        raise TraceError(path, 0, "", "the file is empty")
    return data


class _Lines:
    """Finds a line that is too long, in parts as they come."""

    def __init__(self, path: str) -> None:
        self._path, self._ended, self._open = path, 0, 0

    def check(self, part: bytes) -> None:
        """The next part. Raises ``TraceError``."""
        at = 0
        while len(part) - at > LONGEST_LINE - self._open:
            end = part.rfind(b"\n", at, at + LONGEST_LINE - self._open + 1)
            if end < 0:
                line = self._ended + part.count(b"\n", 0, at) + 1
                raise TraceError(self._path, line, "", f"the line is longer than {LONGEST_LINE} bytes")
            at, self._open = end + 1, 0
        self._ended += part.count(b"\n")
        last = part.rfind(b"\n", at) + 1
        self._open = len(part) - max(last, at) + (0 if last or at else self._open)


def _unpacked(data: bytes, path: str) -> bytes:
    """In parts, so that no more is held than may be."""
    whole, lines = bytearray(), _Lines(path)
    with gzip.GzipFile(fileobj=BytesIO(data)) as archive:
        while part := archive.read(_PART):
            if len(whole) + len(part) > LARGEST_UNPACKED:
                raise TraceError(path, 0, "", f"the archive holds more than {LARGEST_UNPACKED} bytes; split it")
            whole += part
            if not _is_binary(whole):
                lines.check(part)
    return bytes(whole)


def _is_binary(data: bytes | bytearray) -> bool:
    """A Parquet file, which has no lines."""
    return data.startswith(MAGIC)


def split_lines(data: bytes) -> tuple[list[str], tuple[str, ...]]:
    """Lines without their ends (only newlines end a line), and a note where the text was not UTF-8."""
    try:
        text, notes = data.decode("utf-8-sig"), ()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
        return _split(text), ("the text is not UTF-8; read as Latin-1",)
    return _split(text), notes


def _split(text: str) -> list[str]:
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines and not lines[-1] else lines


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
    if chosen is TraceFormat.PARQUET or (chosen is None and data.startswith(MAGIC)):
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
