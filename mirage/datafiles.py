"""Data files of others: unpacked and split into lines within bounds, and Parquet by its columns.

Traces of clusters and of tasks are read by it; what a line or a column means is left to the caller.
"""

from __future__ import annotations

import gzip
import zlib
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.documentreading import parse_own_json
from mirage.domain.errors import MissingExtra, TraceError
from mirage.domain.job import ABSENT
from mirage.domain.jobtable import Names

if TYPE_CHECKING:
    from mirage.domain.jobtable import Int64

PARQUET_MAGIC = b"PAR1"
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
    return data.startswith(PARQUET_MAGIC)


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


def pyarrow() -> tuple[Any, Any]:
    """pyarrow and its parquet module; raises ``MissingExtra`` where it is not installed."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet as files
    except ImportError as error:
        raise MissingExtra("Reading and writing parquet files", "parquet") from error
    return arrow, files


class Frame:
    """An open Parquet file. Every reader raises ``TraceError`` for a column of a type that cannot be meant."""

    def __init__(self, data: bytes, path: str) -> None:
        self._arrow, files = pyarrow()
        try:
            # By this thread alone: a worker of Arrow's that holds ``data`` as Python ends aborts the process.
            file = files.ParquetFile(self._arrow.BufferReader(data), pre_buffer=False)
            self._table = file.read(use_threads=False)
        except MemoryError:
            raise
        except (self._arrow.ArrowException, OSError, ValueError) as error:
            raise TraceError(path, 0, "", f"not a readable parquet file: {str(error).splitlines()[0]}") from error
        self._path = path
        self.rows: int = self._table.num_rows
        self.names: tuple[str, ...] = tuple(self._table.column_names)

    def find(self, names: tuple[str, ...]) -> str | None:
        """The first of ``names`` that is a column."""
        return next((name for name in names if name in self.names), None)

    def about(self, key: bytes) -> dict[str, Any]:
        """Return the JSON object under ``key`` in the file's metadata, or an empty one."""
        text = (self._table.schema.metadata or {}).get(key)
        try:
            about = parse_own_json(text) if text else {}
        except ValueError as error:
            raise TraceError(self._path, 0, key.decode(), f"damaged metadata: {error}") from error
        return about if isinstance(about, dict) else {}

    def numbers(self, names: tuple[str, ...], default: int = ABSENT) -> Int64:
        """A column as whole numbers; ``default`` where null, or everywhere where there is no such column."""
        name = self.find(names)
        if name is None:
            return np.full(self.rows, default, dtype=np.int64)
        kind = self._table.column(name).type
        steps = ("timestamp[s]", "int64") if self._arrow.types.is_timestamp(kind) else ("int64",)
        whole = self._cast(name, *steps)
        return np.array(whole.fill_null(default).to_numpy(), dtype=np.int64)

    def texts(self, names: tuple[str, ...]) -> Names:
        """A column as coded text; absent everywhere where there is no such column."""
        name = self.find(names)
        if name is None:
            return Names.absent(self.rows)
        coded = self._cast(name, "string").dictionary_encode().combine_chunks()
        codes = coded.indices.fill_null(-1).to_numpy().astype(np.int32)
        vocabulary = tuple(coded.dictionary.to_pylist())
        if "" in vocabulary:
            codes = np.where(codes == vocabulary.index(""), -1, codes).astype(np.int32)
        return Names(codes, vocabulary)

    def ids(self, names: tuple[str, ...]) -> list[str] | None:
        """A column as plain text, empty where null; ``None`` where there is no such column."""
        name = self.find(names)
        return None if name is None else [text or "" for text in self._cast(name, "string").to_pylist()]

    def _cast(self, name: str, *kinds: str) -> Any:
        column = self._table.column(name)
        try:
            for kind in kinds:
                column = column.cast(kind, safe=kind != "timestamp[s]")
        except MemoryError:
            raise
        except self._arrow.ArrowException as error:
            problem = f"cannot be read as {kinds[-1]}: {str(error).splitlines()[0]}"
            raise TraceError(self._path, 0, name, problem) from error
        return column
