"""Notifications of users and administrators."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirage.domain.job import Seconds


class NoticeKind(StrEnum):
    """The event that a notification reports; the configuration lists these values under ``events``."""

    SUBMITTED = "link-submitted"
    GAP = "gap"
    """A service is down for longer than is tolerated, or runs again after that."""
    DONE = "chain-done"
    STUCK = "chain-stuck"
    """The chain paused or stopped by itself, or its link waits far longer than predicted."""
    WEEK = "week"
    """Losses of the last week's handovers, and what was saved."""
    PROTECTED = "protected-mode"
    UNREACHABLE = "controller-unreachable"
    TEST = "test"
    """A test message."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message about a chain or the service, before it is formatted for a channel."""

    kind: NoticeKind
    time: Seconds
    """On Slurm's clock."""
    text: str
    """One sentence."""
    chain: str = ""
    """Its id; empty: about the whole service, for the site alone."""
    name: str = ""
    owner: str = ""
    link: int = 0
    """0: about no link in particular."""
    over: bool = False
    """The problem of an earlier notice has ended."""
