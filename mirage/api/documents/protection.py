"""Protected mode, as the API tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from mirage.api.conventions.described import Described, SentDocument
from mirage.api.documents.instants import instant

if TYPE_CHECKING:
    from mirage.control.status import Status


class ProtectedMode(Described):
    """Whether submissions are held for all, because Slurm rejects one chain after another."""

    on: bool
    """Whether submissions are held."""
    reason: str
    """Empty: it is off."""
    since: str | None
    """When the first of the rejections in a row was."""
    next_try: str | None
    """When one submission may go out next."""


class ProtectedModeWish(SentDocument):
    """What an administrator asks for: it ends by itself, or on request; it begins by itself alone."""

    on: Literal[False]
    """``false``: lift it."""


class ProtectedModeAnswer(Described):
    """What came of it."""

    sentence: str
    """What came of it, for people."""


def protected_mode(status: Status) -> ProtectedMode:
    """As ``status`` has it."""
    found = status.protection
    if found is None:
        return ProtectedMode(on=False, reason="", since=None, next_try=None)
    return ProtectedMode(on=True, reason=str(found), since=instant(found.since), next_try=instant(found.next_try))
