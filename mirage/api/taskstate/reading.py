"""Reading a file that somebody else names and writes.

The daemon may be able to read what its users cannot. So only a regular file that belongs to the chain's owner is
read: whatever the folder leads to, they learn nothing that is not their own.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from mirage.api.taskstate.content import TaskStatus
from mirage.documentfaults import faults_of
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = "status.json"
LARGEST = 4 << 20
"""Bytes of a file that is read."""

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_KERNELS = ("/proc", "/sys", "/dev")
"""Where files are not what they look like."""


class StateUnseen(MirageError):
    """How the tasks stand cannot be told; the text is for people."""


def read_state(folder: str, owner: str, uid: int) -> TaskStatus:
    """What the file in ``folder`` says. ``uid``: the owner's. Raises ``StateUnseen``."""
    path = f"{folder.rstrip('/')}/{FILE}"
    try:
        text = _bytes_of(path, owner, uid)
    except (OSError, ValueError) as error:
        raise StateUnseen(_problem(path, owner, error)) from None
    try:
        return TaskStatus.model_validate_json(text)
    except ValidationError as error:
        fault = faults_of(error)[0]
        about = f"{fault.key[:80]}: {fault.said}" if fault.path else fault.said
        raise StateUnseen(f"{path} is not what an agent of this version writes: {about[:200]}") from None


def _bytes_of(path: str, owner: str, uid: int) -> bytes:
    """Raises ``OSError``, ``ValueError`` for a path that none can be, and ``StateUnseen``."""
    file = os.open(path, _FLAGS)
    try:
        _check(file, path, owner, uid)
        text = b"".join(_parts(file))
    finally:
        os.close(file)
    if len(text) > LARGEST:
        raise StateUnseen(f"{path} is larger than {LARGEST >> 20} MiB and is not read")
    return text


def _check(file: int, path: str, owner: str, uid: int) -> None:
    about = os.fstat(file)
    if not stat.S_ISREG(about.st_mode) or about.st_dev in _kernels_own():
        raise StateUnseen(f"{path} is no regular file and is not read")
    if about.st_uid != uid:
        raise StateUnseen(f"{path} does not belong to {owner} and is not read")


def _parts(file: int) -> Iterator[bytes]:
    """Up to one byte more than is allowed, whatever its size is said to be."""
    left = LARGEST + 1
    while left and (part := os.read(file, left)):
        left -= len(part)
        yield part


def _kernels_own() -> set[int]:
    return {Path(path).stat().st_dev for path in _KERNELS if os.path.ismount(path)}


def _problem(path: str, owner: str, error: Exception) -> str:
    match error:
        case FileNotFoundError() | NotADirectoryError():
            return f"{path} is not there (yet): `mirage allocation run` with this --state writes it within a link"
        case PermissionError():
            return f"the daemon's account may not read {path}: let others enter its folder, and read the file"
        case OSError(strerror=str(reason)):
            return f"{path} cannot be read: {reason}"
        case _:
            return f"{owner}'s folder of tasks cannot be read: it has no possible name"
