"""A database as files ``state.N`` of a shared directory: whole, each made once; and the copy of this process.

The process reads and writes a SQLite file on a local file system. Each transaction that writes is published before
it is committed: its whole content becomes the next number, or the transaction is rolled back. The number can be
created once only (``numbered_files``). So a process whose view is not the latest stores nothing.

A new leader publishes at once (``seal``): from then on the former leader cannot publish, and all that it has
published was read.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import zlib
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from mirage.atomic_file import read_regular
from mirage.domain.errors import LeadershipLost, StoreUnavailable
from mirage.store.location import OpenedFile, make_shared
from mirage.store.numbered_files import LARGEST, NumberedFiles, check_directory, unavailable
from mirage.store.private_copies import LIMIT, PrivateDirectory, shrink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sqlalchemy import Connection

    from mirage.store.numbered_files import Numbered

_KEPT = 4
RESTORED = "state.db"
"""A backup that was put into an empty directory."""
_FAST = 1
"""Compression level: the time of a write matters more than some kilobytes."""
_WAL_FLAGS = slice(18, 20)
_BUSY = 30.0


class StateChanged(LeadershipLost):
    """Another process has published since this one has read; nothing of ours was stored."""


class PublishedState:
    """Any thread may use it; ``changing`` and ``refresh`` one after the other."""

    def __init__(self, directory: Path, files: NumberedFiles | None = None) -> None:
        """Make the directory where it is missing, and read the newest state. Raises ``StoreUnavailable``."""
        make_shared(directory)
        self.lock = threading.RLock()
        self.follows = True
        """Whether each access reads what others have published meanwhile."""
        self.publishes = True
        """Whether transactions are published; a standby upgrades its own copy only."""
        self._directory, self._opened = directory, OpenedFile(directory)
        self._files = files or NumberedFiles(directory, "state", _KEPT)
        self._base: Numbered | None = None
        self._uncertain = False
        """Whether the copy may differ from what is published last."""
        self._prepare: Callable[[], object] | None = None
        self._inside = False
        """Whether a transaction is being made that may publish."""
        self._size = 0
        self._private = PrivateDirectory()
        self.copy = self._private.path / "state.db"
        self.copy.touch(mode=0o600)
        try:
            self._load()
        except BaseException:
            self._private.close()
            raise

    def close(self) -> None:
        """Remove the copy."""
        self._private.close()

    def on_read(self, prepare: Callable[[], object]) -> None:
        """Call ``prepare`` now, and whenever a state was read: it may be of an earlier schema."""
        with self.lock:
            self._prepare = prepare
            prepare()

    def refresh(self) -> None:
        """Read the newest state; what this process could not publish is dropped. Raises ``StoreUnavailable``."""
        with self.lock:
            self._check_directory()
            if self._uncertain or self._files.follows(self._base):
                self._load()

    def follow(self) -> None:
        """Refresh where each access does so."""
        if self.follows:
            with self.lock:
                if not self._inside:
                    self.refresh()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Around a transaction: no other thread's is published meanwhile. Raises ``StoreUnavailable``."""
        with self.lock:
            self._check_directory()
            if self._uncertain:
                self._settle()
            self.follow()
            if self.publishes and self._size > LIMIT:
                shrink(self.copy)
            base, self._inside = self._base, True
            try:
                yield
            except BaseException:
                self._uncertain = self._uncertain or self._base is not base
                raise
            finally:
                self._inside = False

    def publish(self, connection: Connection) -> None:
        """Publish what the transaction makes of the database, before its commit.

        Raises ``StateChanged`` where another process was first, and ``StoreUnavailable``.
        """
        if not self.publishes:
            return
        driver = connection.connection.driver_connection
        if not isinstance(driver, sqlite3.Connection):
            raise TypeError(driver)
        image = driver.serialize()
        try:
            added = self._files.add(self._base, _packed(image))
        except StoreUnavailable:
            self._uncertain = True
            raise
        if added is None:
            raise self._changed()
        self._base, self._size = added, len(image)

    def _settle(self) -> None:
        """Read again after a publication or a commit without an answer. Raises ``StateChanged``."""
        newest, own = self._files.newest(), {self._base.mark if self._base else "", self._files.attempted}
        if not self.follows and newest is not None and newest.mark not in own:
            raise self._changed()
        self._load()

    def _changed(self) -> StateChanged:
        return StateChanged(
            f"{self._directory}: another process has stored a later state; nothing of this one is stored until it"
            " starts again"
        )

    def _check_directory(self) -> None:
        self._opened.check()
        check_directory(self._directory)

    def _load(self) -> None:
        found = self._files.newest()
        if found is not None:
            path = self._files.path(found.number)
            self._fill(path, unpacked(path, found.content))
        elif (backup := _backup(self._directory)) is not None:
            self._fill(self._directory / RESTORED, backup)
        self._base, self._uncertain = found, False
        if self._prepare is not None:
            self._prepare()

    def _fill(self, path: Path, image: bytes) -> None:
        try:
            with closing(sqlite3.connect(":memory:")) as source, closing(self._connected()) as copy:
                source.deserialize(image)
                source.backup(copy)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{path}: cannot be read as a database ({error}); restore a backup") from error
        self._size = len(image)

    def _connected(self) -> sqlite3.Connection:
        return sqlite3.connect(self.copy, timeout=_BUSY)


def newest_state(directory: Path) -> bytes | None:
    """The newest published database, or the backup to begin with; ``None``: neither is there.

    Raises ``StoreUnavailable``.
    """
    try:
        directory.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unavailable(directory, error) from error
    check_directory(directory)
    files = NumberedFiles(directory, "state", _KEPT)
    found = files.newest()
    return _backup(directory) if found is None else unpacked(files.path(found.number), found.content)


def _backup(directory: Path) -> bytes | None:
    path = directory / RESTORED
    try:
        content = read_regular(path, LARGEST, follow_links=False, owner=os.geteuid())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unavailable(path, error) from error
    return _without_log(content) if content else None


def _without_log(image: bytes) -> bytes:
    """Without the mark of a write-ahead log, which a database in memory cannot have."""
    return image[: _WAL_FLAGS.start] + b"\1\1" + image[_WAL_FLAGS.stop :]


def _packed(image: bytes) -> bytes:
    return zlib.compress(_without_log(image), _FAST)


def unpacked(path: Path, content: bytes) -> bytes:
    """The database of a published file. Raises ``StoreUnavailable``."""
    unpacker = zlib.decompressobj()
    try:
        image = unpacker.decompress(content, LARGEST)
    except zlib.error as error:
        raise StoreUnavailable(f"{path}: the file is damaged ({error}); restore a backup") from error
    if not unpacker.eof or unpacker.unused_data:
        raise StoreUnavailable(f"{path}: the file is damaged or larger than 1 GiB; restore a backup")
    return image
