"""Reading a file that another user names and writes.

The daemon may be able to read what its users cannot. So the file is reached only through directories that the
chain's owner may search, and only a regular file that belongs to the owner is read: whatever the directory leads
to,
they learn nothing that they could not see themselves.
"""

from __future__ import annotations

import os
import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pydantic import ValidationError

from mirage.api.taskstate.content import TaskStatus
from mirage.backends.filecheck import Unseen, Viewer, open_file
from mirage.documentfaults import faults_of, reader_of
from mirage.documenttext import check_parts
from mirage.domain.errors import MirageError
from mirage.domain.texts import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = "status.json"
LARGEST = 2 << 20
"""Bytes of a file that is read."""
MOST_VALUES = 100_000
"""Brackets, commas and strings of a file that is shown: some 2,000 tasks with as many attempts."""

_STATUS = reader_of(TaskStatus)
_PARSING = threading.Lock()
"""A file takes many times its size while it is read."""
_KERNELS = ("/proc", "/sys", "/dev")
"""Where files are not what they look like."""


Seen: TypeAlias = TaskStatus | str
"""What a file says, or a sentence why that is not known."""


class StateUnseen(MirageError):
    """How the tasks stand cannot be told; the text is for people."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file said, and how to know without reading it that it says the same."""

    mark: tuple[int, ...]
    seen: Seen
    size: int
    """Bytes that were read."""


def read_state(folder: str, owner: Viewer, known: tuple[int, ...] | None = None) -> Reading | None:
    """What the file in ``folder`` says, as its owner sees it; ``None`` where its mark is the one ``known``.

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
        return (
            f"{path} has more than {MOST_VALUES} values and is not shown; "
            "`mirage allocation status` tells how the tasks stand"
        )
    try:
        return _STATUS.validate_json(text)
    except ValidationError as error:
        fault = faults_of(error)[0]
        about = f"{fault.key[:80]}: {fault.said}" if fault.path else fault.said
        return f"{path} is not what an agent of this version writes: {printable(about[:200])}"


def _read(path: str, owner: Viewer, known: tuple[int, ...] | None) -> tuple[tuple[int, ...], bytes] | None:
    """The file's mark and text; ``None``: it is ``known``. Raises ``OSError``, ``Unseen``, ``StateUnseen``."""
    file = open_file(path, owner)
    try:
        mark = _mark(file, path, owner)
        return None if mark == known else (mark, b"".join(_parts(file)))
    finally:
        os.close(file)


def _mark(file: int, path: str, owner: Viewer) -> tuple[int, ...]:
    """What changes with the file; a change that is made while it is read makes another one."""
    about = os.fstat(file)
    if not stat.S_ISREG(about.st_mode) or about.st_dev in _kernels_own():
        raise StateUnseen(f"{path} is no regular file and is not read")
    if about.st_uid != owner.uid:
        raise StateUnseen(f"{path} does not belong to {owner.name} and is not read")
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _parts(file: int) -> Iterator[bytes]:
    """Up to one byte more than is allowed, whatever its size is said to be."""
    left = LARGEST + 1
    while left and (part := os.read(file, left)):
        left -= len(part)
        yield part


def _kernels_own() -> set[int]:
    return {Path(path).stat().st_dev for path in _KERNELS if os.path.ismount(path)}


def _problem(path: str, error: OSError) -> str:
    match error:
        case FileNotFoundError() | NotADirectoryError():
            return f"{path} is not there (yet): `mirage allocation run` with this --state writes it within a link"
        case PermissionError():
            return f"the daemon's account may not read {path}: let others enter its directory, and read the file"
        case _:
            return f"{path} cannot be read: {error.strerror}"
