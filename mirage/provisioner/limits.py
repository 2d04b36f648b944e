"""What Mirage allows itself: one pure function grants or refuses every submission."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirage.domain.job import Seconds

LONGEST_PAUSE = 3_600
"""Seconds; a refusal may be over sooner than a doubling back-off would find out."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Ceilings; 0: no ceiling."""

    live_links: int = 0
    """Links of all chains on the cluster at once, pending or running."""
    submissions_per_hour: int = 60
    """Of all chains; slurmctld is a shared resource."""
    pause_after_refusals: int = 3
    """Refused submissions in a row after which a chain pauses itself."""
    protect_after: int = 5
    """Chains refused in a row after which all submissions are held back; see ``protection``."""
    refusal_backoff: Seconds = 300
    """Wait after a refused submission; doubles with each one in a row, up to ``LONGEST_PAUSE``."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What counts against the limits now."""

    live_links: int
    submissions_last_hour: int
    refusals: int
    """Of this chain, in a row."""
    not_before: Seconds
    """This chain's back-off ends here."""
    next_try: Seconds = 0
    """Protected mode: before this instant nothing is submitted; 0: it is off."""


@dataclass(frozen=True, slots=True)
class Permit:
    """Whether a submission may go out now, and why not."""

    granted: bool
    reason: str = ""
    pause: bool = False
    """The chain is to be paused: trying again would not help."""


def permit(now: Seconds, usage: Usage, limits: Limits) -> Permit:
    """Grant or refuse one submission at ``now``."""
    if limits.pause_after_refusals and usage.refusals >= limits.pause_after_refusals:
        return Permit(False, f"refused {usage.refusals} times in a row; resume the chain to try again", pause=True)
    if now < usage.not_before:
        return Permit(False, f"backing off for another {usage.not_before - now} s")
    if now < usage.next_try:
        return Permit(False, f"protected mode: the next try of any chain is in {usage.next_try - now} s")
    if limits.live_links and usage.live_links >= limits.live_links:
        return Permit(False, f"{usage.live_links} links are on the cluster, the limit is {limits.live_links}")
    if limits.submissions_per_hour and usage.submissions_last_hour >= limits.submissions_per_hour:
        return Permit(False, f"{usage.submissions_last_hour} submissions within an hour reach the limit")
    return Permit(True)


def refusal_pause(refusals: int, limits: Limits) -> Seconds:
    """Seconds to wait after so many refusals in a row (1 or more)."""
    return min(limits.refusal_backoff << min(refusals - 1, 16), LONGEST_PAUSE)
