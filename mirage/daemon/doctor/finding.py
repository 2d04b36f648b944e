"""Findings of the doctor, one per line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Severity of a finding, from good to bad."""

    OK = "ok"
    WARN = "warn"
    """Chains work, but not as well as they could."""
    FAIL = "fail"
    """Chains do not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check, with its severity and the fix."""

    level: Level
    check: str
    """Name of the check, in a word or two."""
    found: str
    follows: str = ""
    """The effect on chains."""
    todo: str = ""
    """The fix, such as a command."""


def ok(check: str, found: str, follows: str = "") -> Finding:
    """Return a finding without a problem."""
    return Finding(Level.OK, check, found, follows)


def warn(check: str, found: str, follows: str, todo: str) -> Finding:
    """Return a finding of a degraded state."""
    return Finding(Level.WARN, check, found, follows, todo)


def fail(check: str, found: str, follows: str, todo: str) -> Finding:
    """Return a finding of a state in which chains do not work."""
    return Finding(Level.FAIL, check, found, follows, todo)
