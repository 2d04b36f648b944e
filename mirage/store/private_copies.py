"""Directories for one process alone, on a file system of this machine; those of killed processes are removed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from mirage.domain.errors import StoreUnavailable
from mirage.store.mounts import network_file_system

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
