"""What the doctor says: one finding a line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    """Chains work, but not as well as they could."""
    FAIL = "fail"
    """Chains do not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    check: str
    """What was looked at, in a word or two."""
    found: str
    follows: str = ""
    """What that means for chains."""
    todo: str = ""
    """What would make it better."""


def ok(check: str, found: str, follows: str = "") -> Finding:
    """All is well."""
    return Finding(Level.OK, check, found, follows)


def warn(check: str, found: str, follows: str, todo: str) -> Finding:
    """It could be better."""
    return Finding(Level.WARN, check, found, follows, todo)


def fail(check: str, found: str, follows: str, todo: str) -> Finding:
    """It does not work."""
    return Finding(Level.FAIL, check, found, follows, todo)
