"""The private copy of a database that is published whole: its directory on this machine, and its size.

The directories of killed processes are removed. History is halved, oldest first, until the database is small
enough; chains, links, scripts and tokens stay.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from mirage.domain.errors import StoreUnavailable
from mirage.domain.journal import EntryKind
from mirage.ownplaces import network_file_system

_ROOM = 64 << 20


class PrivateDirectory:
    """Mode 700; removed by ``close``, or by the next process of this user after this one was killed."""

    def __init__(self) -> None:
        """Raises ``StoreUnavailable`` where no local file system has room."""
        place, prefix = _place(), f"mirage-copy-{os.geteuid()}-"
        _remove_left(place, prefix)
        try:
            self.path, self._lock = _made(place, prefix)
        except OSError as error:
            raise StoreUnavailable(
                f"{place}: {error.strerror}; set TMPDIR to a directory on a local disk"
            ) from error

    def close(self) -> None:
        """Remove it; a second call does nothing."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(lock)


def _made(place: Path, prefix: str) -> tuple[Path, int]:
    """The lock also tells systemd-tmpfiles that the directory is in use."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        with suppress(FileNotFoundError, BlockingIOError):  # another process was faster to clean up
            lock = _opened(path)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(lock), path.lstat()):
                    return path, lock
            except BaseException:
                os.close(lock)
                raise


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)


def _place() -> Path:
    candidates = [os.environ.get("TMPDIR", ""), "/dev/shm", "/var/tmp", "/tmp"]  # noqa: S108
    for each in candidates:
        place = Path(each)
        with suppress(OSError):
            if not (each and place.is_absolute() and place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
                continue
            room = os.statvfs(place)
            if not network_file_system(place) and room.f_bavail * room.f_frsize >= _ROOM:
                return place
    raise StoreUnavailable(
        f"none of $TMPDIR, /dev/shm, /var/tmp and /tmp is a local file system with {_ROOM >> 20} MiB free; free"
        " some space, or set TMPDIR to a directory on a local disk"
    )


def _remove_left(place: Path, prefix: str) -> None:
    """Their locks are free once their processes have ended."""
    with suppress(OSError):
        for left in place.glob(f"{prefix}*"):
            with suppress(OSError):
                _remove_unlocked(left)


def _remove_unlocked(left: Path) -> None:
    handle = _opened(left)
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            return
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(left, ignore_errors=True)
    finally:
        os.close(handle)


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
