"""Snapshots of the polls, for replays of the real past and for training: exact, small, and never code.

Layout of one as bytes, numbers little-endian::

    "MIRS"  version: u8  length: u32   deflated JSON: everything but the columns, and a list of the columns
    deflated columns, one after the other, as the list has them

A column is 64-bit integers (of neighbours' differences, where the column only rises or only falls), stored as all
lowest bytes, then all second bytes, and so on: most of the upper ones are equal and vanish in the compression.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import MISSING, field, fields, make_dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np
from sqlalchemy import select

from mirage.documentreading import reader_of
from mirage.domain.errors import ConfigError, StoreUnavailable
from mirage.domain.job import ABSENT
from mirage.domain.snapshot import JobColumns, Snapshot
from mirage.store.codec import from_values, loaded, plain_values, to_text
from mirage.store.tables import snapshots, upsert

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import Column
    from mirage.store.database import Database

_MAGIC = b"MIRS"
_VERSION = 1
_HEAD = struct.Struct("<4sBI")
_LEVEL = 1
"""Higher levels take three times as long for a tenth less."""

_HINTS = get_type_hints(Snapshot, localns={"Mapping": Mapping})
_TABLES = tuple(name for name, hint in _HINTS.items() if hint is JobColumns)
_NOT_KEPT = ("labels",)
"""Names that people give their jobs."""
_COLUMNS = tuple(column.name for column in fields(JobColumns))


def _header_type() -> type[Any]:
    """A dataclass of a snapshot's fields that are kept, without its columns."""
    rest = [f for f in fields(Snapshot) if f.name not in (*_TABLES, *_NOT_KEPT)]
    return make_dataclass(
        "Header",
        [(f.name, _HINTS[f.name], _same_default(f.default, f.default_factory)) for f in rest],
        frozen=True,
        slots=True,
        kw_only=True,
    )


def _same_default(default: Any, factory: Any) -> Any:
    return field(default_factory=factory) if factory is not MISSING else field(default=default)


_Header = _header_type()
_HEADER = reader_of(_Header)
_LISTED = reader_of(list[tuple[str, str, int, bool, int]])
"""Table, column, rows, whether they are differences, bytes."""


def packed(snapshot: Snapshot) -> bytes:
    """The bytes of a snapshot."""
    listed: list[tuple[str, str, int, bool, int]] = []
    bodies: list[bytes] = []
    for table in _TABLES:
        for name in _COLUMNS:
            column = np.asarray(getattr(getattr(snapshot, table), name), dtype=np.int64)
            differences = _monotone(column)
            body = zlib.compress(_shuffled(np.diff(column, prepend=0) if differences else column), _LEVEL)
            listed.append((table, name, len(column), differences, len(body)))
            bodies.append(body)
    header = zlib.compress(to_text({"snapshot": _plain_header(snapshot), "columns": listed}).encode())
    return b"".join([_HEAD.pack(_MAGIC, _VERSION, len(header)), header, *bodies])


def unpacked(data: bytes, where: str) -> Snapshot:
    """The snapshot of ``packed``'s bytes; columns that an older version did not know are ``ABSENT``.

    Raises ``StoreUnavailable`` for damaged bytes and ``ConfigError`` for a newer version's, naming ``where``.
    """
    try:
        magic, version, length = _HEAD.unpack_from(data)
        if magic == _MAGIC and version > _VERSION:
            raise ConfigError(where, f"the snapshot's form is {version}, this Mirage reads up to {_VERSION}")
        if magic != _MAGIC:
            raise ValueError("it does not begin as a snapshot")
        header = loaded(zlib.decompress(data[_HEAD.size : _HEAD.size + length]).decode(), where)
        listed = _LISTED.validate_python(header["columns"])
        _refuse_unknown(listed, where)
        tables = _tables(listed, data, _HEAD.size + length)
        rest = from_values(_HEADER, header["snapshot"], where)
    except (struct.error, zlib.error, ValueError, KeyError, TypeError, OverflowError) as error:
        raise StoreUnavailable(f"{where}: damaged ({error}); restore a backup, or delete this snapshot") from None
    values: dict[str, Any] = {f.name: getattr(rest, f.name) for f in fields(_Header)}
    return Snapshot(**values | tables)


def _plain_header(snapshot: Snapshot) -> Any:
    values = {f.name: getattr(snapshot, f.name) for f in fields(_Header)}
    return plain_values(_HEADER, _Header(**values | {"links": dict(snapshot.links)}))


def _refuse_unknown(listed: list[tuple[str, str, int, bool, int]], where: str) -> None:
    for table, name, *_ in listed:
        if table not in _TABLES or name not in _COLUMNS:
            raise ConfigError(where, f"{table}.{name}: a column unknown to this version; a newer Mirage stored it")


def _tables(listed: list[tuple[str, str, int, bool, int]], data: bytes, at: int) -> dict[str, JobColumns]:
    columns: dict[str, dict[str, Column]] = {table: {} for table in _TABLES}
    rows = dict.fromkeys(_TABLES, 0)
    for table, name, count, differences, length in listed:
        values = _unshuffled(zlib.decompress(data[at : at + length]), count)
        columns[table][name] = np.cumsum(values) if differences else values
        rows[table] = count
        at += length
    return {
        table: JobColumns(
            **{name: found.get(name, np.full(rows[table], ABSENT, dtype=np.int64)) for name in _COLUMNS}
        )
        for table, found in columns.items()
    }


def _monotone(column: Column) -> bool:
    """Differences may wrap around in 64 bits, as their sum then does."""
    before, after = column[:-1], column[1:]
    return bool(np.all(before <= after) or np.all(before >= after))


def _shuffled(column: Column) -> bytes:
    return column.astype("<i8").view(np.uint8).reshape(-1, 8).T.tobytes()


def _unshuffled(data: bytes, count: int) -> Column:
    by_byte = np.frombuffer(data, dtype=np.uint8).reshape(8, count)
    return np.ascontiguousarray(by_byte.T).view("<i8").reshape(count).astype(np.int64, copy=False)


class SnapshotArchive:
    """Snapshots by their time, one a second at most. Every thread may use it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, snapshot: Snapshot) -> None:
        """Add a snapshot, in the place of another of the same second. Raises ``StoreUnavailable``."""
        row = {
            "time": int(snapshot.time),
            "pending": len(snapshot.pending),
            "running": len(snapshot.running),
            "document": packed(snapshot),
        }
        self._database.write(lambda connection: upsert(connection, snapshots, [row], ["time"]))

    def times(self, start: Seconds, end: Seconds) -> tuple[Seconds, ...]:
        """The times of the snapshots from ``start`` until before ``end``. Raises ``StoreUnavailable``."""
        c = snapshots.c
        query = select(c.time).where(c.time >= start, c.time < end).order_by(c.time)
        return tuple(self._database.read(lambda connection: connection.execute(query).scalars().all()))

    def read(self, start: Seconds, end: Seconds) -> Iterator[Snapshot]:
        """The snapshots from ``start`` until before ``end``, in order of time, with one in memory.

        Those deleted meanwhile are left out. Raises ``StoreUnavailable``, and ``ConfigError`` for one that a newer
        Mirage stored.
        """
        for time in self.times(start, end):
            data = self._document(time)
            if data is not None:
                yield unpacked(data, f"{self._database.where}: snapshot of {time}")

    def _document(self, time: Seconds) -> bytes | None:
        query = select(snapshots.c.document).where(snapshots.c.time == time)
        return self._database.read(lambda connection: connection.execute(query).scalar())
