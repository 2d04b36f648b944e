"""Errors that concern one chain or one command, and their texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.errors import MirageError
from mirage.domain.texts import storable

if TYPE_CHECKING:
    from mirage.domain.chain import ChainId

_LONGEST = 500
"""Characters: an error quotes what a user wrote, and it is shown in every cycle."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An error in the turn of one chain, or in one command."""

    chain: ChainId | None
    """``None``: it concerns no single chain."""
    error: Exception

    @property
    def text(self) -> str:
        """The error in one line."""
        return error_text(self.error)


def error_text(error: Exception) -> str:
    """An error in one bounded line; one that was not raised on purpose is called a bug."""
    if isinstance(error, MirageError):
        return _cut(str(error))
    said = _cut(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    return f"internal error (bug in Mirage): {said}; the daemon's log has the traceback"


def _cut(text: str) -> str:
    return storable(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}...")
