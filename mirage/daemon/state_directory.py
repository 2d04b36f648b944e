"""The daemon's directories: created, checked, locked by one daemon; and its heartbeat file."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import stat
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from mirage.atomic_file import read_regular, write_atomically
from mirage.config.places import may_be_had
from mirage.documentreading import parse_json
from mirage.domain.bounds import path_problem
from mirage.domain.errors import ConfigError, MirageError
from mirage.store.location import locate, make_directory, standing_directory
from mirage.store.published_state import RESTORED, newest_state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class AlreadyRunning(MirageError):
    """Another daemon keeps the same state."""


@contextmanager
def single_instance(file: Path) -> Iterator[None]:
    """Hold the lock ``file``, which names our process, while inside.

    The kernel releases it when the process ends in whatever way. Raises ``AlreadyRunning`` naming the process
    that holds it, and ``ConfigError`` where the file cannot be made.
    """
    try:
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError("service.state", f"{file} cannot be opened: {error.strerror}") from error
    try:
        _take(handle, file)
        with _spared(file.parent):
            yield
    finally:
        os.close(handle)


@contextmanager
def _spared(folder: Path) -> Iterator[None]:
    """Keep ``systemd-tmpfiles`` out of the directory, which would delete what lies in /var/tmp and grows old."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # such as a file system without locks, which has no cleaner either
            fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def _take(handle: int, file: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
        raise AlreadyRunning(
            f"a daemon runs already, process {holder} ({file}); end it, or give this one another service.state"
        ) from None
    except OSError as error:
        raise ConfigError("service.state", f"{file} cannot be locked: {error.strerror}") from error
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)


HEARTBEAT = "heartbeat"
"""The file's name in the state directory."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Beat:
    """State of the daemon after one cycle, as its heartbeat file records it."""

    pid: int
    time: int
    """Epoch seconds of the machine's clock."""
    cycles: int
    sentence: str
    failed: int = 0
    """Cycles failed in a row."""
    due_s: float = 0.0
    """Seconds until the next beat at the latest; 0: not known."""
    stuck: int = 0
    """Threads of predictors that will hardly end."""
    outdated: str = ""
    """Why an older key or policy is in force."""


class Heartbeat:
    """Writes the file after each cycle; logs an error once."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._failed = False

    def beat(
        self,
        cycles: int,
        sentence: str,
        failed: int = 0,
        due_s: float = 0.0,
        stuck: int = 0,
        outdated: str = "",
    ) -> None:
        """Record a cycle. Arguments as in ``Beat``."""
        beat = Beat(os.getpid(), int(time.time()), cycles, sentence, failed, due_s, stuck, outdated)
        try:
            write_atomically(self._file, json.dumps(asdict(beat)).encode())
        except OSError as error:
            if not self._failed:
                _LOG.warning("event=heartbeat_not_written file=%s error=%r", self._file, error.strerror)
            self._failed = True
        else:
            self._failed = False


def read_beat(file: Path) -> Beat | None:
    """The heartbeat in the file; ``None`` where the file is missing or cannot be read."""
    try:
        return Beat(**parse_json(read_regular(file)))
    except (OSError, ValueError, TypeError):
        return None


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


CALL_LOG = "cron.log"


def write_to_log(state: Path) -> None:
    """Have stdout and stderr of this process go to a file of the state directory, which it empties.

    Raises ``ConfigError``; it follows no link.
    """
    file = make_private_folder(state, "service.state") / CALL_LOG
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(file, flags, 0o600)
    except OSError as error:
        raise ConfigError("service.state", f"{file} cannot be written: {error.strerror}") from error
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.close(handle)


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

    Raises ``ConfigError`` if its SQLite file or shared directory is empty; a missing one may be intended, and is
    only logged.
    """
    location = locate(url)
    file = location.file or location.directory
    if file is None or not heartbeat.exists():
        return
    if not file.exists():
        text = "a daemon has run here before; its chains are lost unless you restore the file"
        _LOG.warning("event=database_missing file=%s text=%r", file, text)
    elif not (file.stat().st_size if location.file else newest_state(file)):
        problem = "is empty, although a daemon has run here before: all chains would be lost"
        place = "its place" if location.file else f"it as {RESTORED}"
        raise ConfigError("store.url", f"{file} {problem}; put a backup in {place}, or delete it to begin again")
