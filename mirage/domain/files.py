"""Files by which jobs speak to Mirage: which of them are watched, and the last known state of one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

HANDOVER_FOLDER = ".mirage"
"""In a chain's directory: where its links say that they are ready."""


class Presence(StrEnum):
    """Result of the last check for a file; ``unknown`` where the check has no answer."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FileState:
    """Result of the last check of a file."""

    presence: Presence
    """Whether a regular file of the chain's owner, or of root, is there."""
    reason: str = ""
    """UNKNOWN: why, for the owner; empty: not checked yet."""
    denied: bool = False
    """UNKNOWN: a right is missing, so that no later check finds more until its owner grants it."""


NOT_CHECKED = FileState(Presence.UNKNOWN)


@dataclass(frozen=True, slots=True)
class WatchedFile:
    """A file whose appearance ends a chain or a link."""

    owner: str
    """The chain's: only a file of theirs, or of root, counts."""
    path: str
