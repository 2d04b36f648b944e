"""Keeps a database small that is published whole: its history is halved, oldest first, until it is small enough.

Chains, links, scripts and tokens stay.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.errors import StoreUnavailable
from mirage.domain.journal import EntryKind

if TYPE_CHECKING:
    from pathlib import Path

_LOG = logging.getLogger(__name__)

LIMIT = 16 << 20
"""Bytes of a database, before compression, above which it is shrunk to half of this."""
_SMALL = 64 << 10
_BUSY = 30.0
_EXPLAINS = f"kind IN ('{EntryKind.DECISION.value}', '{EntryKind.SHADOW.value}')"


@dataclass(frozen=True, slots=True)
class _History:
    """Rows that can go, oldest first."""

    table: str
    age: str
    """Column by which the oldest are found."""
    size: str
    """Approximate bytes of a row with its indexes, as SQL."""
    where: str = "1"


_FIRST = (
    _History("snapshots", "time", "length(document) + 40"),
    _History("jobs", "submit", "300"),
    _History("waits", "start", "250"),
    _History("journal", "id", "length(text) + ifnull(length(details), 0) + 120", _EXPLAINS),
)
_LAST = (
    _History("answers", "time", "length(body) + length(headers) + 100"),
    _History("journal", "id", "length(text) + ifnull(length(details), 0) + 120"),
    _History("audit", "id", "200"),
    _History("outcomes", "successor_start", "150"),
)


def shrink(file: Path, limit: int = LIMIT) -> None:
    """Delete the oldest history of a database of more than ``limit`` bytes. Raises ``StoreUnavailable``."""
    try:
        with closing(sqlite3.connect(file, timeout=_BUSY, isolation_level=None)) as connection:
            before = _used(connection)
            if before <= limit or not _has_tables(connection):
                return
            connection.execute("BEGIN IMMEDIATE")
            while _used(connection) > limit // 2 and _halve_largest(connection):
                pass
            connection.execute("COMMIT")
            connection.execute("VACUUM")
            after = _used(connection)
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{file}: history cannot be deleted: {error}") from error
    text = "the oldest history was deleted; lower store.retention, or use a database server to keep more"
    _LOG.warning("event=store_shrunk before=%d after=%d text=%r", before, after, text)


def _used(connection: sqlite3.Connection) -> int:
    pages, free, size = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def _has_tables(connection: sqlite3.Connection) -> bool:
    """A database of an earlier schema is upgraded first."""
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return {each.table for each in (*_FIRST, *_LAST)} <= found


def _halve_largest(connection: sqlite3.Connection) -> bool:
    """Return whether something could be deleted."""
    for stage in (_FIRST, _LAST):
        sizes = [_bytes(connection, each) for each in stage]
        if max(sizes) >= _SMALL:
            return _halve(connection, stage[sizes.index(max(sizes))])
    return False


def _bytes(connection: sqlite3.Connection, history: _History) -> int:
    query = f"SELECT ifnull(sum({history.size}), 0) FROM {history.table} WHERE {history.where}"  # noqa: S608
    return int(connection.execute(query).fetchone()[0])


def _halve(connection: sqlite3.Connection, history: _History) -> bool:
    table, age, where = history.table, history.age, history.where
    half = f"SELECT count(*) / 2 FROM {table} WHERE {where}"  # noqa: S608
    edge = f"SELECT {age} FROM {table} WHERE {where} ORDER BY {age} LIMIT 1 OFFSET ({half})"  # noqa: S608
    gone = connection.execute(f"DELETE FROM {table} WHERE {where} AND {age} < ({edge})")  # noqa: S608
    return gone.rowcount > 0
