"""Protected mode in the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from mirage.api.conventions.described import Described, SentDocument
from mirage.api.documents.instants import instant

if TYPE_CHECKING:
    from mirage.control.status import Status


class ProtectedMode(Described):
    """Protected mode: Mirage suspends all submissions after Slurm has rejected those of several chains."""

    on: bool
    """Whether protected mode is on."""
    reason: str
    """Reason; empty: off."""
    since: str | None
    """Time of the first of the consecutive rejections."""
    next_try: str | None
    """Time of the next trial submission."""


class ProtectedModeWish(SentDocument):
    """Request to end protected mode. It cannot be started by request, and also ends automatically."""

    on: Literal[False]
    """``false``: end protected mode."""


class ProtectedModeAnswer(Described):
    """Result of the request."""

    sentence: str
    """Result in words."""


def protected_mode(status: Status) -> ProtectedMode:
    """Return the state of protected mode."""
    found = status.protection
    if found is None:
        return ProtectedMode(on=False, reason="", since=None, next_try=None)
    return ProtectedMode(on=True, reason=str(found), since=instant(found.since), next_try=instant(found.next_try))
