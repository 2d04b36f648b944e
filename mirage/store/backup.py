"""Copies of a database: whole, checked, and on disk before their name is there."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sqlite3
import stat
import subprocess
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain
from itertools import count as count_from
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.domain.errors import StoreUnavailable
from mirage.ownplaces import check_places
from mirage.store.published_state import newest_state
from mirage.store.restoration import mark_copy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from sqlalchemy import URL

    from mirage.store.location import Location


class NoBackup(StoreUnavailable):
    """The copy could not be made; the database is as it was."""


def backup_place(location: Location, folder: Path | None, label: str) -> Path:
    """Return a free name with ``label`` and time: next to file or directory; for a server in ``folder``."""
    stamp = f"backup-{label}-{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}"
    if location.directory is not None:
        place = location.directory.with_name(f"{location.directory.name}.{stamp}")
    elif location.file is not None:
        place = location.file.with_name(f"{location.file.name}.{stamp}")
    else:
        place = (folder or Path.cwd()) / f"{Path(location.url.database or 'mirage').name}.{stamp}.dump"
    others = (place.with_name(f"{place.name}.{count}") for count in count_from(2))
    return next(free for free in chain((place,), others) if not free.exists())


def back_up(location: Location, target: Path, state: Path | None = None) -> None:
    """Copy the database to ``target``, readable by this user only; others may continue reading and writing.

    ``state``: the daemon's own directory, whose owner can read the database and may therefore change the target's.

    SQLite's is a database file again, PostgreSQL's what ``pg_restore`` reads. A database made of either is known
    for a restored one (``restoration``). Raises ``NoBackup``: nothing is at ``target`` then.
    """
    try:
        with _unfinished(target, _trusted(location, state)) as part:
            if location.directory is not None:
                _copy_state(location.directory, part)
            elif location.file is not None:
                _copy_file(location.file, part)
            else:
                _dump_server(location.url, part)
    except (OSError, sqlite3.Error) as error:
        raise NoBackup(
            f"{location.shown}: no backup could be made at {target}: {error}; {_remedy(error, location)}"
        ) from error


def _trusted(location: Location, state: Path | None) -> set[int]:
    """Who may change the directories of a copy."""
    place = location.file or location.directory
    folders = [place.parent if place is not None else None, state]
    return {0, os.geteuid(), *(folder.stat().st_uid for folder in folders if folder is not None)}


@contextmanager
def _unfinished(target: Path, trusted: Collection[int]) -> Iterator[Path]:
    """A file that becomes ``target`` once it is on disk; one that an earlier attempt has left is used again.

    It lies in a directory for its owner alone: where all users may write, another user may have been there first.
    """
    if os.path.lexists(target):
        raise FileExistsError(f"{target} is there already")
    folder = target.with_name(f".{target.name.partition('.backup-')[0]}.unfinished-backup")
    _make_private(folder, trusted)
    part = folder / "copy"
    handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left in set(folder.iterdir()) - {part}:  # the log of a copy that was killed belongs to no other
            left.unlink()
        os.ftruncate(handle, 0)
        try:
            yield part
            os.fsync(handle)
            part.rename(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        finally:
            with suppress(OSError):  # not empty: SQLite was killed, and has left a log
                folder.rmdir()
        _sync_folder(target.parent)
    finally:
        os.close(handle)


def _make_private(folder: Path, trusted: Collection[int]) -> None:
    """Raises ``OSError`` where the directory, or one above it, is for users other than ``trusted`` to change.

    The copy is written by its name: who renames a directory above it has the database written to another place.
    """
    around = folder.parent.resolve()
    check_places(around, trusted)
    try:
        with suppress(FileExistsError):
            folder.mkdir(0o700)
    except PermissionError:
        told = f"{around} cannot be written by UID {os.geteuid()}, which makes the copy; name another directory"
        raise PermissionError(told) from None
    there = folder.lstat()
    if not stat.S_ISDIR(there.st_mode) or there.st_uid != os.geteuid() or there.st_mode & 0o077:
        raise PermissionError(f"{folder} is not this user's alone; remove it, or name another directory")


def _copy_file(file: Path, part: Path) -> None:
    there = f"{file.as_uri()}?mode=rw"
    with closing(sqlite3.connect(there, uri=True)) as source, closing(sqlite3.connect(part)) as copy:
        source.backup(copy)  # all in one read: a busy writer would make it begin repeatedly
        _finish(copy)


def _copy_state(directory: Path, part: Path) -> None:
    """The newest state that was published."""
    image = newest_state(directory)
    if image is None:
        raise FileNotFoundError(errno.ENOENT, "there is no state yet", str(directory))
    with closing(sqlite3.connect(":memory:")) as source, closing(sqlite3.connect(part)) as copy:
        source.deserialize(image)
        source.backup(copy)
        _finish(copy)


def _finish(copy: sqlite3.Connection) -> None:
    # One complete file without a log; opening it as a database turns the log on again.
    copy.execute("PRAGMA journal_mode = DELETE")
    mark_copy(copy)
    [found] = copy.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError(f"the database is damaged ({found})")


def _dump_server(url: URL, part: Path) -> None:
    dump, restore = _program("pg_dump"), _program("pg_restore")
    bare = url._replace(drivername="postgresql", password=None).difference_update_query(["sslpassword"])
    address = bare.render_as_string(hide_password=False)
    secret = {"PGPASSWORD": str(url.password)} if url.password else {}
    _run([dump, "--no-password", "--format=custom", f"--file={part}", f"--dbname={address}"], secret)
    _run([restore, "--list", f"--file={os.devnull}", str(part)], {})


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed on this machine")
    return found


def _run(argv: Sequence[str], secret: dict[str, str]) -> None:
    done = subprocess.run(argv, env={**os.environ, **secret}, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise OSError(f"{Path(argv[0]).name}: {words[-1]}")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remedy(error: Exception, location: Location) -> str:
    if isinstance(error, BlockingIOError):
        return "another backup is being made; wait for it"
    if isinstance(error, FileExistsError):
        return "name another file, or remove that one"
    if isinstance(error, PermissionError):
        return "name a directory that the daemon's account can write to: the copy is written with its rights"
    first = "install it (Debian: postgresql-client)" if _is_missing_program(error, location) else "see to that"
    return f"{first}. Or make a backup by other means; mirage db upgrade --no-backup then makes none"


def _is_missing_program(error: Exception, location: Location) -> bool:
    return location.file is None and isinstance(error, FileNotFoundError) and error.errno is None
