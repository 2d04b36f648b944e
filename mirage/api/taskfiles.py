"""Reads a file that another user names and writes.

The daemon may be able to read files that its users cannot. So it enters only directories that the chain's owner
may search, and reads only a regular file of the owner: users learn nothing that they could not read themselves.
"""

from __future__ import annotations

import os
import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pydantic import ValidationError

from mirage.api.agentstatus import TaskStatus
from mirage.backends.file_check import Unseen, Viewer, open_file
from mirage.documentreading import check_parts, faults_of, reader_of
from mirage.domain.errors import MirageError
from mirage.domain.texts import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = "status.json"
LARGEST = 2 << 20
"""Largest file that is read, in bytes."""
MOST_VALUES = 100_000
"""Most brackets, commas and strings of a file: enough for some 2,000 tasks with as many attempts."""

_STATUS = reader_of(TaskStatus)
_PARSING = threading.Lock()
"""Parsing a file takes many times its size in memory."""
_KERNELS = ("/proc", "/sys", "/dev")
"""Kernel file systems, whose files are not regular ones."""


Seen: TypeAlias = TaskStatus | str
"""The task state, or the reason why it is unknown."""


class StateUnseen(MirageError):
    """The task state is unknown; the text has the reason."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Content of a file, and a mark that detects changes without reading it."""

    mark: tuple[int, ...]
    seen: Seen
    size: int
    """Bytes read."""


def read_state(folder: str, owner: Viewer, known: tuple[int, ...] | None = None) -> Reading | None:
    """Read the file in ``folder`` with its owner's rights; ``None`` if its mark equals ``known``.

    Raises ``StateUnseen``.
    """
    path = f"{folder.rstrip('/')}/{FILE}"
    try:
        found = _read(path, owner, known)
    except Unseen as unseen:
        raise StateUnseen(unseen.state.reason) from None
    except OSError as error:
        raise StateUnseen(_problem(path, error)) from None
    if found is None:
        return None
    mark, text = found
    if len(text) > LARGEST:
        return Reading(mark, f"{path} is larger than {LARGEST >> 20} MiB and is not read", len(text))
    with _PARSING:
        return Reading(mark, _parsed(path, text), len(text))


def _parsed(path: str, text: bytes) -> Seen:
    try:
        check_parts(text.decode("utf-8", "replace"), MOST_VALUES)
    except ValueError:
        return f"{path} has more than {MOST_VALUES} values and is not shown; use `mirage allocation status`"
    try:
        return _STATUS.validate_json(text)
    except ValidationError as error:
        fault = faults_of(error)[0]
        about = f"{fault.key[:80]}: {fault.said}" if fault.path else fault.said
        return f"{path} has an unknown format; it may be of another Mirage version: {printable(about[:200])}"


def _read(path: str, owner: Viewer, known: tuple[int, ...] | None) -> tuple[tuple[int, ...], bytes] | None:
    """Return mark and content; ``None`` for ``known``. Raises ``OSError``, ``Unseen``, ``StateUnseen``."""
    file = open_file(path, owner)
    try:
        mark = _mark(file, path, owner)
        return None if mark == known else (mark, b"".join(_parts(file)))
    finally:
        os.close(file)


def _mark(file: int, path: str, owner: Viewer) -> tuple[int, ...]:
    """Return the mark of a file: a change during the read gives another mark."""
    about = os.fstat(file)
    if not stat.S_ISREG(about.st_mode) or about.st_dev in _kernels_own():
        raise StateUnseen(f"{path} is not a regular file and is not read")
    if about.st_uid != owner.uid:
        raise StateUnseen(f"{path} does not belong to {owner.name} and is not read")
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _parts(file: int) -> Iterator[bytes]:
    """Yield up to one byte more than allowed, whatever the reported size."""
    left = LARGEST + 1
    while left and (part := os.read(file, left)):
        left -= len(part)
        yield part


def _kernels_own() -> set[int]:
    return {Path(path).stat().st_dev for path in _KERNELS if os.path.ismount(path)}


def _problem(path: str, error: OSError) -> str:
    match error:
        case FileNotFoundError() | NotADirectoryError():
            return (
                f"{path} does not exist (yet): `mirage allocation run` with this --state writes it within a link"
            )
        case PermissionError():
            return (
                f"the daemon's account may not read {path}; grant others search permission on its directory "
                "and read permission on the file"
            )
        case _:
            return f"{path} cannot be read: {error.strerror}"
