"""One daemon a state directory."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from mirage.domain.errors import ConfigError, MirageError

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
