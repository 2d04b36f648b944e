"""Files written whole or not at all, and files read whole: regular ones, up to a size.

A reader finds what the file held before or what it holds now. The user who names a file cannot make the reader
hang (a FIFO), run out of memory (``/dev/zero``) or follow a link where that is not allowed.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LARGEST_TEXT = 16 << 20
"""Bytes of a configuration file, key, token or manifest."""


def read_regular(
    path: Path | str, at_most: int = LARGEST_TEXT, *, follow_links: bool = True, owner: int | None = None
) -> bytes:
    """Return the content of a regular file of at most ``at_most`` bytes.

    Raises ``OSError`` for anything else: FIFO, device, directory, larger file; with ``follow_links=False`` also
    for a symbolic link as the last part of ``path``, with ``owner`` (a uid) also for a file of another user. Never
    waits for a writer.
    """
    with open_regular(path, follow_links=follow_links) as file:
        if owner is not None and os.fstat(file.fileno()).st_uid != owner:
            raise OSError(errno.EPERM, "another user's file", str(path))
        content = file.read(at_most + 1)
    if len(content) > at_most:
        raise OSError(errno.EFBIG, f"larger than {at_most:,} bytes", str(path))
    return content


@contextmanager
def open_regular(path: Path | str, *, follow_links: bool = True) -> Iterator[BinaryIO]:
    """Open a regular file to be read in parts; raises ``OSError`` as ``read_regular``."""
    link = 0 if follow_links else os.O_NOFOLLOW
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | link)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        with os.fdopen(handle, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(handle)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace what the file holds; no group may write to it. Raises ``OSError``; it then holds what it held."""
    with draft_of(path) as draft:
        opened = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with os.fdopen(opened, "wb") as file:
            file.write(content)


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A name to write to that becomes ``path`` at the end; after an error nothing is left of it.

    Each draft has a unique name, so that writers on several machines do not mix: the last file stays.
    A writer that is killed leaves its draft behind, ``.NAME.*.new``.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        yield draft
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
