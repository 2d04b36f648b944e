"""Limits of Mirage on itself: one pure function grants or rejects every submission."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage.domain.instants import spell_instant
from mirage.provisioner.shares import Shares, deferral

if TYPE_CHECKING:
    from mirage.domain.job import Seconds


@dataclass(frozen=True, slots=True)
class Limits:
    """Maximum numbers of links and submissions; 0: no maximum."""

    live_links: int = 0
    """Maximum number of pending and running links of all chains."""
    submissions_per_hour: int = 600
    """Of all chains; slurmctld is a shared resource. See ``shares``."""
    submissions_per_hour_per_user: int = 60
    """Of all chains of one owner."""
    pause_after_refusals: int = 3
    """Consecutive rejections that no retry can fix after which a chain pauses; see ``rejections.pauses``."""
    protect_after: int = 5
    """Consecutively rejected chains after which protected mode begins; see ``protection``."""
    refusal_backoff: Seconds = 300
    """Wait after a rejected submission; doubles with each one in a row, see ``rejections``."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Present counts that the limits apply to."""

    live_links: int
    submissions_last_hour: int
    not_before: Seconds
    """This chain's back-off ends here."""
    failures: int = 0
    """Of its links in a row."""
    next_try: Seconds = 0
    """Protected mode: before this time nothing is submitted; 0: it is off."""
    shares: Shares = field(default_factory=Shares)


@dataclass(frozen=True, slots=True)
class Permit:
    """Whether a submission may go out now, and why not."""

    granted: bool
    reason: str = ""


def permit(now: Seconds, usage: Usage, limits: Limits) -> Permit:
    """Grant or reject one submission at ``now``."""
    if now < usage.not_before:
        failed = f"{usage.failures} links in a row have" if usage.failures > 1 else "the last link has"
        why = f"{failed} failed, " if usage.failures else ""
        return Permit(False, f"{why}the next try is at {spell_instant(usage.not_before)}")
    if now < usage.next_try:
        return Permit(False, f"protected mode: the next try of any chain is at {spell_instant(usage.next_try)}")
    reason = deferral(usage.shares, usage.live_links, usage.submissions_last_hour, limits)
    return Permit(not reason, reason)
