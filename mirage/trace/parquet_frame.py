"""The columns of a parquet file as arrays, found by any of their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.documenttext import parse_own_json
from mirage.domain.errors import MissingExtra, TraceError
from mirage.domain.job import ABSENT
from mirage.domain.jobtable import Names

if TYPE_CHECKING:
    from mirage.domain.jobtable import Int64


def pyarrow() -> tuple[Any, Any]:
    """pyarrow and its parquet module; raises ``MissingExtra`` where it is not installed."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet as files
    except ImportError as error:
        raise MissingExtra("Reading and writing parquet files", "parquet") from error
    return arrow, files


class Frame:
    """An open file. Every reader raises ``TraceError`` for a column of a type that cannot be meant."""

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
