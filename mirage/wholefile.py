"""Files that are written whole or not at all: whoever reads one finds what it held before or what it holds now."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def write_anew(path: Path, content: bytes) -> None:
    """Replace what the file holds. Raises ``OSError``; it then holds what it held."""
    with draft_of(path) as draft:
        draft.write_bytes(content)


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A name to write to that becomes ``path`` at the end; after an error nothing is left of it.

    Each draft has a name of its own, so that writers on several machines do not mix: the last one's file stays.
    A writer that is killed leaves its draft behind, ``.NAME.*.new``.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        yield draft
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
