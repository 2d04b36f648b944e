"""Small files that are written anew: whoever reads one never finds half of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_anew(path: Path, content: bytes) -> None:
    """Replace what the file holds, for one writer at a time. Raises ``OSError``; it then holds what it held."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(content)
    new.replace(path)
