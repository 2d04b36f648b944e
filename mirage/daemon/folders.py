"""The daemon's directories: made where they are missing, and no other user's where all users may make some."""

from __future__ import annotations

import logging
import os
import stat
from typing import TYPE_CHECKING

from mirage.config.places import may_be_had
from mirage.domain.bounds import path_problem
from mirage.domain.errors import ConfigError
from mirage.store.location import locate, make_directory, standing_directory

if TYPE_CHECKING:
    from pathlib import Path

_LOG = logging.getLogger(__name__)
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def check_folder(folder: Path, key: str) -> None:
    """Raise ``ConfigError`` where ``make_folder`` would; nothing is made."""
    if problem := path_problem(str(folder.absolute())):
        raise ConfigError(key, f"{folder}: {problem}")
    there = standing_directory(folder)
    if not there.is_dir():
        raise ConfigError(key, f"the directory {folder} cannot be made: {there} is no directory; name another one")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(key, f"the directory {there} cannot be written by this user; name another one")


def make_folder(folder: Path, mode: int, key: str) -> Path:
    """The directory, made where it is missing. Raises ``ConfigError`` naming ``key`` where it cannot be used."""
    try:
        make_directory(folder, mode)
    except OSError as error:
        raise ConfigError(
            key, f"the directory {folder} cannot be made: {error.strerror}; name another one"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(key, f"the directory {folder} cannot be written by this user; name another one")
    return folder


def make_private_folder(folder: Path, key: str) -> Path:
    """As ``make_folder``, for what is no other user's business.

    In a directory that all users may write to (``/var/tmp``) another user may have been first: a link, and a
    directory that belongs to another user or is open to others, are rejected.
    """
    made = make_folder(folder, 0o700, key)
    _check_private(folder, key)
    return made


def keep_files_private() -> None:
    """Create all later files of this process without access for other users, whatever their directory."""
    os.umask(os.umask(_OTHERS) | _OTHERS)


def check_private_folder(folder: Path, key: str) -> None:
    """Raise ``ConfigError`` where ``make_private_folder`` would; nothing is made."""
    check_folder(folder, key)
    if folder.exists():
        _check_private(folder, key)


def _check_private(folder: Path, key: str) -> None:
    if not folder.absolute().parent.stat().st_mode & stat.S_IWOTH:
        return
    if not may_be_had(folder, os.geteuid()):
        raise ConfigError(
            key,
            f"{folder} is a link or belongs to another user, in a directory that is open to all; choose another",
        )
    if stat.S_IMODE(folder.lstat().st_mode) & _OTHERS:
        raise ConfigError(key, f"{folder} has scripts of chains and is open to other users; chmod 700 {folder}")


def check_database(url: str, heartbeat: Path) -> None:
    """Make sure that a daemon which has run before does not begin again without its chains.

    Raises ``ConfigError`` if its SQLite file is empty; a missing file may be intended, and is only logged.
    """
    file = locate(url).file
    if file is None or not heartbeat.exists():
        return
    if not file.exists():
        text = "a daemon has run here before; its chains are lost unless you restore the file"
        _LOG.warning("event=database_missing file=%s text=%r", file, text)
    elif not file.stat().st_size:
        problem = "is empty, although a daemon has run here before: all chains would be lost"
        raise ConfigError("store.url", f"{file} {problem}; put a backup in its place, or delete it to begin again")
